"""plugins/nodeunschedulable/node_unschedulable.go."""

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
from ksched.framework.plugins.node_unschedulable import NodeUnschedulable
from ksched.testing.builders import NodeBuilder, PodBuilder, make_node, make_pod
from ksched.testing.plugin_runner import run_filter, run_hint

KEY = "node.kubernetes.io/unschedulable"
REJECTED = unresolvable("node(s) were unschedulable")
NODE_ADD = ClusterEvent(Resource.NODE, Action.ADD)
TAINT_CHANGE = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)
TOLERATION_CHANGE = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_TOLERATION)

OPEN, CORDONED = make_node("n"), make_node("n").unschedulable()


@pytest.mark.parametrize(
    ("pod", "status"),
    [
        pytest.param(make_pod(), REJECTED, id="ordinary pod"),
        pytest.param(make_pod().toleration(KEY), SUCCESS, id="tolerates the key"),
        pytest.param(
            make_pod().toleration(KEY, effect="NoSchedule"), SUCCESS, id="tolerates key and effect"
        ),
        pytest.param(make_pod().toleration(), SUCCESS, id="tolerates everything"),
        pytest.param(
            make_pod().toleration(KEY, effect="NoExecute"), REJECTED, id="tolerates another effect"
        ),
        pytest.param(make_pod().toleration("other"), REJECTED, id="tolerates another key"),
    ],
)
def test_a_cordoned_node_takes_only_pods_that_tolerate_it(pod: PodBuilder, status: Status) -> None:
    nodes = [CORDONED.obj(), make_node("open").obj()]

    assert run_filter(NodeUnschedulable(), pod.obj(), nodes) == {"n": status, "open": SUCCESS}


@pytest.mark.parametrize(
    ("event", "old", "new", "hint"),
    [
        pytest.param(NODE_ADD, None, OPEN, QueueingHint.QUEUE, id="new node"),
        pytest.param(NODE_ADD, None, CORDONED, QueueingHint.SKIP, id="new node, cordoned"),
        pytest.param(TAINT_CHANGE, CORDONED, OPEN, QueueingHint.QUEUE, id="uncordoned"),
        pytest.param(TAINT_CHANGE, OPEN, CORDONED, QueueingHint.SKIP, id="cordoned"),
        pytest.param(TAINT_CHANGE, OPEN, OPEN, QueueingHint.SKIP, id="open as before"),
    ],
)
def test_nodes_that_open_wake_the_pod(
    event: ClusterEvent, old: NodeBuilder | None, new: NodeBuilder, hint: QueueingHint
) -> None:
    before = old.obj() if old else None

    assert run_hint(NodeUnschedulable(), event, make_pod().obj(), before, new.obj()) is hint


@pytest.mark.parametrize(
    ("updated", "hint"),
    [
        pytest.param(make_pod("web").toleration(KEY), QueueingHint.QUEUE, id="tolerates it now"),
        pytest.param(make_pod("web").toleration("x"), QueueingHint.SKIP, id="tolerates another"),
        pytest.param(make_pod("other").toleration(KEY), QueueingHint.SKIP, id="another pod does"),
    ],
)
def test_a_new_toleration_wakes_only_its_own_pod(updated: PodBuilder, hint: QueueingHint) -> None:
    waiting = make_pod("web").obj()

    answer = run_hint(NodeUnschedulable(), TOLERATION_CHANGE, waiting, waiting, updated.obj())

    assert answer is hint
