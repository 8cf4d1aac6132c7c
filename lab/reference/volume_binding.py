"""VolumeBinding, spelled out."""

from __future__ import annotations

from collections.abc import Sequence

from ksched.api.objects import (
    Node,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from ksched.api.quantity import parse_quantity
from ksched.api.storage import (
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    StorageClass,
    VolumeNodeAffinity,
)
from lab.reference.label_matching import selector_matches
from lab.reference.matching import any_term_matches
from lab.reference.volume_limits import find_csi_node
from lab.reference.volumes import (
    claim_name,
    class_of_claim,
    find_claim,
    find_class,
    find_volume,
    is_owned,
)
from lab.reference.world import UNRESOLVABLE, Verdict, World

_SELECTED = "volume.kubernetes.io/selected-node"
_TOPOLOGY_KEYS = {
    "kubernetes.io/aws-ebs": "topology.ebs.csi.aws.com/zone",
    "kubernetes.io/gce-pd": "topology.gke.io/zone",
    "kubernetes.io/cinder": "topology.cinder.csi.openstack.org/zone",
}
_ZONE = "topology.kubernetes.io/zone"
_REGION = "topology.kubernetes.io/region"
_BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
_BETA_REGION = "failure-domain.beta.kubernetes.io/region"


def pre_filter_binding(world: World) -> Verdict:
    pod = world.pod
    for volume in pod.spec.volumes:
        named = claim_name(pod, volume)
        if named is None:
            continue
        name, is_ephemeral = named
        claim = find_claim(world, name, pod.metadata.namespace)
        reason = ""
        if claim is None and is_ephemeral:
            waiting = "waiting for ephemeral volume controller to create the persistentvolumeclaim"
            reason = f'{waiting} "{name}"'
        elif claim is None:
            reason = f'persistentvolumeclaim "{name}" not found'
        elif claim.status.phase == "Lost":
            missing = f'non-existent persistentvolume "{claim.spec.volume_name}"'
            reason = f'persistentvolumeclaim "{name}" bound to {missing}'
        elif claim.metadata.deletion_timestamp is not None:
            reason = f'persistentvolumeclaim "{name}" is being deleted'
        elif is_ephemeral and not is_owned(claim, pod):
            whose = f"was not created for pod {pod.metadata.key} (pod is not owner)"
            reason = f"PVC {claim.metadata.key} {whose}"
        if reason:
            return UNRESOLVABLE, [reason]
    if any(not _is_bound(claim) and not _waits(world, claim) for claim in _claims(world)):
        return UNRESOLVABLE, ["pod has unbound immediate PersistentVolumeClaims"]
    return None


def filter_binding(world: World, node: Node) -> Verdict:
    reasons = []
    bound = [claim for claim in _claims(world) if _is_bound(claim)]
    delayed = [claim for claim in _claims(world) if not _is_bound(claim)]
    is_missing = False
    for claim in bound:
        volume = find_volume(world, claim.spec.volume_name)
        if volume is None:
            is_missing = True
            break
        if not _reaches(_as_known_on(world, volume, node), node):
            reasons.append("node(s) didn't match PersistentVolume's node affinity")
            break
    reasons += _problems_of_delayed(world, delayed, node)
    if is_missing:
        pvs = "one or more pvc(s) bound to non-existent pv(s)"
        reasons.append(f"node(s) unavailable due to {pvs}")
    return (UNRESOLVABLE, reasons) if reasons else None


def _problems_of_delayed(
    world: World, claims: Sequence[PersistentVolumeClaim], node: Node
) -> list[str]:
    no_volume = ["node(s) didn't find available persistent volumes to bind"]
    for claim in claims:
        if claim.metadata.annotations.get(_SELECTED, node.metadata.name) != node.metadata.name:
            return no_volume
    for claim in match_claims(world, node)[1]:
        storage_class = find_class(world, class_of_claim(claim))
        assert storage_class is not None
        if storage_class.provisioner in ("", "kubernetes.io/no-provisioner"):
            return no_volume
        if not _allows(storage_class, node):
            return no_volume
        if not _has_room(world, storage_class, claim, node):
            return ["node(s) did not have enough free storage"]
    return []


def match_claims(
    world: World, node: Node
) -> tuple[list[tuple[PersistentVolumeClaim, PersistentVolume]], list[PersistentVolumeClaim]]:
    """Waiting claims of the pod with the volumes they get on a node, and those without."""
    matched: list[tuple[PersistentVolumeClaim, PersistentVolume]] = []
    provisioned: list[PersistentVolumeClaim] = []
    unmatched: list[PersistentVolumeClaim] = []
    for claim in _claims(world):
        if not _is_bound(claim):
            is_selected = _SELECTED in claim.metadata.annotations
            (provisioned if is_selected else unmatched).append(claim)
    chosen: set[str] = set()
    for claim in sorted(unmatched, key=_size):
        match = _smallest(world, claim, node, chosen)
        if match is None:
            provisioned.append(claim)
        else:
            chosen.add(match.metadata.name)
            matched.append((claim, match))
    return matched, provisioned


def _smallest(
    world: World, claim: PersistentVolumeClaim, node: Node, chosen: set[str]
) -> PersistentVolume | None:
    best: PersistentVolume | None = None
    for volume in sorted(world.others.volumes, key=lambda one: one.metadata.name):
        spec, wanted = volume.spec, claim.spec
        if volume.metadata.name in chosen or spec.storage_class_name != class_of_claim(claim):
            continue
        if spec.claim_ref is not None and not volume.is_bound_to(claim):
            continue
        if _capacity(volume) < _size(claim) or spec.volume_mode != wanted.volume_mode:
            continue
        if spec.volume_attributes_class_name != wanted.volume_attributes_class_name:
            continue
        if volume.metadata.deletion_timestamp is not None:
            continue
        if spec.claim_ref is not None:
            return volume if _reaches(volume, node) else None
        if volume.status.phase != "Available" or not _reaches(volume, node):
            continue
        if wanted.selector and not selector_matches(wanted.selector, volume.metadata.labels):
            continue
        if not set(wanted.access_modes) <= set(spec.access_modes):
            continue
        if best is None or _capacity(volume) < _capacity(best):
            best = volume
    return best


def _claims(world: World) -> list[PersistentVolumeClaim]:
    found = []
    for volume in world.pod.spec.volumes:
        named = claim_name(world.pod, volume)
        claim = find_claim(world, named[0], world.pod.metadata.namespace) if named else None
        if claim is not None:
            found.append(claim)
    return found


def _is_bound(claim: PersistentVolumeClaim) -> bool:
    completed = "pv.kubernetes.io/bind-completed" in claim.metadata.annotations
    return claim.spec.volume_name != "" and completed


def _waits(world: World, claim: PersistentVolumeClaim) -> bool:
    storage_class = find_class(world, class_of_claim(claim))
    if storage_class is None or claim.spec.volume_name:
        return False
    return storage_class.volume_binding_mode == "WaitForFirstConsumer"


def _size(claim: PersistentVolumeClaim) -> float:
    return float(parse_quantity(claim.spec.resources.requests.get("storage", 0)))


def _capacity(volume: PersistentVolume) -> float:
    return float(parse_quantity(volume.spec.capacity.get("storage", 0)))


def _reaches(volume: PersistentVolume, node: Node) -> bool:
    if volume.spec.node_affinity is None or volume.spec.node_affinity.required is None:
        return True
    for term in volume.spec.node_affinity.required.node_selector_terms:
        # The node's name is not told, and then what a term says of it is not asked.
        labels_only = NodeSelectorTerm(match_expressions=term.match_expressions)
        if not term.match_expressions and term.match_fields:
            return True
        if any_term_matches([labels_only], node):
            return True
    return False


def _as_known_on(world: World, volume: PersistentVolume, node: Node) -> PersistentVolume:
    """The volume as the CSI driver on a node knows it: zones under the driver's own label."""
    csi_node = find_csi_node(world, node)
    annotation = "storage.alpha.kubernetes.io/migrated-plugins"
    migrated = csi_node.metadata.annotations.get(annotation, "") if csi_node is not None else ""
    sources = {
        "kubernetes.io/aws-ebs": volume.spec.aws_elastic_block_store,
        "kubernetes.io/gce-pd": volume.spec.gce_persistent_disk,
        "kubernetes.io/cinder": volume.spec.cinder,
    }
    for plugin, source in sources.items():
        if source is not None and plugin in migrated.split(","):
            return _in_zones_of_driver(volume, _TOPOLOGY_KEYS[plugin])
    return volume


def _in_zones_of_driver(volume: PersistentVolume, key: str) -> PersistentVolume:
    affinity = volume.spec.node_affinity or VolumeNodeAffinity()
    terms = affinity.required.node_selector_terms if affinity.required is not None else []
    used = {wanted.key for term in terms for wanted in term.match_expressions}
    zone, region = _ZONE, _REGION
    for known in (used, volume.metadata.labels):
        if _ZONE in known:
            break
        if _BETA_ZONE in known:
            zone, region = _BETA_ZONE, _BETA_REGION
            break
    wanted_zones = [
        value
        for term in terms
        for wanted in term.match_expressions
        for value in wanted.values
        if wanted.key == zone
    ]
    renamed = {_BETA_REGION: _REGION} if region == _BETA_REGION else {}
    if wanted_zones:
        renamed[zone] = key
    changed = [
        NodeSelectorTerm(
            match_fields=term.match_fields,
            match_expressions=[
                NodeSelectorRequirement(
                    key=renamed.get(wanted.key, wanted.key),
                    operator=wanted.operator,
                    values=wanted.values,
                )
                for wanted in term.match_expressions
            ],
        )
        for term in terms
    ]
    zones = [one.strip() for one in volume.metadata.labels.get(zone, "").split("__")]
    zones = [one for one in zones if one]
    if not wanted_zones and zones:
        inside = NodeSelectorRequirement(key=key, operator="In", values=zones)
        changed = [
            NodeSelectorTerm(
                match_fields=term.match_fields,
                match_expressions=[*term.match_expressions, inside],
            )
            for term in changed or [NodeSelectorTerm()]
        ]
    if not changed:
        return volume
    required = NodeSelector(node_selector_terms=changed)
    spec = PersistentVolumeSpec(node_affinity=VolumeNodeAffinity(required=required))
    return PersistentVolume(metadata=volume.metadata, spec=spec)


def _allows(storage_class: StorageClass, node: Node) -> bool:
    if not storage_class.allowed_topologies:
        return True
    for term in storage_class.allowed_topologies:
        wanted = term.match_label_expressions
        if wanted and all(node.metadata.labels.get(one.key) in one.values for one in wanted):
            return True
    return False


def _has_room(
    world: World, storage_class: StorageClass, claim: PersistentVolumeClaim, node: Node
) -> bool:
    reports = [
        driver.spec.storage_capacity
        for driver in world.others.csi_drivers
        if driver.metadata.name == storage_class.provisioner
    ]
    if not any(reports) or "storage" not in claim.spec.resources.requests:
        return True
    for capacity in world.others.capacities:
        limit = capacity.maximum_volume_size
        limit = capacity.capacity if limit is None else limit
        if capacity.storage_class_name != storage_class.metadata.name or limit is None:
            continue
        if float(parse_quantity(limit)) < _size(claim):
            continue
        if selector_matches(capacity.node_topology, node.metadata.labels):
            return True
    return False
