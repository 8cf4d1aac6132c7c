"""Pods whose claim is being allocated for another one: rejected, as upstream, and soon bound.

The rejection is written only if it lasts.
"""

from __future__ import annotations

from ksched.apiserver.faults import Fault, Faults, Rule
from ksched.scheduling.decisions import Result
from ksched.scheduling.pod_status import HOLD_SECONDS
from ksched.testing import cluster, make_node, make_pod
from ksched.testing.device_builders import (
    make_device_class,
    make_resource_claim,
    make_slice,
    with_claim,
)

NODES = [make_node("n1"), make_node("n2")]
CLASS, SLICE = make_device_class(), make_slice("n1").device("d1")
CLAIM = make_resource_claim("gpu").request()
NAMES = [f"p{number}" for number in range(5)]
SHARERS = [with_claim(make_pod(name), "gpu") for name in NAMES]
IN_FLIGHT = (
    "0/2 nodes are available: resource claim default/gpu is in the process of being allocated. "
    "no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful "
    "for scheduling."
)


def slow_status(seconds: float) -> Faults:
    """The first allocation that is written takes so long."""
    slow = Fault(delay_seconds=seconds)
    return Faults([Rule(slow, "update", "resourceclaims/status", times=1)])


async def test_pods_that_share_a_claim_cost_no_events_and_conditions() -> None:
    async with cluster(nodes=NODES, faults=slow_status(0.5)) as c:
        await c.create(CLASS, SLICE, CLAIM, *SHARERS)
        await c.advance(10)

        rejected = [one for one in c.scheduler.decisions if one.result is Result.UNSCHEDULABLE]
        assert {one.message for one in rejected} == {IN_FLIGHT}
        assert {one.pod for one in rejected} == {f"default/{name}" for name in NAMES[1:]}
        assert {c.bound(name) for name in NAMES} == {"n1"}
        for name in NAMES:
            assert [one.reason for one in c.events(name)] == ["Scheduled"]
        waits = c.scheduler.metrics.plugin_cycle_blocked_duration.series()
        assert not waits, "no call for which the next pod had to wait"
        patches = [one for one in c.requests if one.verb == "patch"]
        assert [one.path for one in patches if one.user == "system:kube-scheduler"] == []


async def test_a_pod_whose_claim_stays_in_flight_says_so() -> None:
    async with cluster(nodes=NODES, faults=slow_status(20.0)) as c:
        await c.create(CLASS, SLICE, CLAIM, *SHARERS[:2])
        await c.advance(HOLD_SECONDS - 1)
        assert c.events("p0") == c.events("p1") == []
        assert c.message("p1") == ""
        await c.advance(2)

        assert c.pod("p0")["status"]["nominatedNodeName"] == "n1"
        condition = c.condition("p1")
        assert condition is not None
        assert (condition["reason"], condition["message"]) == ("Unschedulable", IN_FLIGHT)
        [event] = c.events("p1")
        assert (event.reason, event.note) == ("FailedScheduling", IN_FLIGHT)
        await c.advance(60)
        assert c.bound("p0") == c.bound("p1") == "n1"
