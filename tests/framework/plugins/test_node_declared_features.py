"""plugins/nodedeclaredfeatures/nodedeclaredfeatures.go."""

from __future__ import annotations

import pytest

from ksched.framework import (
    SUCCESS,
    Action,
    ClusterEvent,
    CycleState,
    QueueingHint,
    Resource,
    unresolvable,
)
from ksched.framework.plugins.node_declared_features import NodeDeclaredFeatures
from ksched.testing.builders import NodeBuilder, PodBuilder, make_node, make_pod
from ksched.testing.plugin_runner import PluginBench, run_filter, run_hint

MISSING = unresolvable("node(s) didn't match Pod's required features")
RESTART = "RestartAllContainersOnContainerExits"
USERS = "UserNamespacesHostNetworkSupport"


def _restarting(field: str, action: str = "RestartAllContainers") -> PodBuilder:
    container = {"name": "c", "restartPolicyRules": [{"action": action}]}
    return make_pod().merge({"spec": {field: [container]}})


def _spec(**fields: object) -> PodBuilder:
    return make_pod().merge({"spec": fields})


def _declaring(*features: str) -> NodeBuilder:
    return make_node("n").merge({"status": {"declaredFeatures": list(features)}})


HOST_USERS = _spec(hostNetwork=True, hostUsers=False)


@pytest.mark.parametrize(
    ("pod", "required"),
    [
        pytest.param(make_pod(), set(), id="nothing special"),
        pytest.param(_restarting("containers"), {RESTART}, id="a container restarts all"),
        pytest.param(_restarting("initContainers"), {RESTART}, id="an init container does"),
        pytest.param(_restarting("containers", "Restart"), set(), id="another action"),
        pytest.param(HOST_USERS, {USERS}, id="host network in a user namespace"),
        pytest.param(_spec(hostNetwork=True), set(), id="host network alone"),
        pytest.param(_spec(hostUsers=False), set(), id="user namespace alone"),
        pytest.param(
            _spec(hostNetwork=True, hostUsers=True), set(), id="host network as the host's user"
        ),
    ],
)
def test_what_a_pod_requires(pod: PodBuilder, required: set[str]) -> None:
    bench = PluginBench([])
    skips = NodeDeclaredFeatures().pre_filter(
        CycleState(), bench.pod_info(pod.obj()), bench.snapshot
    )

    assert skips.is_skip is not bool(required)
    for feature in (RESTART, USERS):
        verdict = run_filter(NodeDeclaredFeatures(), pod.obj(), [_declaring(feature).obj()])["n"]
        assert (verdict == SUCCESS) is (required <= {feature})


def test_nodes_that_declare_too_little_are_rejected_for_good() -> None:
    nodes = [_declaring("Other").obj()]

    assert run_filter(NodeDeclaredFeatures(), HOST_USERS.obj(), nodes) == {"n": MISSING}


NODE_ADD = ClusterEvent(Resource.NODE, Action.ADD)
FEATURES = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_DECLARED_FEATURE)
POD_UPDATE = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE)


@pytest.mark.parametrize(
    ("event", "old", "new", "wakes"),
    [
        pytest.param(NODE_ADD, None, _declaring(), True, id="a new node"),
        pytest.param(FEATURES, _declaring(), _declaring(USERS), True, id="declares more"),
        pytest.param(FEATURES, _declaring(USERS), _declaring(USERS), False, id="declares the same"),
        pytest.param(POD_UPDATE, HOST_USERS, make_pod(), True, id="requires less"),
        pytest.param(POD_UPDATE, HOST_USERS, HOST_USERS, False, id="requires the same"),
        pytest.param(
            POD_UPDATE, HOST_USERS.uid("x"), make_pod().uid("x"), False, id="another pod does"
        ),
    ],
)
def test_what_wakes(
    event: ClusterEvent,
    old: PodBuilder | NodeBuilder | None,
    new: PodBuilder | NodeBuilder,
    wakes: bool,
) -> None:
    before = None if old is None else old.obj()
    hint = run_hint(NodeDeclaredFeatures(), event, HOST_USERS.obj(), before, new.obj())

    assert (hint is QueueingHint.QUEUE) is wakes
