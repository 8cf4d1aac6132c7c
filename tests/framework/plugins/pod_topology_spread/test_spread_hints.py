"""plugins/podtopologyspread/plugin.go: which events wake a pod that was rejected."""

from __future__ import annotations

import pytest

from ksched.cache.listers import Listers
from ksched.framework import Action, ClusterEvent, QueueingHint, Resource
from ksched.framework.plugins.pod_topology_spread.plugin import PodTopologySpread
from ksched.testing.builders import NodeBuilder, PodBuilder, make_node, make_pod
from ksched.testing.plugin_runner import run_hint

WEB = {"app": "web"}
WAITING = make_pod("waiting").label(WEB).spread("zone", WEB).spread("rack", WEB)
HONORS = make_pod("waiting").label(WEB).spread("zone", WEB, node_taints_policy="Honor")
OTHER = make_pod("other").label(WEB).node("n")

NODE = make_node("n").label(zone="a", rack="r")


def _hint(
    event: ClusterEvent,
    old: PodBuilder | NodeBuilder | None,
    new: PodBuilder | NodeBuilder | None,
    waiting: PodBuilder = WAITING,
) -> bool:
    plugin = PodTopologySpread(None, Listers())
    before, after = (None if one is None else one.obj() for one in (old, new))
    return run_hint(plugin, event, waiting.obj(), before, after) is QueueingHint.QUEUE


ADDED = ClusterEvent(Resource.ASSIGNED_POD, Action.ADD)
DELETED = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
RELABELLED = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_LABEL)
OWN_LABELS = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_LABEL)
OWN_TOLERATIONS = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_TOLERATION)
SCALED_DOWN = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_DOWN)


@pytest.mark.parametrize(
    ("event", "old", "new", "wakes"),
    [
        pytest.param(ADDED, None, OTHER, True, id="a matching pod came"),
        pytest.param(DELETED, OTHER, None, True, id="a matching pod went"),
        pytest.param(ADDED, None, make_pod().node("n"), False, id="a pod that does not match"),
        pytest.param(
            ADDED, None, make_pod("x", "other").label(WEB).node("n"), False, id="other namespace"
        ),
        pytest.param(DELETED, make_pod("x").label(WEB), None, False, id="a pod without a node"),
        pytest.param(
            DELETED,
            make_pod("x").label(WEB).nominated("n"),
            None,
            True,
            id="a pod that was to have one",
        ),
        pytest.param(RELABELLED, make_pod("x").node("n"), OTHER, True, id="starts to match"),
        pytest.param(RELABELLED, OTHER, make_pod("x").node("n"), True, id="ceases to match"),
        pytest.param(RELABELLED, OTHER, OTHER.label(x="y"), False, id="goes on matching"),
        pytest.param(SCALED_DOWN, OTHER, OTHER, False, id="something else changed"),
    ],
)
def test_pods_that_change_a_count_wake(
    event: ClusterEvent, old: PodBuilder | None, new: PodBuilder | None, wakes: bool
) -> None:
    assert _hint(event, old, new) is wakes


@pytest.mark.parametrize(
    ("waiting", "event", "old", "new", "wakes"),
    [
        pytest.param(
            WAITING, OWN_LABELS, make_pod("waiting"), WAITING, True, id="own label starts to match"
        ),
        pytest.param(
            WAITING, OWN_LABELS, WAITING.label(x="y"), WAITING, False, id="own label of no matter"
        ),
        pytest.param(
            HONORS, OWN_TOLERATIONS, HONORS, HONORS.toleration("team"), True, id="tolerates more"
        ),
        pytest.param(
            WAITING,
            OWN_TOLERATIONS,
            WAITING,
            WAITING.toleration("team"),
            False,
            id="tolerates more, but taints do not matter",
        ),
        pytest.param(
            HONORS,
            OWN_TOLERATIONS,
            make_pod("x"),
            make_pod("x").toleration("team"),
            False,
            id="another pod tolerates more",
        ),
    ],
)
def test_a_pods_own_update_wakes_it(
    waiting: PodBuilder, event: ClusterEvent, old: PodBuilder, new: PodBuilder, wakes: bool
) -> None:
    assert _hint(event, old, new, waiting) is wakes


NODE_ADD = ClusterEvent(Resource.NODE, Action.ADD)
NODE_DELETE = ClusterEvent(Resource.NODE, Action.DELETE)
NODE_LABEL = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)
NODE_TAINT = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)
HALF = make_node("n").label(zone="a")


@pytest.mark.parametrize(
    ("event", "old", "new", "wakes"),
    [
        pytest.param(NODE_ADD, None, NODE, True, id="new, with all keys"),
        pytest.param(NODE_ADD, None, HALF, False, id="new, without one"),
        pytest.param(NODE_DELETE, NODE, None, True, id="gone, had all keys"),
        pytest.param(NODE_DELETE, HALF, None, False, id="gone, had not"),
        pytest.param(NODE_LABEL, HALF, NODE, True, id="gets the missing key"),
        pytest.param(NODE_LABEL, NODE, HALF, True, id="loses a key"),
        pytest.param(NODE_LABEL, NODE, NODE.label(zone="b"), True, id="moves to another zone"),
        pytest.param(NODE_LABEL, NODE, NODE.label(disk="ssd"), False, id="another label"),
        pytest.param(NODE_LABEL, HALF, HALF.label(zone="b"), False, id="still without a key"),
        pytest.param(NODE_TAINT, NODE, NODE.taint("x"), True, id="taints of a node that counts"),
        pytest.param(NODE_TAINT, HALF, HALF.taint("x"), False, id="of one that does not"),
    ],
)
def test_nodes_that_change_the_domains_wake(
    event: ClusterEvent, old: NodeBuilder | None, new: NodeBuilder | None, wakes: bool
) -> None:
    assert _hint(event, old, new) is wakes
