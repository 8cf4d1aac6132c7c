"""Marks and objects of groups as large as an API server admits, and very many of them.

Covers ``ksched.scheduling.gate_reports`` and ``ksched.queue.activations`` too.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping
from types import FrameType
from typing import Any

import msgspec
import pytest

from ksched.cache.cache import SchedulerCache
from ksched.cache.listers import Listers
from ksched.cache.pod_info import PodInfo
from ksched.clock import cpu_seconds
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.groups.dialects import annotations as own
from ksched.groups.dialects import koordinator, scheduler_plugins, volcano
from ksched.groups.dialects.annotations import MINIMUM, NAME, TOPOLOGY, Annotations
from ksched.groups.group import Group, GroupKey, Mark, Member
from ksched.groups.registry import Groups
from ksched.queue.activations import Activations
from ksched.queue.pending_pods import PendingPods
from ksched.scheduling.gate_reports import QUIET_SECONDS, GateReports
from ksched.scheduling.group_order import RANKS, in_rank_order
from ksched.scheduling.pod_status import DesiredStatus
from ksched.testing import PodBuilder, cluster, make_node, make_pod
from ksched.testing.virtual_time import VirtualClock
from ksched.tuning import PODS_PER_SLICE
from lab.gangs import configured, priority_class


def lines_run(work: Callable[[], object]) -> int:
    """How many lines of Python a call runs: a measure of work that no busy machine changes."""
    count = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(None)
    return count


def member(number: int, minimum: str, group: str = "g") -> PodBuilder:
    marks = {NAME: group, MINIMUM: minimum}
    return make_pod(f"p{number}").uid(f"p{number}").annotation(marks)


class Books:
    """A registry of groups, and what it called."""

    def __init__(self) -> None:
        self.cache = SchedulerCache(lambda: 0.0)
        self.groups = Groups(Listers())
        self.groups.read(Annotations("GangScheduling"), "default-scheduler")
        self.woken: list[str] = []
        self.regated: list[str] = []
        self.groups.wake = lambda pods: self.woken.extend(pod.name for pod in pods)
        self.groups.regated = lambda group: self.regated.append(group.key.name)

    def pending(self, pod: PodBuilder) -> PodInfo:
        info = self.cache.pod_info(pod.obj())
        self.groups.pending(info, is_ours=True)
        return info


# -- texts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "texts",
    [
        pytest.param(("1" * 250_000, None, None), id="minimum"),
        pytest.param(("2", "1" * 250_000 + "x", None), id="timeout"),
        pytest.param(("2", None, "a," * 125_000 + "a"), id="topology of many keys"),
        pytest.param(("2", None, "a" * 250_000), id="topology of one key"),
    ],
)
@pytest.mark.parametrize("dialect", [own, koordinator])
def test_long_annotations_are_refused_at_once_and_not_kept(
    dialect: Any, texts: tuple[str | None, str | None, str | None]
) -> None:
    began, kept = cpu_seconds(), dialect._read.cache_info().currsize
    terms = dialect.read_terms(*texts)
    assert "more than 4096 characters" in terms.problem
    assert dialect.read_terms(*texts) is terms
    assert dialect._read.cache_info().currsize == kept
    assert cpu_seconds() - began < 0.1


def test_a_topology_of_many_levels_is_refused() -> None:
    """The domains of every number of levels are formed: 1,000 levels took 8 s on 500 nodes."""
    keys = [f"k{number}:preferred" for number in range(own.MOST_LEVELS + 1)]
    assert not own.read_terms("2", None, ",".join(keys[1:])).problem
    found = own.read_terms("2", None, ",".join(keys))
    assert found.problem == f"annotation {TOPOLOGY}: got 9 keys, wanted 8 at most"


def test_the_longest_name_of_a_group_is_cut_in_conditions() -> None:
    key = GroupKey("volcano", "default", "g" * 250_000)
    assert len(Group(key, "Volcano").why_gated()) < 400


def test_a_rank_of_thousands_of_digits_is_none() -> None:
    cache = SchedulerCache(lambda: 0.0)

    def queued(number: int, rank: str) -> QueuedPodInfo:
        pod = member(number, "2").annotation({RANKS[0]: rank})
        return QueuedPodInfo(cache.pod_info(pod.obj()), 0.0)

    found = in_rank_order([queued(0, "1" * 5000), queued(1, "7")])
    assert [one.pod.name for one in found] == ["p1", "p0"]


# -- objects of groups ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        pytest.param(
            {"minResources": {f"example.com/r{number}": "1" for number in range(20_000)}},
            "minResources: got 20000 names, wanted 128 at most",
            id="minResources",
        ),
        pytest.param(
            {"minMember": 20_000, "minTaskMember": {f"r{n}": 1 for n in range(20_000)}},
            "minTaskMember: got 20000 tasks, wanted 256 at most",
            id="minTaskMember",
        ),
        pytest.param({"minTaskMember": {f"r{n}": 0 for n in range(20_000)}}, "", id="of none"),
        pytest.param({"minResources": {"cpu": "1" * 1_000_000 + "e1.5"}}, "quantity", id="text"),
        pytest.param({"minResources": {"r" * 1_000_000: "x"}}, "minResources", id="long name"),
    ],
)
def test_large_maps_in_a_groups_object_are_its_problem(
    spec: Mapping[str, Any], problem: str
) -> None:
    data = {"metadata": {"name": "g"}, "spec": spec}
    found = msgspec.json.decode(msgspec.json.encode(data), type=volcano.PodGroup)
    began = cpu_seconds()
    terms = volcano.terms_of(found)
    assert cpu_seconds() - began < 0.2
    assert problem in terms.problem
    assert bool(problem) == bool(terms.problem)
    assert len(terms.problem) <= scheduler_plugins.MOST_CHARACTERS
    assert not terms.min_by_role


# -- many members, many groups --------------------------------------------------------------------


def test_members_that_all_want_other_terms_cost_what_there_are() -> None:
    def work(members: int) -> int:
        books = Books()
        pods = [member(number, str(10_000 + number)) for number in range(members)]
        infos = [books.cache.pod_info(pod.obj()) for pod in pods]

        def come() -> None:
            for one in infos:
                books.groups.pending(one, is_ours=True)

        return lines_run(come)

    assert work(800) < 6 * work(200)


def test_the_largest_terms_count_whoever_comes_or_goes() -> None:
    group = Group(GroupKey("annotations", "default", "g"), "GangScheduling")
    cache = SchedulerCache(lambda: 0.0)
    members = []
    for number, minimum in enumerate(("3", "7", "5", "7", "x")):
        pod = cache.pod_info(member(number, minimum).obj())
        terms = own.read_terms(minimum, None, None)
        members.append(Member(pod, Mark(group.key, terms=terms)))

    def least(*present: int) -> int | str:
        terms = group.terms
        assert terms is not None
        wanted = [members[one].mark.terms for one in present]
        assert terms in wanted
        return terms.problem or terms.minimum

    for one in members:
        group.count(one, one.state, 1)
    assert "got 'x'" in str(least(0, 1, 2, 3, 4))
    group.count(members[4], members[4].state, -1)
    assert least(0, 1, 2, 3) == 7
    group.count(members[1], members[1].state, -1)
    assert least(0, 2, 3) == 7
    group.count(members[3], members[3].state, -1)
    assert least(0, 2) == 5
    group.count(members[1], members[1].state, 1)
    assert least(0, 1, 2) == 7


def test_a_group_that_is_gated_for_another_reason_wakes_nobody() -> None:
    books = Books()
    for number in range(5):
        books.pending(member(number, "100"))
    before = len(books.regated)
    books.pending(member(0, "many").annotation({"changed": "1"}))
    assert books.woken == []
    assert books.regated[before:] == ["g"]


async def test_the_new_reason_is_written_all_the_same() -> None:
    async with cluster(1, config=configured("annotations")) as c:
        for number in range(3):
            await c.create(member(number, "100"))
        await c.advance(3 * QUIET_SECONDS)
        assert "minCount pods" in c.message("p2")
        await c.patch("p0", {"metadata": {"annotations": {MINIMUM: "many"}}})
        await c.advance(3 * QUIET_SECONDS)
        assert "got 'many'" in c.message("p2")
        await c.patch("p0", {"metadata": {"annotations": {MINIMUM: "3"}}})
        for number in (1, 2):
            await c.patch(f"p{number}", {"metadata": {"annotations": {MINIMUM: "3"}}})
        await c.advance(3 * QUIET_SECONDS)
        assert all(c.bound(f"p{number}") for number in range(3))


class WorkClock(VirtualClock):
    """Every look at it takes a while."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        self.seconds += 0.001
        return super().now() + self.seconds


