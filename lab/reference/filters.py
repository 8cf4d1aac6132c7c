"""Whether a pod may run on a node, one function per plugin."""

from __future__ import annotations

from collections.abc import Callable

from ksched.api.objects import Node, Taint
from ksched.api.pod_resources import (
    amounts,
    is_extended_resource_name,
    is_scalar_resource_name,
    pod_requests,
)
from lab.reference.affinity import filter_affinity
from lab.reference.matching import (
    any_term_matches,
    host_ports,
    nodes_named_by_affinity,
    own_affinity,
    tolerated,
)
from lab.reference.spread import filter_spread
from lab.reference.volume_binding import filter_binding, pre_filter_binding
from lab.reference.volume_limits import (
    filter_azure_disk,
    filter_ebs,
    filter_gce_pd,
    filter_limits,
)
from lab.reference.volumes import (
    filter_restrictions,
    filter_zone,
    pre_filter_restrictions,
    pre_filter_zone,
)
from lab.reference.world import (
    UNRESOLVABLE,
    UNSCHEDULABLE,
    ReferenceProfile,
    Verdict,
    World,
)


def _node_unschedulable(world: World, node: Node) -> Verdict:
    cordoned = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
    if node.spec.unschedulable and not tolerated(cordoned, world.pod.spec.tolerations):
        return UNRESOLVABLE, ["node(s) were unschedulable"]
    return None


def _node_name(world: World, node: Node) -> Verdict:
    if world.pod.spec.node_name not in ("", node.metadata.name):
        return UNRESOLVABLE, ["node(s) didn't match the requested node name"]
    return None


def _taint_toleration(world: World, node: Node) -> Verdict:
    for taint in node.spec.taints:
        hard = taint.effect in ("NoSchedule", "NoExecute")
        if hard and not tolerated(taint, world.pod.spec.tolerations):
            return UNRESOLVABLE, ["node(s) had untolerated taint(s)"]
    return None


def _node_affinity(world: World, node: Node) -> Verdict:
    added = world.profile.added_affinity.required
    if added is not None and not any_term_matches(added.node_selector_terms, node):
        return UNRESOLVABLE, ["node(s) didn't match scheduler-enforced node affinity"]
    mismatch = UNRESOLVABLE, ["node(s) didn't match Pod's node affinity/selector"]
    for key, value in world.pod.spec.node_selector.items():
        if node.metadata.labels.get(key) != value:
            return mismatch
    own = own_affinity(world.pod.spec).required
    if own is not None and not any_term_matches(own.node_selector_terms, node):
        return mismatch
    return None


def _node_affinity_conflict(world: World) -> Verdict:
    searched = nodes_named_by_affinity(world.pod)
    if searched is not None and not searched:
        return UNRESOLVABLE, ["pod affinity terms conflict"]
    return None


def _node_ports(world: World, node: Node) -> Verdict:
    used = [port for pod in world.pods_on(node) for port in host_ports(pod.spec)]
    for protocol, ip, port in host_ports(world.pod.spec):
        for used_protocol, used_ip, used_port in used:
            same = (protocol, port) == (used_protocol, used_port)
            if same and (ip == used_ip or ip == "0.0.0.0" or used_ip == "0.0.0.0"):
                return UNSCHEDULABLE, ["node(s) didn't have free ports for the requested pod ports"]
    return None


def _node_resources_fit(world: World, node: Node) -> Verdict:
    allocatable = amounts(node.status.allocatable)
    used = world.used(node)
    requests = pod_requests(world.pod.spec)
    reasons, hopeless = [], False
    if len(world.pods_on(node)) + 1 > allocatable.get("pods", 0):
        reasons.append("Too many pods")
    scalars = sorted(name for name in requests if is_scalar_resource_name(name))
    for name in ("cpu", "memory", "ephemeral-storage", *scalars):
        wanted = requests.get(name, 0)
        if wanted == 0 or _is_ignored(name, world.profile):
            continue
        if wanted > allocatable.get(name, 0) - used.get(name, 0):
            reasons.append(f"Insufficient {name}")
            hopeless = hopeless or wanted > allocatable.get(name, 0)
    if not reasons:
        return None
    return UNRESOLVABLE if hopeless else UNSCHEDULABLE, reasons


def _is_ignored(name: str, profile: ReferenceProfile) -> bool:
    if not is_extended_resource_name(name):
        return False
    group = name.split("/", 1)[0]
    return name in profile.ignored_resources or group in profile.ignored_resource_groups


def _node_declared_features(world: World, node: Node) -> Verdict:
    spec = world.pod.spec
    required = set()
    for container in (*spec.containers, *spec.init_containers):
        if any(rule.action == "RestartAllContainers" for rule in container.restart_policy_rules):
            required.add("RestartAllContainersOnContainerExits")
    if spec.host_network and spec.host_users is False:
        required.add("UserNamespacesHostNetworkSupport")
    if required.issubset(node.status.declared_features):
        return None
    return UNRESOLVABLE, ["node(s) didn't match Pod's required features"]


FILTERS: dict[str, Callable[[World, Node], Verdict]] = {
    "NodeUnschedulable": _node_unschedulable,
    "NodeName": _node_name,
    "TaintToleration": _taint_toleration,
    "NodeAffinity": _node_affinity,
    "NodePorts": _node_ports,
    "NodeResourcesFit": _node_resources_fit,
    "VolumeRestrictions": filter_restrictions,
    "NodeVolumeLimits": filter_limits,
    "EBSLimits": filter_ebs,
    "GCEPDLimits": filter_gce_pd,
    "AzureDiskLimits": filter_azure_disk,
    "VolumeBinding": filter_binding,
    "VolumeZone": filter_zone,
    "PodTopologySpread": filter_spread,
    "InterPodAffinity": filter_affinity,
    "NodeDeclaredFeatures": _node_declared_features,
}

PRE_FILTERS: dict[str, Callable[[World], Verdict]] = {
    "NodeAffinity": _node_affinity_conflict,
    "VolumeRestrictions": pre_filter_restrictions,
    "VolumeBinding": pre_filter_binding,
    "VolumeZone": pre_filter_zone,
}
"""What rejects a pod on all nodes at once."""
