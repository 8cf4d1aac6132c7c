"""plugins/tainttoleration/taint_toleration.go."""

from __future__ import annotations

import pytest

from ksched.framework import (
    SUCCESS,
    Action,
    ClusterEvent,
    QueueingHint,
    Resource,
    Status,
    unresolvable,
)
from ksched.framework.plugins.taint_toleration import TaintToleration
from ksched.testing.builders import NodeBuilder, PodBuilder, make_node, make_pod
from ksched.testing.plugin_runner import run_filter, run_hint, run_score

REJECTED = unresolvable("node(s) had untolerated taint(s)")
NODE_ADD = ClusterEvent(Resource.NODE, Action.ADD)
TAINT_CHANGE = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)
TOLERATION_CHANGE = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_TOLERATION)

CLEAN = make_node("n")
TAINTED = make_node("n").taint("team", "blue")
SOFT = make_node("n").taint("team", "blue", "PreferNoSchedule")


@pytest.mark.parametrize(
    ("node", "pod", "status"),
    [
        pytest.param(CLEAN, make_pod(), SUCCESS, id="no taint"),
        pytest.param(TAINTED, make_pod(), REJECTED, id="NoSchedule"),
        pytest.param(CLEAN.taint("a", effect="NoExecute"), make_pod(), REJECTED, id="NoExecute"),
        pytest.param(SOFT, make_pod(), SUCCESS, id="PreferNoSchedule does not reject"),
        pytest.param(
            TAINTED, make_pod().toleration("team", "blue"), SUCCESS, id="key and value tolerated"
        ),
        pytest.param(TAINTED, make_pod().toleration("team", "red"), REJECTED, id="other value"),
        pytest.param(TAINTED, make_pod().toleration("team"), SUCCESS, id="any value tolerated"),
        pytest.param(TAINTED, make_pod().toleration(), SUCCESS, id="everything tolerated"),
        pytest.param(
            TAINTED,
            make_pod().toleration("team", "blue", effect="NoExecute"),
            REJECTED,
            id="other effect",
        ),
        pytest.param(
            TAINTED.taint("disk", "slow"),
            make_pod().toleration("team", "blue"),
            REJECTED,
            id="one of two taints tolerated",
        ),
    ],
)
def test_untolerated_taints_reject(node: NodeBuilder, pod: PodBuilder, status: Status) -> None:
    assert run_filter(TaintToleration(), pod.obj(), [node.obj()]) == {"n": status}


def _prefers_not(name: str, *keys: str) -> NodeBuilder:
    node = make_node(name)
    for key in keys:
        node = node.taint(key, effect="PreferNoSchedule")
    return node


@pytest.mark.parametrize(
    ("pod", "scores"),
    [
        pytest.param(make_pod(), [100, 67, 0], id="fewer untolerated taints are better"),
        pytest.param(
            make_pod().toleration("a", effect="PreferNoSchedule"),
            [100, 100, 0],
            id="tolerated ones do not count",
        ),
        pytest.param(
            make_pod().toleration("a", effect="NoSchedule"),
            [100, 67, 0],
            id="tolerations of other effects do not help",
        ),
        pytest.param(make_pod().toleration(), [100, 100, 100], id="all tolerated"),
    ],
)
def test_soft_taints_lower_the_score(pod: PodBuilder, scores: list[int]) -> None:
    nodes = [
        _prefers_not("clean").taint("hard"),
        _prefers_not("one", "a"),
        _prefers_not("three", "a", "b", "c"),
    ]

    answer = run_score(TaintToleration(), pod.obj(), [node.obj() for node in nodes])

    assert list(answer.values()) == scores


@pytest.mark.parametrize(
    ("event", "old", "new", "hint"),
    [
        pytest.param(NODE_ADD, None, CLEAN, QueueingHint.QUEUE, id="new node"),
        pytest.param(NODE_ADD, None, TAINTED, QueueingHint.SKIP, id="new node, tainted"),
        pytest.param(TAINT_CHANGE, TAINTED, CLEAN, QueueingHint.QUEUE, id="taint removed"),
        pytest.param(TAINT_CHANGE, TAINTED, SOFT, QueueingHint.QUEUE, id="taint made soft"),
        pytest.param(TAINT_CHANGE, CLEAN, TAINTED, QueueingHint.SKIP, id="taint added"),
        pytest.param(TAINT_CHANGE, SOFT, CLEAN, QueueingHint.SKIP, id="never was rejected here"),
    ],
)
def test_nodes_that_become_tolerable_wake_the_pod(
    event: ClusterEvent, old: NodeBuilder | None, new: NodeBuilder, hint: QueueingHint
) -> None:
    before = old.obj() if old else None

    assert run_hint(TaintToleration(), event, make_pod().obj(), before, new.obj()) is hint


@pytest.mark.parametrize(
    ("updated", "hint"),
    [
        pytest.param("web", QueueingHint.QUEUE, id="its own"),
        pytest.param("other", QueueingHint.SKIP, id="somebody else's"),
    ],
)
def test_a_new_toleration_wakes_only_its_own_pod(updated: str, hint: QueueingHint) -> None:
    new = make_pod(updated).toleration("team").obj()

    answer = run_hint(
        TaintToleration(), TOLERATION_CHANGE, make_pod("web").obj(), make_pod(updated).obj(), new
    )

    assert answer is hint
