"""A plugin whose declaration is not true is found, named, and fails the test it is in."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ksched.configuration.loading import load_config
from ksched.framework import (
    SUCCESS,
    CycleState,
    FilterDependsOn,
    NodeRows,
    PodInfo,
    Scope,
    ScoreDependsOn,
    Verdicts,
    unschedulable,
)
from ksched.framework.runtime.declaration_checks import (
    ROWS_PER_CHECK,
    DeclarationChecks,
    FalseDeclaration,
    rows_to_check,
)
from ksched.testing import Cluster, PodBuilder, cluster, make_node, make_pod
from ksched.testing.device_builders import (
    make_device_class,
    make_resource_claim,
    make_slice,
    with_claim,
)
from ksched.testing.storage_builders import make_claim, make_volume
from lab.decider import Decider

BUSY = unschedulable("node(s) were too busy")
TWO = (make_node("n1"), make_node("n2"))


def first(nodes: NodeRows) -> NDArray[np.bool_]:
    return np.array([name == "n1" for name in nodes.names])


class Quiet:
    """Rejects nodes with pods."""

    name = "Quiet"

    def __init__(self, declared: FilterDependsOn) -> None:
        self.filter_depends_on = declared

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Verdicts:
        return Verdicts.rejecting(nodes.pod_count > 0, BUSY)


class Own:
    """Rejects n1, for pods with the label ``where=elsewhere``."""

    name = "Own"

    def __init__(self, declared: FilterDependsOn) -> None:
        self.filter_depends_on = declared

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Verdicts:
        return Verdicts.rejecting(first(nodes) & (pod.labels.get("where") == "elsewhere"), BUSY)


class Switch:
    """Rejects everything, or rates n1, while it is on; its epoch may not say so."""

    name = "Switch"

    def __init__(self, *, tells: bool) -> None:
        self.is_on = True
        self._tells = tells

    def epoch(self, *args: object) -> object:
        return self.is_on if self._tells else 0


class SwitchedFilter(Switch):
    def __init__(self, *, tells: bool) -> None:
        super().__init__(tells=tells)
        self.filter_depends_on = FilterDependsOn(Scope.CLUSTER, epoch=self.epoch)

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Verdicts:
        return Verdicts.rejecting(np.full(len(nodes), self.is_on), BUSY)


class SwitchedChanges(Switch):
    def __init__(self, *, tells: bool) -> None:
        super().__init__(tells=tells)
        self.filter_depends_on = FilterDependsOn(Scope.CLUSTER, changes=self._changes)

    def _changes(self, state: CycleState, pod: PodInfo, mark: object) -> Any:
        return self.epoch(), np.zeros(0, np.intp) if mark == self.epoch() else None

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Verdicts:
        return Verdicts.rejecting(first(nodes) & self.is_on, BUSY)


class SwitchedScore(Switch):
    def __init__(self, *, tells: bool) -> None:
        super().__init__(tells=tells)
        self.score_depends_on = ScoreDependsOn(Scope.NODE, epoch=self.epoch)

    def score_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> NDArray[np.int64]:
        return 10 * (first(nodes) & self.is_on).astype(np.int64)


class Rating:
    """Rates nodes by what ``rate`` reads."""

    name = "Rating"

    def __init__(self, declared: ScoreDependsOn, rate: Callable[[NodeRows], Any]) -> None:
        self.score_depends_on = declared
        self._rate = rate

    def score_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> NDArray[np.int64]:
        rated: NDArray[np.int64] = np.array(self._rate(nodes), np.int64)
        return rated


class Stretched(Rating):
    """Looks at the nodes again when it normalises."""

    def normalize(
        self, state: CycleState, pod: PodInfo, nodes: NodeRows, scores: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        return scores + 5 * first(nodes)


async def place(c: Cluster, *names: str, **labels: str) -> None:
    for name in names:
        await c.create(make_pod(name).label(labels))
        await c.settle()


async def test_a_filter_that_reads_more_than_its_scope() -> None:
    async with cluster(nodes=TWO, plugins=[Quiet(FilterDependsOn(Scope.NODE))]) as c:
        await place(c, "a")
        with pytest.raises(FalseDeclaration) as found:
            await place(c, "b")
        assert c.bound("b") is None
        assert c.message("b") == str(found.value)
    assert str(found.value) == (
        'plugin "Quiet": scope=Scope.NODE is not true in FilterDependsOn(scope=Scope.NODE): '
        f'filter_nodes about node "{c.bound("a")}" and pod "default/b": '
        'cached Success, recomputed "Unschedulable: node(s) were too busy"'
    )


@pytest.mark.parametrize("scope", [Scope.RESOURCES, Scope.ROW, Scope.CLUSTER, Scope.POD])
async def test_a_filter_within_its_scope(scope: Scope) -> None:
    plugin = Quiet(FilterDependsOn(scope, reads_inter_pod_fields=False))
    async with cluster(nodes=TWO, plugins=[plugin]) as c:
        await place(c, "a", "b", "c")
        await c.delete("a", grace_seconds=0)
        await c.advance(10)
        assert c.bound("c") is not None


async def test_a_filter_that_reads_inter_pod_fields_and_says_it_does_not() -> None:
    plugin = Own(FilterDependsOn(Scope.NODE, reads_inter_pod_fields=False))
    async with cluster(nodes=TWO, plugins=[plugin]) as c:
        await place(c, "a")
        with pytest.raises(FalseDeclaration) as found:
            await place(c, "b", where="elsewhere")
    assert found.value.untrue == "reads_inter_pod_fields=False"
    assert (found.value.plugin, found.value.node, found.value.pod) == ("Own", "n1", "default/b")
    assert (found.value.cached, found.value.recomputed) == (SUCCESS, BUSY.by("Own"))


async def test_a_filter_that_reads_inter_pod_fields_and_says_so() -> None:
    async with cluster(nodes=TWO, plugins=[Own(FilterDependsOn(Scope.NODE))]) as c:
        await place(c, "a")
        await place(c, "b", where="elsewhere")
        assert c.bound("b") == "n2"


def with_volume(pod: PodBuilder, claim: str) -> PodBuilder:
    return pod.volume({"persistentVolumeClaim": {"claimName": claim}})


def names_of_claims(pod: PodInfo) -> list[str | None]:
    devices = [one.resource_claim_name for one in pod.template.spec.resource_claims]
    return [*pod.template.claim_names, *devices]


class OfClaim:
    """Rejects n1, for pods with the claim ``elsewhere``."""

    name = "OfClaim"

    def __init__(self, declared: FilterDependsOn) -> None:
        self.filter_depends_on = declared

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Verdicts:
        return Verdicts.rejecting(first(nodes) & ("elsewhere" in names_of_claims(pod)), BUSY)


@pytest.mark.parametrize("says_so", [True, False])
@pytest.mark.parametrize("naming", [with_volume, with_claim], ids=["a volume", "devices"])
async def test_a_filter_that_reads_the_names_of_claims(
    naming: Callable[[PodBuilder, str], PodBuilder], says_so: bool
) -> None:
    declared = FilterDependsOn(Scope.NODE, reads_inter_pod_fields=False, reads_claim_names=says_so)
    async with cluster(nodes=TWO, plugins=[OfClaim(declared)]) as c:
        for name in ("here", "elsewhere"):
            await c.create(make_volume(f"pv-{name}"), make_claim(name).bound_to(f"pv-{name}"))
            await c.create(make_resource_claim(name).request())
        await c.create(
            make_device_class(), *(make_slice(n).device("a").device("b") for n in ("n1", "n2"))
        )
        pods = [naming(make_pod(name), name) for name in ("here", "elsewhere")]
        await c.create(pods[0])
        await c.settle()
        assert c.bound("here")
        await c.create(pods[1])
        if says_so:
            await c.settle()
            assert c.bound("elsewhere") == "n2"
            return
        with pytest.raises(FalseDeclaration) as found:
            await c.settle()
    assert found.value.untrue == "reads_claim_names=False"


def nothing_changed(state: CycleState, pod: PodInfo, mark: object) -> Any:
    return 0, None if mark is None else np.zeros(0, np.intp)


@pytest.mark.parametrize("tells", [True, False])
async def test_a_group_of_pods_that_get_different_verdicts(tells: bool) -> None:
    def group(state: CycleState, pod: PodInfo) -> object:
        return pod.labels.get("where") if tells else 0

    plugin = Own(FilterDependsOn(Scope.CLUSTER, changes=nothing_changed, group=group))
    async with cluster(nodes=TWO, plugins=[plugin]) as c:
        await place(c, "a")
        if tells:
            await place(c, "b", where="elsewhere")
            assert c.bound("b") == "n2"
            return
        with pytest.raises(FalseDeclaration) as found:
            await place(c, "b", where="elsewhere")
    assert found.value.untrue == "group"
    assert "changes=nothing_changed, group=" in str(found.value)


async def test_changes_that_are_not_told() -> None:
    plugin = SwitchedChanges(tells=False)
    async with cluster(nodes=TWO, plugins=[plugin]) as c:
        await place(c, "a")
        plugin.is_on = False
        with pytest.raises(FalseDeclaration) as found:
            await place(c, "b")
    assert (found.value.untrue, found.value.node) == ("changes", "n1")


async def test_an_epoch_of_a_filter_that_does_not_change() -> None:
    plugin = SwitchedFilter(tells=False)
    async with cluster(nodes=TWO, plugins=[plugin]) as c:
        await place(c, "a")
        assert "2 node(s) were too busy" in c.message("a")
        plugin.is_on = False
        with pytest.raises(FalseDeclaration) as found:
            await place(c, "b")
    assert found.value.untrue == "epoch"
    assert (found.value.cached, found.value.recomputed) == (BUSY.by("Switch"), SUCCESS)


async def test_an_epoch_of_a_score_that_does_not_change() -> None:
    plugin = SwitchedScore(tells=False)
    async with cluster(nodes=TWO, plugins=[plugin]) as c:
        await place(c, "a")
        plugin.is_on = False
        with pytest.raises(FalseDeclaration) as found:
            await place(c, "b")
    assert found.value.untrue == "scope=Scope.NODE with this epoch"
    assert (found.value.method, found.value.node) == ("score_nodes", "n1")
    assert (found.value.cached, found.value.recomputed) == (10, 0)


@pytest.mark.parametrize("kind", [SwitchedFilter, SwitchedChanges, SwitchedScore])
async def test_what_tells_of_its_changes_is_left_alone(kind: type[Switch]) -> None:
    plugin = kind(tells=True)
    async with cluster(nodes=TWO, plugins=[plugin]) as c:
        await place(c, "a", "b")
        plugin.is_on = False
        await place(c, "c", "d")
        assert c.bound("d") is not None


def by_pods(nodes: NodeRows) -> NDArray[np.int64]:
    return np.minimum(nodes.pod_count, 9)


@pytest.mark.parametrize(
    ("declared", "rate", "untrue"),
    [
        pytest.param(ScoreDependsOn(Scope.NODE), by_pods, "scope=Scope.NODE", id="reads pods"),
        pytest.param(
            ScoreDependsOn(Scope.RESOURCES), first, "scope=Scope.RESOURCES", id="reads the name"
        ),
    ],
)
async def test_a_score_that_reads_more_than_its_scope(
    declared: ScoreDependsOn, rate: Callable[[NodeRows], Any], untrue: str
) -> None:
    async with cluster(nodes=TWO, plugins=[Rating(declared, rate)]) as c:
        with pytest.raises(FalseDeclaration) as found:
            # Two nodes that come to have had the same amounts: what was said of one holds for both.
            await place(c, *(f"p{number}" for number in range(6)))
    assert (found.value.plugin, found.value.untrue) == ("Rating", untrue)
    assert found.value.method == "score_nodes"


@pytest.mark.parametrize("scope", [Scope.RESOURCES, Scope.ROW, Scope.CLUSTER, Scope.POD])
async def test_a_score_within_its_scope(scope: Scope) -> None:
    plugin = Rating(ScoreDependsOn(scope, reads_inter_pod_fields=False), by_pods)
    async with cluster(nodes=TWO, plugins=[plugin]) as c:
        await place(c, *(f"p{number}" for number in range(6)))


async def test_a_normalization_that_reads_more_than_the_scores() -> None:
    plugin = Stretched(ScoreDependsOn(Scope.NODE), lambda nodes: np.zeros(len(nodes)))
    async with cluster(nodes=TWO, plugins=[plugin]) as c:
        with pytest.raises(FalseDeclaration) as found:
            await place(c, "a")
    assert "that normalize reads nothing but the scores is not true" in str(found.value)


async def run_into_it(problem: Exception | None = None) -> None:
    async with cluster(nodes=TWO, plugins=[Quiet(FilterDependsOn(Scope.NODE))]) as c:
        await c.create(make_pod("a"), make_pod("b"))
        await c.clock.sleep(1)
        if problem is not None:
            raise problem


async def test_it_fails_at_the_end_of_the_block_at_the_latest() -> None:
    with pytest.raises(FalseDeclaration):
        await run_into_it()


async def test_a_failing_test_fails_with_its_own_problem() -> None:
    with pytest.raises(ZeroDivisionError):
        await run_into_it(ZeroDivisionError())


async def test_it_can_be_left_out() -> None:
    plugin = Quiet(FilterDependsOn(Scope.NODE))
    async with cluster(nodes=TWO, plugins=[plugin], check_declarations=False) as c:
        await place(c, "a", "b", "c")
        assert c.bound("c") is not None, "the cached answer counts, wrong as it is"


async def test_work_that_the_checks_make_is_not_counted() -> None:
    rows = []
    for checks in (True, False):
        async with cluster(nodes=3, check_declarations=checks) as c:
            await place(c, *(f"p{number}" for number in range(5)))
            rows.append(c.scheduler.profiles["default-scheduler"].pipeline.work.rows)
    assert rows[0] == rows[1]


def test_many_rows_are_checked_in_turns() -> None:
    assert rows_to_check(0, 1).tolist() == []
    assert rows_to_check(ROWS_PER_CHECK, 7).tolist() == list(range(ROWS_PER_CHECK))
    count = 3 * ROWS_PER_CHECK
    turns = [set(rows_to_check(count, turn).tolist()) for turn in range(5, 8)]
    assert [len(turn) for turn in turns] == [ROWS_PER_CHECK] * 3
    assert set().union(*turns) == set(range(count))


@pytest.mark.parametrize("kind", [SwitchedChanges, SwitchedScore])
@pytest.mark.parametrize("warm_up", [1, 2])
async def test_one_wrong_row_of_many_is_found_after_as_many_attempts(
    kind: type[Switch], warm_up: int
) -> None:
    plugin, checks = kind(tells=False), DeclarationChecks()
    config = load_config(
        """
        apiVersion: kubescheduler.config.k8s.io/v1
        kind: KubeSchedulerConfiguration
        profiles: [{plugins: {multiPoint: {enabled: [{name: Switch}]}}}]
        """
    )
    decider = Decider(
        config,
        registry={"Switch": lambda args, handle: plugin},
        make_pipeline=checks.make_pipeline,
    )
    decider.set_cluster(make_node(f"n{number}").obj() for number in range(2 * ROWS_PER_CHECK))
    for _ in range(warm_up):
        await decider.decide(make_pod("a").obj())
    plugin.is_on = False
    for _ in range(2):
        with suppress(FalseDeclaration):
            await decider.decide(make_pod("a").obj())
    (found,) = checks.found
    assert found.node == "n1"


class Never:
    """Rejects n1."""

    name = "Never"
    filter_depends_on = FilterDependsOn(Scope.NODE)

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Verdicts:
        return Verdicts.rejecting(first(nodes), unschedulable("never"))


async def test_the_right_one_is_named_of_plugins_that_are_cached_together() -> None:
    """Of plugins of one scope only the first rejection of a row is cached."""
    plugins = [Quiet(FilterDependsOn(Scope.NODE)), Never()]
    # Of fewer nodes more than half would change, and then nothing cached is used.
    async with cluster(nodes=6, plugins=plugins) as c:
        await place(c, "a")
        await c.create(make_pod("b").node("n1"))
        await c.delete("a", grace_seconds=0)
        with pytest.raises(FalseDeclaration) as found:
            await place(c, "c")
    assert (found.value.plugin, found.value.node) == ("Quiet", "n1")
    assert (found.value.cached, found.value.recomputed) == (SUCCESS, BUSY.by("Quiet"))
