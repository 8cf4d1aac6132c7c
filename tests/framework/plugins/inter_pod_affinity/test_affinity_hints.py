"""plugins/interpodaffinity/plugin.go: which events wake a pod that was rejected."""

from __future__ import annotations

import pytest

from ksched.api.objects import Namespace, ObjectMeta
from ksched.cache.listers import Listers
from ksched.framework import Action, ClusterEvent, QueueingHint, Resource
from ksched.framework.plugins.inter_pod_affinity.plugin import InterPodAffinity
from ksched.testing.builders import NodeBuilder, PodBuilder, make_node, make_pod
from ksched.testing.plugin_runner import run_hint

DB, WEB = {"app": "db"}, {"app": "web"}
NEAR_DB = make_pod("waiting").pod_affinity("zone", DB)
FAR_FROM_DB = make_pod("waiting").label(WEB).pod_anti_affinity("zone", DB)
PLAIN = make_pod("waiting").label(WEB)

ADDED = ClusterEvent(Resource.ASSIGNED_POD, Action.ADD)
DELETED = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
RELABELLED = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_LABEL)
PENDING_RELABELLED = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_LABEL)
NODE_ADD = ClusterEvent(Resource.NODE, Action.ADD)
NODE_LABEL = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)


def _wakes(
    waiting: PodBuilder,
    event: ClusterEvent,
    old: PodBuilder | NodeBuilder | None,
    new: PodBuilder | NodeBuilder | None,
) -> bool:
    listers = Listers()
    plugin = InterPodAffinity(None, listers, lambda: 0.0)
    meta = ObjectMeta(name="other", labels={"team": "blue"})
    listers.require(Namespace).put(Namespace(metadata=meta))
    before, after = (None if one is None else one.obj() for one in (old, new))
    return run_hint(plugin, event, waiting.obj(), before, after) is QueueingHint.QUEUE


def _db(name: str = "x", namespace: str = "default") -> PodBuilder:
    return make_pod(name, namespace).label(DB).node("n")


STRANGER = make_pod("x").node("n")
SHY = make_pod("x").node("n").pod_anti_affinity("zone", WEB)


@pytest.mark.parametrize(
    ("waiting", "event", "old", "new", "wakes"),
    [
        pytest.param(NEAR_DB, ADDED, None, _db(), True, id="a pod to be near to came"),
        pytest.param(NEAR_DB, ADDED, None, STRANGER, False, id="a stranger came"),
        pytest.param(NEAR_DB, ADDED, None, _db("x", "other"), False, id="of another namespace"),
        pytest.param(
            make_pod("waiting").pod_affinity("zone", DB, namespace_labels={"team": "blue"}),
            ADDED,
            None,
            _db("x", "other"),
            True,
            id="of a namespace that the term selects",
        ),
        pytest.param(NEAR_DB, ADDED, None, make_pod("x").label(DB), False, id="without a node"),
        pytest.param(
            NEAR_DB,
            ADDED,
            None,
            make_pod("x").label(DB).nominated("n"),
            True,
            id="with one to come",
        ),
        pytest.param(
            NEAR_DB.pod_affinity("zone", {"tier": "1"}),
            ADDED,
            None,
            _db(),
            False,
            id="it satisfies one term of two",
        ),
        pytest.param(FAR_FROM_DB, ADDED, None, _db(), False, id="a pod to avoid came"),
        pytest.param(FAR_FROM_DB, DELETED, _db(), None, True, id="a pod to avoid went"),
        pytest.param(FAR_FROM_DB, DELETED, STRANGER, None, False, id="a stranger went"),
        pytest.param(NEAR_DB, DELETED, _db(), None, False, id="a pod to be near to went"),
        pytest.param(PLAIN, DELETED, SHY, None, True, id="a pod that minded went"),
        pytest.param(
            make_pod("waiting"), DELETED, SHY, None, False, id="a pod that minded others went"
        ),
        pytest.param(NEAR_DB, RELABELLED, STRANGER, _db(), True, id="becomes one to be near to"),
        pytest.param(NEAR_DB, RELABELLED, _db(), _db().label(x="y"), False, id="stays one"),
        pytest.param(FAR_FROM_DB, RELABELLED, _db(), STRANGER, True, id="ceases to be avoided"),
        pytest.param(FAR_FROM_DB, RELABELLED, STRANGER, _db(), False, id="is to be avoided now"),
        pytest.param(
            PLAIN, PENDING_RELABELLED, PLAIN, PLAIN.label(x="y"), True, id="its own labels changed"
        ),
        pytest.param(
            NEAR_DB,
            PENDING_RELABELLED,
            make_pod("x"),
            make_pod("x").label(DB),
            False,
            id="labels of another pending pod",
        ),
    ],
)
def test_pods_that_may_help_wake(
    waiting: PodBuilder,
    event: ClusterEvent,
    old: PodBuilder | None,
    new: PodBuilder | None,
    wakes: bool,
) -> None:
    assert _wakes(waiting, event, old, new) is wakes


BARE, IN_A, IN_B = make_node("n"), make_node("n").label(zone="a"), make_node("n").label(zone="b")


@pytest.mark.parametrize(
    ("waiting", "event", "old", "new", "wakes"),
    [
        pytest.param(NEAR_DB, NODE_ADD, None, IN_A, True, id="near: new node in a zone"),
        pytest.param(NEAR_DB, NODE_ADD, None, BARE, False, id="near: new node in none"),
        pytest.param(NEAR_DB, NODE_LABEL, BARE, IN_A, True, id="near: gets a zone"),
        pytest.param(NEAR_DB, NODE_LABEL, IN_A, IN_B, True, id="near: another zone"),
        pytest.param(NEAR_DB, NODE_LABEL, IN_A, BARE, False, id="near: loses its zone"),
        pytest.param(
            NEAR_DB, NODE_LABEL, IN_A, IN_A.label(disk="ssd"), False, id="near: another label"
        ),
        pytest.param(FAR_FROM_DB, NODE_ADD, None, BARE, True, id="away: any new node"),
        pytest.param(FAR_FROM_DB, NODE_LABEL, BARE, IN_A, False, id="away: gets a zone"),
        pytest.param(FAR_FROM_DB, NODE_LABEL, IN_A, IN_B, True, id="away: another zone"),
        pytest.param(FAR_FROM_DB, NODE_LABEL, IN_A, BARE, True, id="away: loses its zone"),
        pytest.param(PLAIN, NODE_ADD, None, BARE, True, id="kept away: any new node"),
        pytest.param(PLAIN, NODE_LABEL, IN_A, IN_B, True, id="kept away: another zone"),
        pytest.param(PLAIN, NODE_LABEL, BARE, IN_A, False, id="kept away: one label more"),
    ],
)
def test_nodes_that_may_help_wake(
    waiting: PodBuilder,
    event: ClusterEvent,
    old: NodeBuilder | None,
    new: NodeBuilder | None,
    wakes: bool,
) -> None:
    assert _wakes(waiting, event, old, new) is wakes
