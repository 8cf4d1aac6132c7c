"""Pods held at Permit: the first answer that settles it wins."""

from __future__ import annotations

import asyncio

import pytest

from ksched.cache.pod_info import PodInfo
from ksched.framework.runtime.waiting_pods import MAX_WAIT_SECONDS, WaitingPods, go_duration
from ksched.framework.status import SUCCESS, Code
from ksched.testing import make_pod
from ksched.testing.plugin_runner import PluginBench


def held(name: str = "web") -> PodInfo:
    return PluginBench(nodes=[]).pod_info(make_pod(name).obj())


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.00025, "250µs"),
        (0.5, "500ms"),
        (1, "1s"),
        (1.5, "1.5s"),
        (60, "1m0s"),
        (90, "1m30s"),
        (300, "5m0s"),
        (900.0, "15m0s"),
        (3600, "1h0m0s"),
        (3725.25, "1h2m5.25s"),
    ],
)
def test_durations_read_as_go_prints_them(seconds: float, text: str) -> None:
    assert go_duration(seconds) == text


async def test_a_pod_that_is_not_held_may_go_on_at_once() -> None:
    assert await WaitingPods().wait("nobody") == SUCCESS


async def test_all_plugins_must_allow() -> None:
    pods = WaitingPods()
    pod = held()
    waiting = pods.hold(pod, "n1", {"A": 60, "B": 60})
    waiting.allow("A")
    waiting.allow("nobody")
    assert waiting.pending_plugins == {"B"}
    assert not waiting.settled.done()
    waiting.allow("B")
    assert await pods.wait(pod.uid) == SUCCESS
    assert len(pods) == 0


async def test_the_first_timer_rejects_and_stops_the_others() -> None:
    pods = WaitingPods()
    pod = held()
    pods.hold(pod, "n1", {"Slow": 20, "Quick": 10})
    status = await pods.wait(pod.uid)
    assert asyncio.get_running_loop().time() == 10
    assert (status.code, status.plugin) == (Code.UNSCHEDULABLE, "Quick")
    assert status.reasons == ("rejected due to timeout after waiting 10s at plugin Quick",)


async def test_a_plugin_that_allowed_does_not_time_out() -> None:
    pods = WaitingPods()
    pod = held()
    waiting = pods.hold(pod, "n1", {"Slow": 20, "Quick": 10})
    waiting.allow("Quick")
    assert (await pods.wait(pod.uid)).plugin == "Slow"
    assert asyncio.get_running_loop().time() == 20


async def test_nobody_waits_longer_than_the_maximum() -> None:
    pods = WaitingPods()
    pod = held()
    pods.hold(pod, "n1", {"Patient": 1e9})
    status = await pods.wait(pod.uid)
    assert asyncio.get_running_loop().time() == MAX_WAIT_SECONDS
    assert "after waiting 15m0s" in status.message


async def test_later_answers_are_ignored() -> None:
    pods = WaitingPods()
    pod = held()
    waiting = pods.hold(pod, "n1", {"A": 60})
    waiting.reject("A", "no")
    waiting.allow("A")
    waiting.preempt("too late")
    waiting.reject("B", "never")
    status = await pods.wait(pod.uid)
    assert (status.plugin, status.reasons) == ("A", ("no",))


async def test_an_answer_before_anybody_waits_is_kept() -> None:
    pods = WaitingPods()
    pod = held()
    pods.hold(pod, "n1", {"A": 60}).allow("A")
    assert await pods.wait(pod.uid) == SUCCESS


async def test_a_preempted_pod_meets_an_error() -> None:
    pods = WaitingPods()
    pod = held()
    pods.hold(pod, "n1", {"A": 60}).preempt("preempted")
    status = await pods.wait(pod.uid)
    assert status.code is Code.ERROR
    assert status.message == "waiting on permit for pod: preempted"


async def test_a_cancelled_wait_and_a_discarded_pod_leave_no_entry() -> None:
    pods = WaitingPods()
    one, two = held("one"), held("two")
    pods.hold(one, "n1", {"A": 60})
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await pods.wait(one.uid)
    pods.hold(two, "n1", {"A": 60})
    assert [waiting.pod.key for waiting in pods] == ["default/two"]
    pods.discard(two.uid)
    pods.discard("nobody")
    assert len(pods) == 0
