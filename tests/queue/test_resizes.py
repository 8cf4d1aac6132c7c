"""A resize of a running pod costs the same, however many pods wait."""

from __future__ import annotations

import pytest

from ksched.cache.pod_info import TemplateRegistry
from ksched.cache.resource_axis import ResourceAxis
from ksched.framework import Action, ClusterEvent, Resource
from ksched.framework.plugins.node_resources.fit import NodeResourcesFit
from ksched.testing.builders import make_pod
from lab.watched_queue import WatchedQueue

RESIZED = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_DOWN)


@pytest.mark.parametrize("pods", [10, 200])
async def test_a_resize_of_a_running_pod_costs_one_hint_call(pods: int) -> None:
    templates = TemplateRegistry(ResourceAxis())
    queue = WatchedQueue(
        now=lambda: 0.0,
        sort_key=lambda queued: queued.timestamp,
        pre_enqueue={},
        hints={
            "default-scheduler": [("Fit", one) for one in NodeResourcesFit().events_to_register()]
        },
    )
    for number in range(pods):
        queue.pod_added(templates.pod_info(make_pod(f"p{number}").obj()))
    for _ in range(pods):
        queued = await queue.pop()
        assert queued is not None
        queue.add_unschedulable_if_not_present(queued, frozenset(["Fit"]))
    running = make_pod("running").node("n").req(memory="2Gi")
    old, new = running.obj(), running.req(memory="1Gi").obj()
    queue.move_all_to_active_or_backoff_queue(RESIZED, old, new)
    assert queue.work.hint_calls == 1
    assert queue.statistics().unschedulable == pods, "they request no memory"