class Statuses:
    """How many were set in one step of the event loop."""

    def __init__(self) -> None:
        self.longest = self.total = self._count = 0

    def set(self, pod: PodInfo, desired: DesiredStatus) -> None:
        if not self._count:
            asyncio.get_running_loop().call_soon(self._end_step)
        self._count += 1
        self.total += 1

    def _end_step(self) -> None:
        self.longest, self._count = max(self.longest, self._count), 0


async def test_many_small_groups_are_reported_in_slices_and_only_by_the_leader() -> None:
    books, pending, statuses = Books(), PendingPods(), Statuses()
    reports = GateReports(statuses, books.groups, pending, WorkClock())  # type: ignore[arg-type]
    for number in range(1000):
        info = books.pending(member(number, "2", f"g{number}"))
        pending.put(info)
        reports.gated(info)
    assert len(reports) == 0, "a standby replica keeps nothing of them"

    leading = asyncio.create_task(reports.run())
    await asyncio.sleep(10 * QUIET_SECONDS)
    leading.cancel()
    assert statuses.total == 1000
    assert statuses.longest < 20


async def test_thousands_are_activated_in_slices() -> None:
    activations, slices = Activations(), list[list[PodInfo]]()
    cache = SchedulerCache(lambda: 0.0)
    pods = [cache.pod_info(make_pod(f"p{number}").obj()) for number in range(1000)]

    def activated(some: Iterable[PodInfo]) -> None:
        slices.append(list(some))

    activations.subscribe(activated)
    activations.activate(pods[:3])
    assert slices == [pods[:3]]
    activations.activate(pods[3:])
    assert len(slices) == 2
    activations.activate(pods[:1])
    for _ in range(10):
        await asyncio.sleep(0)
    assert max(map(len, slices)) == PODS_PER_SLICE
    assert [pod for some in slices for pod in some] == [*pods, pods[0]]


