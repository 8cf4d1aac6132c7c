"""The builders build what they say and never change what they started from."""

from __future__ import annotations

import pytest

from ksched.api.objects import LabelSelector
from ksched.testing import make_node, make_pod


def test_steps_do_not_change_earlier_builders() -> None:
    base = make_pod("web-0").req(cpu="1")
    first = base.req(memory="1Gi").label(app="a").host_port(80)
    second = base.label(app="b")
    assert base.obj().spec.containers[0].resources.requests == {"cpu": "1"}
    assert base.obj().metadata.labels == {}
    assert first.obj().metadata.labels == {"app": "a"}
    assert second.obj().metadata.labels == {"app": "b"}
    assert second.obj().spec.containers[0].ports == []


def test_json_belongs_to_the_caller() -> None:
    pod = make_pod().label(app="a")
    pod.to_dict()["metadata"]["labels"]["app"] = "changed"
    assert pod.to_dict()["metadata"]["labels"] == {"app": "a"}


def test_identity_follows_namespace_and_name() -> None:
    assert make_pod("a", "x").obj().metadata.uid == make_pod("a", "x").obj().metadata.uid
    assert make_pod("a", "x").obj().metadata.uid != make_pod("a", "y").obj().metadata.uid
    assert make_pod("a").obj().metadata.key == "default/a"
    assert make_pod("a").obj().metadata.uid != make_pod("a").obj().metadata.key
    assert make_pod("a").uid("u").obj().metadata.uid == "u"


def test_pod_where_it_may_go() -> None:
    spec = (
        make_pod()
        .node_selector({"example.com/disk": "ssd"}, zone="a")
        .toleration("gpu", "yes", "NoSchedule")
        .toleration()
        .required_node_affinity(("zone", "In", ["a"]), ("disk", "Exists"))
        .required_node_affinity(fields=[("metadata.name", "In", ["n1"])])
        .preferred_node_affinity(5, ("zone", "NotIn", ["b"]))
        .obj()
        .spec
    )
    assert spec.node_selector == {"example.com/disk": "ssd", "zone": "a"}
    assert [toleration.operator for toleration in spec.tolerations] == ["Equal", "Exists"]
    assert spec.affinity is not None
    assert spec.affinity.node_affinity is not None
    assert spec.affinity.node_affinity.required is not None
    first, second = spec.affinity.node_affinity.required.node_selector_terms
    assert [each.operator for each in first.match_expressions] == ["In", "Exists"]
    assert second.match_fields[0].values == ["n1"]
    assert spec.affinity.node_affinity.preferred is not None
    assert spec.affinity.node_affinity.preferred[0].weight == 5


def test_pod_among_others() -> None:
    spec = (
        make_pod()
        .pod_affinity("zone", {"app": "web"}, namespaces=["shop"])
        .pod_anti_affinity("host", expressions=[("app", "Exists")], weight=3, namespace_labels={})
        .spread("zone", {"app": "web"}, max_skew=2, min_domains=3, match_label_keys=["hash"])
        .spread("host", when_unsatisfiable="ScheduleAnyway")
        .obj()
        .spec
    )
    assert spec.affinity is not None
    assert spec.affinity.pod_affinity is not None
    assert spec.affinity.pod_affinity.required[0].namespaces == ["shop"]
    assert spec.affinity.pod_affinity.required[0].namespace_selector is None
    assert spec.affinity.pod_anti_affinity is not None
    away = spec.affinity.pod_anti_affinity.preferred[0]
    assert away.weight == 3
    assert away.pod_affinity_term.namespace_selector == LabelSelector()
    hard, soft = spec.topology_spread_constraints
    assert (hard.max_skew, hard.min_domains, hard.match_label_keys) == (2, 3, ["hash"])
    assert hard.label_selector == LabelSelector(match_labels={"app": "web"})
    assert soft.label_selector is None
    assert soft.when_unsatisfiable == "ScheduleAnyway"


def test_pod_and_its_life() -> None:
    pod = (
        make_pod()
        .priority(0)
        .preemption_policy("Never")
        .scheduler("mine")
        .gate("wait")
        .node("n1")
        .nominated("n2")
        .phase("Running")
        .condition("PodScheduled", "False", "Unschedulable")
        .owner("ReplicaSet", "web")
        .pvc("data", read_only=True)
        .created("2024-01-01T00:00:00Z")
        .started("2024-01-01T00:00:01Z")
        .terminating()
        .annotation(a="b")
        .resource_version("5")
        .obj()
    )
    assert (pod.spec.priority, pod.spec.preemption_policy) == (0, "Never")
    assert (pod.spec.scheduler_name, pod.spec.node_name) == ("mine", "n1")
    assert pod.spec.scheduling_gates[0].name == "wait"
    assert (pod.status.nominated_node_name, pod.status.phase) == ("n2", "Running")
    assert pod.status.conditions[0].reason == "Unschedulable"
    assert pod.metadata.owner_references[0].controller
    claim = pod.spec.volumes[0].persistent_volume_claim
    assert claim is not None
    assert (claim.claim_name, claim.read_only) == ("data", True)
    assert pod.status.start_time == "2024-01-01T00:00:01Z"
    assert pod.metadata.creation_timestamp == "2024-01-01T00:00:00Z"
    assert pod.metadata.deletion_timestamp is not None
    assert pod.metadata.annotations == {"a": "b"}
    assert pod.metadata.resource_version == "5"


def test_containers_are_told_apart() -> None:
    spec = (
        make_pod()
        .image("first")
        .container(cpu="1")
        .image("second")
        .host_port(53, "UDP", "10.0.0.1")
        .init(cpu="2")
        .init({"example.com/x": 1}, sidecar=True, image="side")
        .obj()
        .spec
    )
    assert [container.name for container in spec.containers] == ["c0", "c1"]
    assert [container.image for container in spec.containers] == ["first", "second"]
    port = spec.containers[1].ports[0]
    assert (port.host_port, port.protocol, port.host_ip) == (53, "UDP", "10.0.0.1")
    assert [container.restart_policy for container in spec.init_containers] == [None, "Always"]
    assert spec.init_containers[1].image == "side"


def test_node() -> None:
    node = (
        make_node("n1")
        .capacity({"nvidia.com/gpu": 2}, cpu="8", ephemeral_storage="1Ti")
        .label({"topology.kubernetes.io/zone": "a"}, disk="ssd")
        .taint("gpu", "yes")
        .taint("soft", effect="PreferNoSchedule")
        .unschedulable()
        .image("nginx", 100)
        .obj()
    )
    assert node.status.allocatable == {
        "cpu": "8",
        "memory": "32Gi",
        "pods": "110",
        "nvidia.com/gpu": 2,
        "ephemeral-storage": "1Ti",
    }
    assert node.metadata.labels["kubernetes.io/hostname"] == "n1"
    assert node.metadata.labels["disk"] == "ssd"
    assert [taint.effect for taint in node.spec.taints] == ["NoSchedule", "PreferNoSchedule"]
    assert node.spec.unschedulable
    assert node.status.images is not None
    assert node.status.images[0].names == ["nginx"]
    assert make_node("n1").to_dict()["status"]["capacity"] == {
        "cpu": "4",
        "memory": "32Gi",
        "pods": "110",
    }


def test_any_other_field_by_merge() -> None:
    pod = make_pod().label(a="1", b="2").merge({"metadata": {"labels": {"a": None}}})
    assert pod.obj().metadata.labels == {"b": "2"}
    with pytest.raises(ValueError, match="priority"):
        make_pod().merge({"spec": {"priority": "x"}}).obj()
