"""Plugins with one fault each, and the report that names it.

The whole kit runs on each of them:
``ksched.testing.conformance.contract``,
``ksched.testing.conformance.declarations``,
``ksched.testing.conformance.determinism``,
``ksched.testing.conformance.dry_runs``,
``ksched.testing.conformance.life``,
``ksched.testing.conformance.placements``,
``ksched.testing.conformance.purity``,
``ksched.testing.conformance.questions``,
``ksched.testing.conformance.reservations``.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any, ClassVar

import pytest

from ksched.framework import (
    SUCCESS,
    CycleState,
    FilterDependsOn,
    Handle,
    NodeInfo,
    NodeRows,
    PodInfo,
    Scope,
    ScoreDependsOn,
    Snapshot,
    Status,
    Verdicts,
    pending,
    unschedulable,
)
from ksched.testing import NonConforming, check_plugin
from ksched.testing.conformance import costs
from ksched.testing.conformance.report import Finding, Report


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large cluster takes a second or two; ``test_kit`` measures one."""
    monkeypatch.setattr(costs, "MANY", 500)


class _Plugin:
    name: ClassVar[str]

    def __init__(self, args: Any, handle: Handle) -> None:
        self.handle = handle


class ImpureFilter(_Plugin):
    """Marks the nodes that it has seen, on the node."""

    name = "ImpureFilter"

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        node.labels["example.com/seen"] = pod.name
        return SUCCESS


class ImpureColumns(_Plugin):
    """Adds to an array that is the node table itself."""

    name = "ImpureColumns"

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Verdicts:
        used = nodes.requested("memory")
        used += pod.template.requests.get("memory", 0)
        return Verdicts.rejecting(used > nodes.allocatable("memory"), unschedulable("full"))


class ImpureState(_Plugin):
    """Writes into the cycle state at Filter, where it is shared."""

    name = "ImpureState"

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Status:
        state.write(self.name, [])
        return SUCCESS

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        state.read(self.name, list).append(node.name)
        return SUCCESS


class HiddenState(_Plugin):
    """Rejects every seventh question."""

    name = "HiddenState"

    def __init__(self, args: Any, handle: Handle) -> None:
        self.asked = 0

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        self.asked += 1
        return SUCCESS if self.asked % 7 else unschedulable("the seventh")


class Dice(_Plugin):
    name = "Dice"

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return random.randrange(100)


class FalseScope(_Plugin):
    """Counts pods, and says that it reads node objects only."""

    name = "FalseScope"
    score_depends_on = ScoreDependsOn(Scope.NODE, reads_inter_pod_fields=False)

    def score_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Any:
        return nodes.pod_count % 100


class FalseEpoch(_Plugin):
    """Says that its verdicts never change. Only attempts one after the other show that they do.

    No node has the label before the running cluster is touched: it is in no text of this module.
    """

    name = "FalseEpoch"
    filter_depends_on = FilterDependsOn(Scope.CLUSTER, epoch=lambda state, pod: 0)

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Verdicts:
        label = nodes.label("".join(("touc", "hed")))
        return Verdicts.rejecting(label.test(lambda value: value is None), unschedulable("new"))


class SlowScore(_Plugin):
    """150 million steps for 5,000 nodes: far beyond the budget on any machine."""

    name = "SlowScore"

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return sum(range(30_000)) % 100


class Swallows(_Plugin):
    name = "Swallows"

    async def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        try:
            await asyncio.sleep(3)
        except asyncio.CancelledError:
            pass
        return SUCCESS


class Stubborn(_Plugin):
    """Goes on whatever happens."""

    name = "Stubborn"

    async def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        while True:
            try:
                await asyncio.sleep(3)
            except asyncio.CancelledError:
                continue


class LeavesTasks(_Plugin):
    name = "LeavesTasks"

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        self.heartbeat = asyncio.create_task(asyncio.Event().wait())
        await asyncio.sleep(1)
        self.heartbeat.cancel()
        return SUCCESS


class Leaks(_Plugin):
    """Gives back only what its reserve finished."""

    name = "Leaks"

    def __init__(self, args: Any, handle: Handle) -> None:
        self.reserved: dict[str, int] = {}
        self.finished: set[str] = set()

    async def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        self.reserved[node_name] = self.reserved.get(node_name, 0) + 1
        await asyncio.sleep(1)
        self.finished.add(pod.uid)
        return SUCCESS

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        if pod.uid in self.finished:
            self.finished.remove(pod.uid)
            self.reserved[node_name] -= 1
            if not self.reserved[node_name]:
                del self.reserved[node_name]


class UnreserveRaises(_Plugin):
    name = "UnreserveRaises"

    def __init__(self, args: Any, handle: Handle) -> None:
        self.reserved: dict[str, str] = {}

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        self.reserved[pod.uid] = node_name
        return SUCCESS

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        del self.reserved[pod.uid]


