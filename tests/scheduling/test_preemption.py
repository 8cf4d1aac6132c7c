"""Preemption from the scheduling cycle to the victims' end, on an embedded API server.

Covers ``ksched.framework.plugins.default_preemption.evictable`` too.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ksched.apiserver import served_resources as resources
from ksched.apiserver.faults import Fault, Faults, Rule
from ksched.apiserver.object_store import Entry
from ksched.apiserver.served_resources import JsonObject
from ksched.apiserver.status_errors import StatusError
from ksched.framework import SUCCESS, PermitResult, Status, wait
from ksched.metrics import Metrics
from ksched.queue.places import Place
from ksched.testing import (
    After,
    Checkers,
    Cluster,
    FakePlugin,
    PodBuilder,
    cluster,
    make_node,
    make_pod,
)

WAITS = "waiting on permit for pod: preempted"


def low(name: str, cpu: str = "1", grace_seconds: int = 0) -> PodBuilder:
    spec = {"priorityClassName": "low", "terminationGracePeriodSeconds": grace_seconds}
    return make_pod(name).req(cpu=cpu).merge({"spec": spec})


def high(name: str = "high", cpu: str = "1") -> PodBuilder:
    return make_pod(name).req(cpu=cpu).merge({"spec": {"priorityClassName": "high"}})


async def create_classes(c: Cluster) -> None:
    for name, value in {"low": 10, "high": 1000, "top": 2000}.items():
        await c.create(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
            }
        )


async def fill(c: Cluster, pods: int = 4, grace_seconds: int = 0) -> None:
    await create_classes(c)
    await c.create(*(low(f"low{number}", "1", grace_seconds) for number in range(pods)))
    await c.settle()
    assert all(c.bound(f"low{number}") for number in range(pods))


def left(c: Cluster) -> int:
    return sum(pod["metadata"]["name"].startswith("low") for pod in c.pods())


@pytest.mark.parametrize("victims", [2, 3, 4])
async def test_a_preemptor_among_its_equals_is_placed_when_its_victims_have_ended(
    victims: int,
) -> None:
    """The others are rejected because of its nomination; that says nothing about itself."""
    node = make_node("n1").capacity(cpu=str(victims), memory="8Gi", pods="20")
    async with cluster(nodes=[node]) as c:
        await fill(c, pods=victims, grace_seconds=120)
        await c.create(high("high-a", cpu=str(victims)))
        await c.settle()
        assert c.pod("high-a")["status"]["nominatedNodeName"] == "n1"
        await c.create(high("high-b", cpu=str(victims)), high("high-c", cpu=str(victims)))
        await c.advance(3)
        for number in range(victims):
            await c.delete(f"low{number}", grace_seconds=0)
            await c.advance(11)
        assert c.bound("high-a") == "n1"


async def test_an_important_pod_takes_the_place_of_lesser_ones() -> None:
    metrics = Metrics()
    async with cluster(nodes=1, metrics=metrics) as c:
        checkers = Checkers(c)
        await fill(c)
        await c.create(high(cpu="2"))
        await c.advance(2)

        assert c.bound("high") == "n1"
        assert left(c) == 2
        checkers.check_books()
        story = [(step.target, step.cause) for step in c.story("high")]
        assert story[2] == (Place.UNSCHEDULABLE, "ScheduleAttemptFailure")
        # Woken when both victims were gone, and not before.
        assert Counter(target for target, _ in story)[Place.IN_FLIGHT] == 2
        assert metrics.preemption_attempts.value() == 1
        assert metrics.preemption_victims.of().sum == 2
        assert len(c.scheduler.nominator) == 0


async def test_a_victim_knows_why_it_goes_and_the_pod_waits_for_it() -> None:
    async with cluster(nodes=1, kubelet=True) as c:
        await fill(c, grace_seconds=30)
        await c.advance(1)
        await c.create(high())
        await c.settle()

        assert c.message("high") == "0/1 nodes are available: 1 Insufficient cpu."
        assert c.pod("high")["status"]["nominatedNodeName"] == "n1"
        [victim] = [one for one in c.pods() if one["metadata"].get("deletionTimestamp")]
        name = victim["metadata"]["name"]
        condition = c.condition(name, "DisruptionTarget")
        assert condition is not None
        assert condition["reason"] == "PreemptionByScheduler"
        assert condition["message"] == (
            "default-scheduler: preempting to accommodate a higher priority pod"
        )
        event = c.events(name)[-1]
        assert (event.type, event.reason, event.controller) == (
            "Normal",
            "Preempted",
            "default-scheduler",
        )
        assert event.note == f"Preempted by pod {c.uid('high')} on node n1"

        await c.advance(1)
        assert c.bound("high") == "n1"
        assert left(c) == 3


async def test_while_victims_shut_down_no_further_ones_are_chosen() -> None:
    async with cluster(nodes=[make_node("n1"), make_node("n2")]) as c:
        # Nobody plays kubelet, so they are terminating until the test says otherwise.
        await fill(c, pods=8, grace_seconds=30)
        await c.create(high(cpu="2"))
        await c.settle()
        going = [one["metadata"]["name"] for one in c.pods() if "deletionTimestamp" in str(one)]
        assert len(going) == 2

        await c.delete(going[0], grace_seconds=0)
        await c.advance(5)

        text = "preemption: not eligible due to a terminating pod on the nominated node."
        assert c.message("high") == (
            f"0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, {text}"
        )
        assert c.pod("high")["status"]["nominatedNodeName"]
        assert left(c) == 7
        await c.delete(going[1], grace_seconds=0)
        await c.advance(5)
        assert c.bound("high")
        assert left(c) == 6


async def test_room_that_was_made_is_kept_from_lesser_pods() -> None:
    async with cluster(nodes=1) as c:
        await fill(c, grace_seconds=30)
        await c.create(high(cpu="4"), low("low-late", "500m"))
        await c.settle()
        for number in range(4):
            await c.delete(f"low{number}", grace_seconds=0)
            await c.settle()
        await c.advance(10)

        assert c.bound("high") == "n1"
        assert c.bound("low-late") is None
        Checkers(c).check_books()


async def test_a_more_important_preemptor_ends_the_nomination_of_a_lesser_one() -> None:
    async with cluster(nodes=1) as c:
        await fill(c, grace_seconds=30)
        await c.create(high(cpu="2"))
        await c.settle()
        assert c.pod("high")["status"]["nominatedNodeName"] == "n1"

        await c.create(make_pod("top").req(cpu="4").merge({"spec": {"priorityClassName": "top"}}))
        await c.settle()

        assert c.pod("top")["status"]["nominatedNodeName"] == "n1"
        assert "nominatedNodeName" not in c.pod("high")["status"]
        assert c.scheduler.nominator.node_of(c.uid("high")) is None
        assert c.message("high").startswith("0/1 nodes are available: 1 Insufficient cpu.")


async def test_a_victim_held_at_permit_is_sent_back_in_memory() -> None:
    def hold(state: object, pod: Any, node: str) -> object:
        return PermitResult(wait(), 600) if pod.name.startswith("low") else SUCCESS

    gate = FakePlugin("Gate", permit=hold)
    async with cluster(nodes=1, plugins=[gate]) as c:
        checkers = Checkers(c)
        await create_classes(c)
        await c.create(low("low", "4"))
        await c.settle()
        assert [held.pod.name for held in c.scheduler.waiting] == ["low"]

        await c.create(high(cpu="4"))
        await c.settle()

        assert c.exists("low"), "nobody asked the server to delete it"
        assert not [one for one in c.requests if one.verb == "delete"]
        assert c.message("low") in (WAITS, "0/1 nodes are available: 1 Insufficient cpu.")
        assert c.events("low")[0].note.endswith("(in kube-scheduler memory).")
        await c.advance(5)
        assert c.bound("high") == "n1"
        checkers.check_books()


async def test_a_victim_in_pre_bind_is_called_off() -> None:
    volumes = FakePlugin(
        "Volumes",
        pre_bind=lambda state, pod, node: _slowly(pod.name),
        unreserve=None,
        reserve=SUCCESS,
    )
    async with cluster(nodes=1, plugins=[volumes]) as c:
        checkers = Checkers(c)
        await create_classes(c)
        await c.create(low("low", "4"))
        await c.advance(1)
        assert c.bound("low") is None
        assert c.scheduler.cache.is_assumed(c.uid("low"))

        await c.create(high(cpu="4"))
        await c.settle()

        assert c.exists("low")
        assert "preempted by DefaultPreemption" in [event.note for event in c.events("low")]
        assert volumes.calls("unreserve")
        await c.advance(5)
        assert c.bound("high") == "n1"
        checkers.check_books()


async def _slowly(name: str) -> Status:
    await asyncio.sleep(25 if name == "low" else 0)
    return SUCCESS


async def test_a_hundred_victims_do_not_hold_up_the_others() -> None:
    slow = Rule(Fault(delay_seconds=1), verb="delete", resource="pods", times=None)
    nodes = [make_node("n1").capacity(cpu="10", pods="200"), make_node("n2")]
    async with cluster(nodes, faults=Faults([slow])) as c:
        await create_classes(c)
        await c.create(*(low(f"low{number}", "100m").node("n1") for number in range(100)))
        await c.settle()
        await c.create(high(cpu="10"))
        await c.settle()
        assert 0 < left(c) <= 100
        began = c.clock.now()

        for number in range(20):
            await c.create(make_pod(f"web{number}").req(cpu="100m"))
        await c.settle()

        assert c.clock.now() == began, "no time has passed"
        assert all(c.bound(f"web{number}") == "n2" for number in range(20))
        assert left(c) == 100, "the first deletions are on their way"
        await c.advance(10)
        assert left(c) == 0
        assert c.bound("high") == "n1"


async def test_a_pod_stays_out_of_the_queue_until_its_victims_are_gone() -> None:
    slow = Rule(Fault(delay_seconds=5), verb="delete", resource="pods", times=None)
    async with cluster(nodes=1, faults=Faults([slow])) as c:
        await fill(c)
        await c.create(high(cpu="3"))
        await c.settle()
        assert c.place("high") is Place.UNSCHEDULABLE

        # Somebody else goes: worth another attempt, were it not for the victims on their way.
        await c.delete("low0")
        await c.settle()
        assert c.place("high") is Place.GATED
        assert c.queued("high").gating_plugin == "DefaultPreemption"

        await c.advance(12)
        assert c.bound("high") == "n1"


async def test_a_last_victim_of_no_interest_to_the_rejecting_plugin_wakes_the_pod() -> None:
    async with cluster(nodes=1) as c:
        await create_classes(c)
        # The pod is rejected for its port. The more important victim, which has it, goes first.
        port = low("low-port").host_port(80).merge({"spec": {"priorityClassName": "high"}})
        await c.create(port, low("low-cpu", "3"))
        await c.settle()
        top = make_pod("top").req(cpu="4").host_port(80)
        await c.create(top.merge({"spec": {"priorityClassName": "top"}}))
        await c.advance(5)

        assert c.bound("top") == "n1"
        assert left(c) == 0


async def test_victims_that_could_not_be_deleted_are_tried_again() -> None:
    refused = Rule(
        Fault(answer=StatusError(403, "Forbidden", "not you")), verb="delete", resource="pods"
    )
    metrics = Metrics()
    async with cluster(nodes=1, faults=Faults([refused]), metrics=metrics) as c:
        await fill(c)
        await c.create(high(cpu="2"))
        await c.advance(5)

        assert c.bound("high") == "n1"
        assert left(c) == 2, "nobody was evicted in vain"
        assert metrics.preemption_goroutines_execution.value("error") == 1
        assert "ForceActivate" in [step.cause for step in c.story("high")]


async def test_a_watch_that_lags_does_not_cost_further_victims() -> None:
    late = Rule(Fault(event_delay_seconds=3), verb="watch", resource="pods", times=None)
    async with cluster(nodes=2, faults=Faults([late])) as c:
        await create_classes(c)
        await c.create(*(low(f"low{number}") for number in range(8)))
        await c.advance(60)
        await c.create(high("high0"), high("high1"))
        for _ in range(40):
            await c.advance(5)
            # Something happens all the time that may help a pod.
            await c.patch_node("n1", {"metadata": {"labels": {"at": str(c.clock.now())}}})

        assert c.bound("high0")
        assert c.bound("high1")
        assert left(c) == 6


@pytest.mark.parametrize("seed", range(5))
async def test_the_same_seed_makes_the_same_choices(seed: int) -> None:
    async def play() -> list[str]:
        async with cluster(nodes=5, seed=seed) as c:
            await fill(c, pods=20)
            await c.create(*(high(f"high{number}") for number in range(3)))
            await c.advance(5)
            return sorted(pod["metadata"]["name"] for pod in c.pods())

    assert await play() == await play()


async def delete(c: Cluster) -> None:
    await c.delete("high")


async def begin_to_delete(c: Cluster) -> None:
    await c.patch("high", {"metadata": {"finalizers": ["example.com/slow"]}})
    await c.delete("high")


async def bind_elsewhere(c: Cluster) -> None:
    await c.add_nodes([make_node("elsewhere").label(zone="far").taint("no", "one", "NoSchedule")])
    await c.bind("high", "elsewhere")


@pytest.mark.parametrize("lag_seconds", [0.0, 10.0])
@pytest.mark.parametrize("end", [delete, begin_to_delete, bind_elsewhere])
async def test_a_preemptor_that_is_gone_costs_no_victim(
    end: Callable[[Cluster], Awaitable[None]], lag_seconds: float
) -> None:
    faults = Faults()
    slow = FakePlugin("Slow", pre_filter=After(0, SUCCESS))
    async with cluster(nodes=1, plugins=[slow], kubelet=True, faults=faults) as c:
        await fill(c)
        slow.answers["pre_filter"] = After(5, SUCCESS)
        await c.create(high())
        await c.advance(1)
        if lag_seconds:
            faults.rules.append(
                Rule(Fault(event_delay_seconds=lag_seconds), "watch", "pods", times=None)
            )
            c.server.drop_watches()
        await end(c)
        await c.advance(30)
        assert left(c) == 4
        assert not [one for one in c.requests if one.verb == "delete" and "low" in one.path]


async def test_the_answer_to_the_nomination_tells_that_the_preemptor_is_pending() -> None:
    async with cluster(nodes=1, kubelet=True) as c:
        await fill(c)
        await c.create(high())
        await c.advance(10)
        assert c.bound("high")
        asked = [one for one in c.requests if one.path.partition("?")[0].endswith("/pods/high")]
        assert not [one for one in asked if one.verb == "get"]
        paths = [one.path for one in c.requests]
        nominated = paths.index("/api/v1/namespaces/default/pods/high/status")
        marked = next(index for index, path in enumerate(paths) if path.endswith("0/status"))
        assert nominated < marked


async def test_a_victim_event_names_its_preemptor() -> None:
    async with cluster(nodes=1, kubelet=True) as c:
        await fill(c)
        await c.create(high())
        await c.advance(5)
        events = c.server.store.collection(resources.EVENTS).entries.values()
        [preempted] = [one for one in map(decode, events) if one["reason"] == "Preempted"]
        assert preempted["related"]["name"] == "high"
        assert preempted["related"]["uid"] == c.uid("high")


def decode(entry: Entry) -> JsonObject:
    return entry.decode()
