"""Faults of the scheduler itself, set off by one object: that object says so, the others go on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ksched.cache.cache import SchedulerCache
from ksched.cache.node_info import NodeInfo
from ksched.cache.node_table import NodeTable
from ksched.cache.storage.volumes import Volumes
from ksched.client.recorder import ProfileRecorder
from ksched.daemon.observation import gauges
from ksched.errors import InvariantBroken
from ksched.framework import SUCCESS
from ksched.metrics import Metrics
from ksched.queue.places import Place
from ksched.scheduling import binding_cycle, pod_status, scheduling_cycle
from ksched.scheduling.binding_cycle import BindingCycle
from ksched.scheduling.preemption_executor import PreemptionExecutor
from ksched.scheduling.scheduling_cycle import SchedulingCycle
from ksched.testing import Checkers, FakePlugin, cluster, make_node, make_pod
from ksched.testing.storage_builders import make_volume
from ksched.unexpected_errors import MAX_TEXT, UnexpectedErrors

VICTIM = make_pod("victim").req(cpu="1")
NEXT = make_pod("next").req(cpu="1")
LARGEST = 2**63 - 1
PRIORITY = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "high"},
    "value": 100,
}
HIGH = {"spec": {"priorityClassName": "high"}}


def break_for_victim(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *, after: bool = False
) -> list[str]:
    """Make a function raise when it is about the victim; returns what it was called for."""
    original: Callable[..., Any] = getattr(owner, name)
    calls: list[str] = []

    def faulty(*args: Any) -> Any:
        if any("victim" in repr(arg) for arg in args):
            calls.append(name)
            if after:
                return _and_fail(original(*args))
            raise OverflowError("too large")
        return original(*args)

    monkeypatch.setattr(owner, name, faulty)
    return calls


async def _and_fail(work: Any) -> Any:
    await work
    raise OverflowError("too large")


def tracebacks(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.exc_info]


# -- attempts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("owner", "name", "activity"),
    [
        pytest.param(
            SchedulingCycle,
            "find_nodes",
            "attempt",
            id="before assuming",
        ),
        pytest.param(scheduling_cycle, "run_reserve", "attempt", id="after assuming"),
        pytest.param(scheduling_cycle, "run_permit", "attempt", id="after reserving"),
        pytest.param(binding_cycle, "run_pre_bind", "binding", id="before binding"),
        pytest.param(BindingCycle, "_run_bind_plugins", "binding", id="binding"),
    ],
)
async def test_a_fault_fails_one_attempt_and_gives_everything_back(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    owner: Any,
    name: str,
    activity: str,
) -> None:
    metrics = Metrics()
    books = FakePlugin("Books", reserve=SUCCESS, permit=SUCCESS, pre_bind=SUCCESS)
    async with cluster(nodes=2, plugins=[books], metrics=metrics) as c:
        checkers = Checkers(c)
        calls = break_for_victim(monkeypatch, owner, name)
        await c.create(VICTIM, NEXT)
        await c.settle()
        await c.advance(200)

        assert c.bound("next") is not None
        assert c.bound("victim") is None
        condition = c.condition("victim")
        assert condition is not None
        assert condition["reason"] == "SchedulerError"
        assert c.message("victim") == "unexpected error: OverflowError: too large"
        assert c.place("victim") is Place.BACKOFF
        assert len(calls) > 5
        assert metrics.unexpected_errors.value(activity) == len(calls)
        assert tracebacks(caplog) == ["unexpected error"], "of many attempts"
        checkers.check_books()
        monkeypatch.undo()
        await c.advance(20)
        assert c.bound("victim") is not None


async def test_a_fault_after_the_bind_was_sent_does_not_bind_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with cluster(nodes=2) as c:
        checkers = Checkers(c)
        calls = break_for_victim(monkeypatch, BindingCycle, "_run_bind_plugins", after=True)
        await c.create(VICTIM, NEXT)
        await c.settle()

        assert calls == ["_run_bind_plugins"]
        assert c.bound("victim") is not None
        assert c.bound("next") is not None
        checkers.check_books()


async def test_a_fault_after_the_bind_leaves_the_pod_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster(nodes=2) as c:
        calls = break_for_victim(monkeypatch, BindingCycle, "_bound", after=True)
        await c.create(VICTIM, NEXT)
        await c.settle()

        assert calls == ["_bound"]
        assert c.bound("victim") is not None


async def test_a_broken_invariant_still_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> None:
        raise InvariantBroken("two and two are five")

    monkeypatch.setattr(SchedulingCycle, "find_nodes", broken)

    async def run() -> None:
        async with cluster(nodes=2) as c:
            await c.create(NEXT)
            await c.settle()

    with pytest.raises(ExceptionGroup) as raised:
        await run()
    assert raised.value.split(InvariantBroken)[1] is None


async def test_a_preemption_that_breaks_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = Metrics()
    async with cluster(nodes=[make_node("n1").capacity(cpu="2")], metrics=metrics) as c:
        await c.create(PRIORITY)
        at_once = {"spec": {"terminationGracePeriodSeconds": 0}}
        await c.create(make_pod("low").req(cpu="2").merge(at_once))
        await c.settle()
        broken = pytest.MonkeyPatch()
        broken.setattr(PreemptionExecutor, "_evict", _fail)
        await c.create(make_pod("high").req(cpu="2").merge(HIGH))
        await c.settle()
        assert metrics.unexpected_errors.value("preemption") >= 1
        broken.undo()
        await c.advance(120)

        assert c.bound("high") == "n1"


async def _fail(*args: Any) -> Any:
    raise OverflowError("too large")


@pytest.mark.parametrize(
    ("owner", "name", "activity"),
    [
        pytest.param(pod_status, "patch_body", "status update", id="condition"),
        pytest.param(ProfileRecorder, "event", "event", id="event"),
    ],
)
async def test_what_cannot_be_said_of_a_pod_concerns_no_other(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, activity: str
) -> None:
    metrics = Metrics()
    async with cluster(nodes=1, metrics=metrics) as c:
        calls = break_for_victim(monkeypatch, owner, name)
        await c.create(VICTIM.req(cpu="100"), NEXT.req(cpu="100"))
        await c.settle()

        assert c.message("next").startswith("0/1 nodes are available: 1 Insufficient cpu.")
        assert c.place("victim") is Place.UNSCHEDULABLE
        assert len(calls) == 1
        assert metrics.unexpected_errors.value(activity) == 1


# -- watched objects ------------------------------------------------------------------------------


async def test_a_pod_that_cannot_be_handled_concerns_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = Metrics()
    async with cluster(nodes=2, metrics=metrics) as c:
        checkers = Checkers(c)
        calls = break_for_victim(monkeypatch, SchedulerCache, "pod_info")
        await c.create(VICTIM, NEXT)
        await c.settle()
        assert c.bound("next") is not None
        assert c.bound("victim") is None
        assert len(calls) == 1
        assert metrics.unexpected_errors.value("watch Pod") == 1
        [record] = [record for record in caplog.records if record.exc_info]
        assert record.__dict__["object"] == "default/victim"

        monkeypatch.undo()
        await c.patch("victim", {"metadata": {"labels": {"changed": "yes"}}})
        await c.settle()

        assert c.bound("victim") is not None
        await c.delete("victim")
        await c.settle()
        checkers.check_books()


async def test_a_node_that_cannot_be_handled_concerns_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    metrics = Metrics()
    async with cluster(metrics=metrics) as c:
        break_for_victim(monkeypatch, NodeInfo, "set_node")
        await c.add_nodes([make_node("victim"), make_node("n1")])
        await c.create(NEXT)
        await c.settle()
        assert c.bound("next") == "n1"
        assert metrics.unexpected_errors.value("watch Node") == 1

        monkeypatch.undo()
        await c.patch_node("victim", {"metadata": {"labels": {"changed": "yes"}}})
        await c.create(make_pod("there").req(cpu="1").node_selector(changed="yes"))
        await c.settle()

        assert c.bound("there") == "victim"


async def test_a_volume_that_cannot_be_handled_concerns_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    metrics = Metrics()
    break_for_victim(monkeypatch, Volumes, "_file")
    async with cluster(nodes=1, metrics=metrics) as c:
        await c.create(make_volume("victim"), make_volume("other"), NEXT)
        await c.settle()

        assert c.bound("next") is not None
        assert metrics.unexpected_errors.value("watch PersistentVolume") == 1


# -- publishing -----------------------------------------------------------------------------------


def same(table: NodeTable, other: NodeTable) -> bool:
    """Whether two tables say the same of every node."""
    assert table.rows.keys() == other.rows.keys()
    mine = np.array([table.rows[name] for name in table.rows], np.intp)
    others = np.array([other.rows[name] for name in table.rows], np.intp)
    arrays = ("allocatable", "requested", "non_zero", "pod_count", "allowed_pods", "unschedulable")
    return all(
        np.array_equal(
            np.array(getattr(table, name))[..., mine], np.array(getattr(other, name))[..., others]
        )
        for name in arrays
    ) and {name: state.num_nodes for name, state in table.images.items()} == {
        name: state.num_nodes for name, state in other.images.items()
    }


@pytest.mark.parametrize("name", ["_write_node", "_write_sums"])
@pytest.mark.parametrize("is_known", [False, True])
def test_a_node_that_cannot_be_published_is_set_apart(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str, is_known: bool
) -> None:
    cache = SchedulerCache(lambda: 0.0)
    victim = make_node("victim").image("app:1", 1 << 30).label(zone="a")
    nodes = [make_node(f"n{number}").image("app:1", 1 << 30) for number in range(3)]
    for node in [victim, *nodes] if is_known else nodes:
        cache.add_node(node.obj())
    cache.update_snapshot()
    calls = break_for_victim(monkeypatch, NodeTable, name)
    cache.add_node(victim.capacity(cpu="7").obj())
    cache.add_pod(cache.pod_info(NEXT.node("n1").obj()))

    table = cache.update_snapshot().table

    assert set(table.rows) == {"n0", "n1", "n2"}
    assert cache.statistics().nodes_set_apart == 1
    assert sorted(cache.snapshot.order.tolist()) == [0, 1, 2]
    cache.add_pod(cache.pod_info(VICTIM.node("victim").obj()))
    cache.update_snapshot()
    assert len(calls) == 1, "its object is the same"
    assert tracebacks(caplog) == ["node excluded, it cannot be published"]

    monkeypatch.undo()
    without = NodeTable.of([info.clone() for info in table.infos], table.axis)
    assert same(table, without)
    cache.add_node(victim.capacity(cpu="8").obj())
    table = cache.update_snapshot().table
    assert cache.statistics().nodes_set_apart == 0
    assert table.requested[0][table.rows["victim"]] == 1000, "pods that came meanwhile count"
    assert same(table, NodeTable.of([info.clone() for info in table.infos], table.axis))


def test_a_node_set_apart_is_forgotten_with_its_object(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = SchedulerCache(lambda: 0.0)
    break_for_victim(monkeypatch, NodeTable, "_write_node")
    cache.add_node(make_node("victim").obj())
    cache.update_snapshot()
    cache.remove_node("victim")
    cache.update_snapshot()

    assert cache.statistics().nodes_set_apart == 0


async def test_nodes_set_apart_are_a_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    break_for_victim(monkeypatch, NodeTable, "_write_node")
    async with cluster(nodes=[make_node("victim"), make_node("n1")]) as c:
        await c.create(NEXT)
        await c.settle()

        assert c.bound("next") == "n1"
        families = {family.name: family for family in gauges(c.scheduler)}
        [sample] = families["scheduler_nodes_set_apart"].samples
        assert sample.value == 1


# -- what set it off ------------------------------------------------------------------------------


async def test_the_largest_request_beside_another_pod_stops_nobody() -> None:
    async with cluster(nodes=2) as c:
        checkers = Checkers(c)
        greedy = make_pod("greedy").req(memory=LARGEST)
        await c.create(NEXT.node("n1"), greedy.node("n1"))
        await c.create(make_pod("web").req(cpu="1", memory="1Gi"))
        await c.settle()
        assert c.bound("web") == "n2"

        await c.delete("greedy", grace_seconds=0)
        await c.create(
            make_pod("again")
            .req(cpu="1", memory="1Gi")
            .node_selector(**{"kubernetes.io/hostname": "n1"})
        )
        await c.settle()

        assert c.bound("again") == "n1"
        checkers.check_books()


def test_tracebacks_and_texts_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    unexpected_errors = UnexpectedErrors(metrics)
    texts = set()
    with caplog.at_level(logging.ERROR):
        for number in range(300):
            with unexpected_errors.contain(f"activity {number}", NEXT.obj().metadata) as problem:
                raise ValueError("x" * 10_000)
            texts.add(problem.text)

    assert len(tracebacks(caplog)) == 100
    assert len(caplog.records) == 300
    assert max(map(len, texts)) < MAX_TEXT + 100