class CountsAtPreFilter(_Plugin):
    """Three pods per node, counted before a dry run takes pods away."""

    name = "CountsAtPreFilter"

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Status:
        counts = {info.name: len(info.pods) for info in snapshot.table.infos}
        state.write(self.name, counts)
        return SUCCESS

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        count = state.read(self.name, dict)[node.name]
        return unschedulable("three pods") if count >= 3 else SUCCESS


class OutOfRange(_Plugin):
    name = "OutOfRange"

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return 1000


class Raises(_Plugin):
    name = "Raises"

    def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        raise KeyError(node_name)


class HotLoop(_Plugin):
    """Wakes a pod that it rejects again."""

    name = "HotLoop"

    def events_to_register(self) -> list[Any]:
        return []

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Status:
        if pod.name != "p1":
            return SUCCESS
        loop = asyncio.get_running_loop()
        loop.call_later(0.05, self.handle.activate, [pod])
        return pending("later")


def _found(plugin: type[_Plugin], **options: Any) -> tuple[Report, Finding]:
    with pytest.raises(NonConforming) as raised:
        check_plugin(plugin, **options)
    report = raised.value.report
    assert len(report.findings) == 1, report.to_text()
    return report, report.findings[0]


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    ("plugin", "fault", "method", "said"),
    [
        (ImpureFilter, "impure", "filter", "changed the object of node n"),
        (ImpureColumns, "impure", "filter_nodes", 'changed the column requested("memory")'),
        (ImpureState, "impure", "filter", 'changed "ImpureState" of the cycle state'),
        (HiddenState, "hidden state", "filter", "which questions had been asked before"),
        (Dice, "non-deterministic", "score", "Two instances"),
        (FalseScope, "false declaration", "score_nodes", "scope=Scope.NODE is not true"),
        (FalseEpoch, "false declaration", "filter_nodes", "epoch is not true"),
        (Swallows, "swallowed cancellation", "permit", "answered Success as if nothing"),
        (Stubborn, "swallowed cancellation", "permit", "went on for more than 1 s"),
        (LeavesTasks, "tasks left behind", "pre_bind", "left tasks behind: Event.wait"),
        (Leaks, "leaked reservation", "reserve", "cancelled at await 1, and unreserve"),
        (UnreserveRaises, "unreserve raises", "unreserve", "Called before any reserve"),
        (CountsAtPreFilter, "dry run differs", "filter", "in a dry run"),
        (OutOfRange, "broken contract", "score", "invalid score 1000"),
        (Raises, "broken contract", "pre_bind", "KeyError"),
        (HotLoop, "hot loop", "attempts", "in about a minute"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_planted_fault_is_named_and_nothing_else_is(
    plugin: type[_Plugin], fault: str, method: str, said: str
) -> None:
    report, finding = _found(plugin, seed=3, nodes=12)
    assert (finding.plugin, finding.fault, finding.method) == (plugin.name, fault, method)
    assert said in finding.text
    assert finding.advice
    text = report.to_text()
    assert f'1. {fault}: plugin "{plugin.name}", {method}' in text
    assert "--seed 3 --nodes 12" in text


@pytest.mark.usefixtures("few")
def test_both_answers_and_where_they_were_given_are_told() -> None:
    _, finding = _found(FalseScope, nodes=12)
    assert finding.pod.startswith("default/p")
    assert finding.node.startswith("n")
    assert [answer.split()[0] for answer in finding.answers] == ["cached", "recomputed"]


def test_a_slow_score_is_named_and_told_what_to_do() -> None:
    report, finding = _found(SlowScore)
    assert (finding.fault, finding.method) == ("too slow", "score")
    assert "ms of CPU for every pod" in finding.text
    assert "score_nodes(state, pod, nodes)" in finding.advice
    assert "score_depends_on" in finding.advice
    assert [cost.nodes for cost in report.costs] == [100, 5000]
    assert report.costs[1].estimated
    assert report.costs[1].next_ms == pytest.approx(50 * report.costs[0].next_ms, rel=0.01)
    assert "so slow that the other checks were made with 5 nodes" in report.to_text()


class Misspelt(_Plugin):
    name = "Misspelt"

    def filter_node(self) -> None: ...

    async def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return 1


def test_a_plugin_that_no_profile_takes() -> None:
    _, finding = _found(Misspelt)
    assert (finding.check, finding.fault) == ("start", "cannot be built")
    assert any("score must not be async" in problem for problem in finding.answers)
    assert any("filter_node, did you mean filter_nodes?" in text for text in finding.answers)


class CannotStart(_Plugin):
    name = "CannotStart"

    async def start(self, handle: Handle) -> None:
        raise ValueError("no such service")

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return 1


def test_a_plugin_that_cannot_start() -> None:
    _, finding = _found(CannotStart)
    assert (finding.check, finding.fault) == ("start", "cannot be built")
    assert "ValueError: no such service" in finding.answers[0]
