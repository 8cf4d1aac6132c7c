from __future__ import annotations

import pytest

from ksched.framework import Action, Resource
from ksched.framework.event_derivation import node_update_events, pod_update_events
from ksched.testing.builders import NodeBuilder, PodBuilder, make_node, make_pod

POD = make_pod("p").req(cpu="2", memory="1Gi")
NODE = make_node("n")
UPDATE = [Action.UPDATE]
SCALE_DOWN = [Action.UPDATE_POD_SCALE_DOWN]
CLAIMS = {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c1"}]}}


def with_actual(pod: PodBuilder, cpu: str) -> PodBuilder:
    resources = {"requests": {"cpu": cpu, "memory": "1Gi"}}
    return pod.merge({"status": {"containerStatuses": [{"name": "c0", "resources": resources}]}})


@pytest.mark.parametrize(
    ("old", "new", "actions"),
    [
        pytest.param(POD, POD, UPDATE, id="nothing that has a name"),
        pytest.param(POD, POD.annotation(a="b"), UPDATE, id="an annotation"),
        pytest.param(POD, POD.label(a="b"), [Action.UPDATE_POD_LABEL], id="a label"),
        pytest.param(POD, POD.req(cpu="1"), SCALE_DOWN, id="asks for less cpu"),
        pytest.param(POD, POD.req(cpu="2000m"), UPDATE, id="asks for the same in other words"),
        pytest.param(POD, POD.req(cpu="3"), UPDATE, id="asks for more"),
        pytest.param(POD, POD.req(cpu="3", memory="1Mi"), SCALE_DOWN, id="more and less"),
        pytest.param(POD, make_pod("p").req(cpu="2"), SCALE_DOWN, id="a request is gone"),
        pytest.param(
            with_actual(POD, "4"), with_actual(POD, "2"), SCALE_DOWN, id="the resize has happened"
        ),
        pytest.param(
            with_actual(POD.req(cpu="4"), "4"),
            with_actual(POD, "4"),
            UPDATE,
            id="the resize is only wanted",
        ),
        pytest.param(
            POD.gate("a"),
            POD.gate("a").merge({"spec": {"schedulingGates": []}}),
            [Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED],
            id="the last gate is gone",
        ),
        pytest.param(POD.gate("a").gate("b"), POD.gate("a"), UPDATE, id="one of two gates is gone"),
        pytest.param(
            POD, POD.toleration("key"), [Action.UPDATE_POD_TOLERATION], id="a new toleration"
        ),
        pytest.param(
            POD,
            POD.merge(CLAIMS),
            [Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM],
            id="a claim was generated",
        ),
        pytest.param(
            POD,
            POD.label(a="b").req(cpu="1").toleration("key"),
            [
                Action.UPDATE_POD_LABEL,
                Action.UPDATE_POD_SCALE_DOWN,
                Action.UPDATE_POD_TOLERATION,
            ],
            id="several at once",
        ),
    ],
)
def test_pod_change_is_named(old: PodBuilder, new: PodBuilder, actions: list[Action]) -> None:
    events = pod_update_events(old.obj(), new.obj())
    assert [event.action for event in events] == actions
    assert {event.resource for event in events} == {Resource.UNSCHEDULABLE_POD}


def test_events_of_a_bound_pod_are_of_an_assigned_pod() -> None:
    (event,) = pod_update_events(POD.obj(), POD.node("n").obj())
    assert event.resource is Resource.ASSIGNED_POD


@pytest.mark.parametrize(
    ("old", "new", "actions"),
    [
        pytest.param(NODE, NODE, [], id="a heartbeat"),
        pytest.param(NODE, NODE.image("busybox", 1), [], id="an image"),
        pytest.param(NODE, NODE.unschedulable(), [], id="cordoned"),
        pytest.param(NODE.unschedulable(), NODE, [Action.UPDATE_NODE_TAINT], id="uncordoned"),
        pytest.param(NODE, NODE.capacity(cpu="8"), [Action.UPDATE_NODE_ALLOCATABLE], id="resized"),
        pytest.param(NODE, NODE.label(a="b"), [Action.UPDATE_NODE_LABEL], id="relabelled"),
        pytest.param(NODE, NODE.taint("a"), [Action.UPDATE_NODE_TAINT], id="tainted"),
        pytest.param(
            NODE.unschedulable().taint("a"),
            NODE,
            [Action.UPDATE_NODE_TAINT],
            id="uncordoned and untainted is one event",
        ),
        pytest.param(
            NODE.merge({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
            NODE,
            [Action.UPDATE_NODE_CONDITION],
            id="became ready",
        ),
        pytest.param(NODE, NODE.annotation(a="b"), [Action.UPDATE_NODE_ANNOTATION], id="annotated"),
        pytest.param(
            NODE,
            NODE.merge({"status": {"declaredFeatures": ["f"]}}),
            [Action.UPDATE_NODE_DECLARED_FEATURE],
            id="declares a feature",
        ),
    ],
)
def test_node_change_is_named(old: NodeBuilder, new: NodeBuilder, actions: list[Action]) -> None:
    events = node_update_events(old.obj(), new.obj())
    assert [event.action for event in events] == actions
    assert all(event.resource is Resource.NODE for event in events)
