"""The bench for one plugin."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from ksched.framework import (
    SKIP,
    SUCCESS,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    CycleState,
    NodeInfo,
    NodeRows,
    PodInfo,
    PreFilterResult,
    QueueingHint,
    Resource,
    Snapshot,
    Status,
    Verdicts,
    error,
    unresolvable,
    unschedulable,
)
from ksched.testing.builders import make_node, make_pod
from ksched.testing.plugin_runner import (
    PluginBench,
    PluginRefused,
    run_filter,
    run_hint,
    run_score,
)

NODES = [make_node("a").obj(), make_node("b").obj()]
CROWDED = unschedulable("node(s) were crowded")
POD = make_pod().obj()


class PerNode:
    """At most one pod per node; emptier is better."""

    name: ClassVar[str] = "PerNode"

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        return CROWDED if node.pods else SUCCESS

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return -len(node.pods)

    def normalize(
        self, state: CycleState, pod: PodInfo, nodes: NodeRows, scores: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        shifted: NDArray[np.int64] = scores - scores.min()
        return shifted


class Columnar:
    """The same, over columns."""

    name: ClassVar[str] = "Columnar"

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Verdicts:
        return Verdicts.rejecting(nodes.pod_count > 0, CROWDED)

    def score_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> NDArray[np.int64]:
        return -nodes.pod_count

    normalize = PerNode.normalize


class Prepared(Columnar):
    """A plugin whose preparations answer what they are told to."""

    name: ClassVar[str] = "Prepared"

    def __init__(self, answer: Status | PreFilterResult) -> None:
        self._answer = answer

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> Status | PreFilterResult:
        return self._answer

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Status:
        assert isinstance(self._answer, Status)
        return self._answer


@pytest.mark.parametrize("plugin", [PerNode(), Columnar()], ids=lambda plugin: plugin.name)
def test_both_levels_give_the_same_answers(plugin: PerNode | Columnar) -> None:
    existing = [make_pod("running").node("a").obj()]

    assert run_filter(plugin, POD, NODES, existing) == {"a": CROWDED, "b": SUCCESS}
    assert run_score(plugin, POD, NODES, existing) == {"a": 0, "b": 1}
    assert PluginBench(NODES, existing).score(plugin, POD, ["b"]) == {"b": 0}


@pytest.mark.parametrize(
    ("answer", "a", "b"),
    [
        pytest.param(SKIP, SUCCESS, SUCCESS, id="skipped: every node passes"),
        pytest.param(CROWDED, CROWDED, CROWDED, id="rejected: every node is"),
        pytest.param(
            PreFilterResult(node_names=frozenset({"b"})),
            unresolvable("node(s) didn't satisfy plugin(s) [Prepared]"),
            SUCCESS,
            id="narrowed: the others are left out",
        ),
    ],
)
def test_pre_filter_has_the_first_word(
    answer: Status | PreFilterResult, a: Status, b: Status
) -> None:
    assert run_filter(Prepared(answer), POD, NODES) == {"a": a, "b": b}


def test_a_plugin_that_skips_gives_no_scores() -> None:
    assert run_score(Prepared(SKIP), POD, NODES) == {}


def test_a_plugin_that_fails_to_prepare_fails_the_test() -> None:
    with pytest.raises(PluginRefused, match="Prepared: pre_score answered Error: broken"):
        run_score(Prepared(error("broken")), POD, NODES)


def test_an_async_pre_filter_is_refused_by_name() -> None:
    class Slow(Columnar):
        name = "Slow"

        def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> object:
            class Promise:
                def __await__(self) -> object:
                    raise NotImplementedError

            return Promise()

    with pytest.raises(TypeError, match="Slow: pre_filter is async"):
        run_filter(Slow(), POD, NODES)


class Registered:
    """Wakes pods for nodes with the label they are named after, and for every deleted pod."""

    name: ClassVar[str] = "Registered"

    def events_to_register(self) -> list[ClusterEventWithHint]:
        return [
            ClusterEventWithHint(
                ClusterEvent(Resource.NODE, Action.ADD),
                lambda pod, old, new: (
                    QueueingHint.QUEUE if pod.name in new.metadata.labels else QueueingHint.SKIP
                ),
            ),
            ClusterEventWithHint(ClusterEvent(Resource.POD, Action.DELETE)),
        ]


@pytest.mark.parametrize(
    ("event", "new", "hint"),
    [
        pytest.param(
            ClusterEvent(Resource.NODE, Action.ADD),
            make_node().label(pod="x").obj(),
            QueueingHint.QUEUE,
            id="the hint says queue",
        ),
        pytest.param(
            ClusterEvent(Resource.NODE, Action.ADD),
            make_node().obj(),
            QueueingHint.SKIP,
            id="the hint says skip",
        ),
        pytest.param(
            ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE),
            None,
            QueueingHint.QUEUE,
            id="no hint is yes",
        ),
        pytest.param(
            ClusterEvent(Resource.NODE, Action.DELETE), None, QueueingHint.SKIP, id="not registered"
        ),
    ],
)
def test_hints_are_asked_for_the_events_they_are_registered_for(
    event: ClusterEvent, new: object, hint: QueueingHint
) -> None:
    assert run_hint(Registered(), event, POD, None, new) is hint
