"""Other PreEnqueue plugins while pods wait (the scripts in ``config_reload.txt`` are the rest)."""

from __future__ import annotations

from ksched.cache.pod_info import PodInfo, TemplateRegistry
from ksched.cache.resource_axis import ResourceAxis
from ksched.framework import SUCCESS, QueuedPodInfo, Status, unschedulable
from ksched.queue import Place
from ksched.testing.builders import make_pod
from lab.watched_queue import WatchedQueue

PROFILE = "default-scheduler"
TEMPLATES = TemplateRegistry(ResourceAxis())


def info(name: str) -> PodInfo:
    return TEMPLATES.pod_info(make_pod(name).obj())


async def pop(queue: WatchedQueue) -> QueuedPodInfo:
    queued = await queue.pop()
    assert queued is not None
    return queued


async def test_a_ready_member_that_the_new_plugins_object_to_is_gated_when_its_turn_comes() -> None:
    queue = WatchedQueue(
        now=lambda: 0.0,
        sort_key=lambda queued: queued.pod.name,
        pre_enqueue={},
        hints={PROFILE: ()},
    )
    members = [info("first"), info("second")]
    for one in members:
        queue.pod_added(one)

    def objects(pod: PodInfo) -> Status:
        return unschedulable("no") if pod.name == "second" else SUCCESS

    queue.reconfigure(
        pre_enqueue={PROFILE: [("Gate", objects)]},
        hints={PROFILE: ()},
        pod_initial_backoff_seconds=1,
        pod_max_backoff_seconds=10,
    )
    leader = await pop(queue)
    assert leader.pod.name == "first"
    assert queue.take(leader, [one.uid for one in members]) == []
    queue.pod_added(info("third"))
    assert (await pop(queue)).pod.name == "third"
    assert queue.place_of(members[1].uid) is Place.GATED
