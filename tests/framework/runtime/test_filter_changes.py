"""Verdicts that hang on the whole cluster and are kept, because the plugin says what changed."""

# mypy: disable-error-code="arg-type,list-item"
# Wrong types are what these tests are about.

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

from ksched.api.objects import Pod
from ksched.configuration.loading import load_config
from ksched.framework import (
    SKIP,
    SUCCESS,
    ChangedVerdicts,
    CycleState,
    FilterDependsOn,
    NodeRows,
    PodInfo,
    Scope,
    Verdicts,
    unschedulable,
)
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.scheduling.scheduling_cycle import Placed, Rejected
from ksched.testing import make_node, make_pod
from ksched.testing.builders import PodBuilder
from lab.decider import Decider

CLOSED = unschedulable("node(s) were closed")
CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint:
      enabled: [{name: Doors}]
"""


class Doors:
    """Rejects nodes that are closed at the moment, and remembers what it was asked."""

    name: ClassVar[str] = "Doors"

    def __init__(self) -> None:
        self.filter_depends_on = FilterDependsOn(Scope.CLUSTER, changes=self._changes)
        self.closed: set[str] = set()
        self.answer: Any = None
        self.mark = 0
        self.changed: list[int] | None = None
        self.asked: list[list[str]] = []
        self.marks: list[object] = []

    def close(self, *names: str, rows: list[int] | None) -> None:
        self.closed = set(names)
        self.mark += 1
        self.changed = rows

    def _changes(self, state: CycleState, pod: PodInfo, mark: object) -> Any:
        self.marks.append(mark)
        if self.answer is not None:
            return self.answer
        if mark == self.mark:
            return self.mark, np.zeros(0, np.intp)
        rows = self.changed if mark == self.mark - 1 else None
        return self.mark, None if rows is None else np.array(rows, np.intp)

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Verdicts:
        self.asked.append(nodes.names)
        if "raise" in self.closed:
            raise RuntimeError("stuck door")
        closed = np.array([name in self.closed for name in nodes.names])
        return Verdicts.rejecting(closed, CLOSED)


@pytest.fixture
def doors() -> Doors:
    return Doors()


@pytest.fixture
def decider(doors: Doors) -> Decider:
    decider = Decider(load_config(CONFIG), registry={"Doors": lambda args, handle: doors})
    decider.set_cluster(make_node(f"n{number}").obj() for number in range(4))
    return decider


POD = make_pod("p").obj()


async def _feasible(decider: Decider, pod: Pod = POD) -> set[str]:
    return set((await decider.decide(pod)).feasible)


async def test_all_nodes_are_asked_about_once(decider: Decider, doors: Doors) -> None:
    doors.close("n1", rows=None)

    assert await _feasible(decider) == {"n0", "n2", "n3"}
    assert await _feasible(decider) == {"n0", "n2", "n3"}
    assert doors.asked == [["n0", "n1", "n2", "n3"]]
    assert doors.marks == [None, 1]


async def test_named_rows_are_asked_about_again(decider: Decider, doors: Doors) -> None:
    await _feasible(decider)
    doors.close("n2", "n3", rows=[2])

    # The plugin does not name n3, so its old verdict stands.
    assert await _feasible(decider) == {"n0", "n1", "n3"}
    assert doors.asked[1:] == [["n2"]]


async def test_a_plugin_may_take_everything_back(decider: Decider, doors: Doors) -> None:
    await _feasible(decider)
    doors.close("n2", rows=None)

    assert await _feasible(decider) == {"n0", "n1", "n3"}
    assert doors.asked[1:] == [["n0", "n1", "n2", "n3"]]


async def test_changed_nodes_are_asked_about_in_any_case(decider: Decider, doors: Doors) -> None:
    await _feasible(decider)
    decider.cache.add_node(make_node("n1").label(zone="a").obj())
    decider.cache.add_node(make_node("n4").obj())
    doors.close("n1", "n4", rows=[])

    assert await _feasible(decider) == {"n0", "n2", "n3"}
    assert doors.asked[1:] == [["n1", "n4"]]


async def test_rows_that_a_failed_attempt_did_not_ask_about_are_not_lost(
    decider: Decider, doors: Doors
) -> None:
    await _feasible(decider)
    doors.close("raise", rows=[2])
    assert "stuck door" in (await decider.decide(POD)).message

    doors.closed = {"n2"}
    assert await _feasible(decider) == {"n0", "n1", "n3"}
    assert doors.marks[1:] == [0, 0], "the mark of a failed attempt does not count"


async def test_answers_that_a_plugin_has_at_hand_are_not_asked_for(
    decider: Decider, doors: Doors
) -> None:
    await _feasible(decider)
    doors.answer = (7, ChangedVerdicts([(np.array([1, 2]), CLOSED), (np.array([2]), SUCCESS)]))

    assert await _feasible(decider) == {"n0", "n2", "n3"}
    assert doors.asked[1:] == []


async def test_answers_at_hand_hold_for_many_nodes_and_beside_other_plugins(doors: Doors) -> None:
    decider = Decider(load_config(CONFIG), registry={"Doors": lambda args, handle: doors})
    decider.set_cluster(
        (make_node(f"n{n}").unschedulable() if n % 7 == 0 else make_node(f"n{n}")).obj()
        for n in range(100)
    )
    rows = decider.cache.snapshot.table.rows
    open_nodes = {f"n{n}" for n in range(100) if n % 7}
    assert await _feasible(decider) == open_nodes
    for closed in (50, 80, 30):
        names = [f"n{n}" for n in range(closed)]
        others = [f"n{n}" for n in range(closed, 100)]
        doors.mark += 1
        doors.answer = (
            doors.mark,
            ChangedVerdicts(
                [
                    (np.array([rows[name] for name in names]), CLOSED),
                    (np.array([rows[name] for name in others]), SUCCESS),
                ]
            ),
        )
        assert await _feasible(decider) == open_nodes.intersection(others)


async def test_nodes_of_one_piece_may_have_had_different_answers(doors: Doors) -> None:
    decider = Decider(load_config(CONFIG), registry={"Doors": lambda args, handle: doors})
    decider.set_cluster(make_node(f"n{n}").obj() for n in range(60))
    doors.close(*(f"n{n}" for n in range(20)), rows=None)
    assert len(await _feasible(decider)) == 40

    doors.answer = (7, ChangedVerdicts([(np.arange(60), CLOSED)]))
    assert await _feasible(decider) == set()
    doors.answer = (8, ChangedVerdicts([(np.arange(30), SUCCESS)]))
    assert await _feasible(decider) == {f"n{n}" for n in range(30)}


@pytest.mark.parametrize(
    "nonsense",
    [
        pytest.param(ChangedVerdicts([([1], CLOSED)]), id="rows in a list"),
        pytest.param(ChangedVerdicts([(np.array([4]), CLOSED)]), id="a row past the end"),
        pytest.param(ChangedVerdicts([(np.array([-1]), CLOSED)]), id="a row before the first"),
        pytest.param(ChangedVerdicts([(np.array([1.5]), CLOSED)]), id="half a row"),
        pytest.param(ChangedVerdicts([(np.array([1]), "no")]), id="no status"),
        pytest.param(ChangedVerdicts([(np.array([1]), [])]), id="a list"),
        pytest.param(ChangedVerdicts(None), id="no pieces"),
        pytest.param([1, 2], id="a list of rows"),
        pytest.param(np.array([7]), id="a row that is not there"),
    ],
)
async def test_nonsense_about_changes_fails_the_attempt_only(
    decider: Decider, doors: Doors, nonsense: object
) -> None:
    await _feasible(decider)
    doors.answer = (7, nonsense)
    assert 'running "Doors" filter plugin: returned ' in (await decider.decide(POD)).message

    doors.answer = None
    assert await _feasible(decider) == {"n0", "n1", "n2", "n3"}


async def test_an_answer_that_is_no_verdict_fails_the_attempt(
    decider: Decider, doors: Doors
) -> None:
    await _feasible(decider)
    doors.answer = (7, ChangedVerdicts([(np.array([1]), SKIP)]))

    assert 'running "Doors" filter plugin' in (await decider.decide(POD)).message


async def test_nonsense_fails_the_attempt(decider: Decider, doors: Doors) -> None:
    doors.answer = "nothing new"
    message = (await decider.decide(POD)).message

    assert "returned 'nothing new', wanted a mark and rows" in message


# -- the plugins that do so ----------------------------------------------------------------------

WEB = {"app": "web"}


@pytest.fixture
def zones() -> Decider:
    decider = Decider()
    decider.set_cluster(
        make_node(f"n{number}").label(zone=f"z{number % 4}").capacity(cpu="64").obj()
        for number in range(200)
    )
    return decider


async def _attempt(decider: Decider, pod: PodBuilder, uid: str) -> Placed | Rejected:
    queued = QueuedPodInfo(decider.cache.pod_info(pod.uid(uid).obj()), timestamp=0.0)
    return await decider.cycle.run(queued)


@pytest.mark.parametrize(
    "stuck",
    [
        pytest.param(make_pod("stuck").label(WEB).spread("rack", WEB), id="spread"),
        pytest.param(make_pod("stuck").pod_affinity("zone", {"app": "none"}), id="affinity"),
        pytest.param(make_pod("stuck").pod_anti_affinity("zone", WEB), id="anti-affinity"),
    ],
)
async def test_a_backlog_that_fits_nowhere_costs_no_row(zones: Decider, stuck: PodBuilder) -> None:
    for number in range(4):
        web = make_pod("web").label(WEB).spread("zone", WEB)
        assert isinstance(await _attempt(zones, web, f"web-{number}"), Placed)
    work = zones.profiles["default-scheduler"].pipeline.work
    first = await _attempt(zones, stuck, "stuck-0")
    assert isinstance(first, Rejected)

    for number in range(1, 20):
        # Placements that do not concern it raise no questions, except about their own row.
        await _attempt(zones, make_pod("other"), f"other-{number}")
        asked = work.rows
        again = await _attempt(zones, stuck, f"stuck-{number}")
        assert isinstance(again, Rejected)
        assert again.message == first.message
        assert work.rows - asked <= 10


async def test_a_pod_apart_from_its_twins_asks_about_the_node_of_the_last_one(
    zones: Decider,
) -> None:
    lonely = make_pod("lonely").label(WEB).pod_anti_affinity("kubernetes.io/hostname", WEB)
    work = zones.profiles["default-scheduler"].pipeline.work
    nodes = set()
    for number in range(200):
        before = work.rows_filtered
        placed = await _attempt(zones, lonely, f"lonely-{number}")
        assert isinstance(placed, Placed)
        nodes.add(placed.node_name)
        # The first pods find the rules new: nobody had any before.
        assert number < 2 or work.rows_filtered - before <= 10
    assert len(nodes) == 200
    assert isinstance(await _attempt(zones, lonely, "one-too-many"), Rejected)