async def test_a_group_with_a_topology_of_unknown_labels_is_placed() -> None:
    keys = ",".join(f"k{number}:preferred" for number in range(own.MOST_LEVELS))
    async with cluster([make_node("n1")], config=configured("annotations")) as c:
        for number in range(2):
            await c.create(member(number, "2").annotation({TOPOLOGY: keys}))
        await c.settle()
        assert c.bound("p0") == c.bound("p1") == "n1"


async def test_nominated_pods_that_ask_for_everything_keep_no_group_from_its_decision() -> None:
    """Whoever may write the status of pods can nominate them."""
    async with cluster(1, config=configured("annotations")) as c:
        await c.create(priority_class(-5))
        cheap = {"spec": {"priorityClassName": "p-5"}}
        await c.create(make_pod("running").req(cpu="3", memory="1Gi").node("n1").merge(cheap))
        for number in range(2):
            pod = make_pod(f"greedy{number}").req(memory=str(2**63 - 1))
            await c.create(pod.merge({"spec": {"nodeSelector": {"no": "where"}}}))
            nominated = {"status": {"nominatedNodeName": "n1"}}
            await c.patch(f"greedy{number}", nominated, subresource="status")
        await c.settle()
        for number in range(2):
            await c.create(member(number, "2").req(cpu="2", memory="1Gi"))
        await c.settle()
        assert "pod group is unschedulable" in c.message("p0")
