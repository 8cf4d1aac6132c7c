"""The claims that a pod uses, and the messages about problems with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ksched.api.storage import PersistentVolumeClaim
from ksched.framework import (
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    PodInfo,
    PodTemplate,
    QueueingHint,
    Resource,
    template_fact,
)


class ClaimUse(NamedTuple):
    """A volume of a pod that is a claim; an ephemeral one was created for this pod."""

    name: str
    is_ephemeral: bool


def claims_of(pod: PodInfo, *, ephemeral: bool = True) -> Sequence[ClaimUse]:
    """Return the claims behind a pod's volumes, in order, duplicates included.

    kube-scheduler: getPersistentVolumeClaimNameFromPod.
    """
    uses = _named_claims(pod.template)
    if not ephemeral or not ephemeral_volumes(pod.template):
        return uses
    found = []
    for volume in pod.template.spec.volumes:
        if volume.persistent_volume_claim is not None:
            found.append(ClaimUse(volume.persistent_volume_claim.claim_name, False))
        elif volume.ephemeral is not None:
            found.append(ClaimUse(f"{pod.name}-{volume.name}", True))
    return found


@template_fact
def _named_claims(template: PodTemplate) -> Sequence[ClaimUse]:
    return tuple(ClaimUse(name, False) for name in template.claim_names)


@template_fact
def ephemeral_volumes(template: PodTemplate) -> Sequence[str]:
    """Return the names of volumes whose claims are created for each pod."""
    return tuple(
        volume.name
        for volume in template.spec.volumes
        if volume.persistent_volume_claim is None and volume.ephemeral is not None
    )


@template_fact
def uses_claims(template: PodTemplate) -> bool:
    """kube-scheduler: podHasPVCs."""
    return bool(template.claim_names or ephemeral_volumes(template))


def is_made_for(claim: PersistentVolumeClaim, pod: PodInfo) -> bool:
    """Whether a claim of the right name is the one created for this pod's ephemeral volume."""
    controller = next((one for one in claim.metadata.owner_references if one.controller), None)
    return controller is not None and controller.uid == pod.uid


# -- messages -----------------------------------------------------------------------------------


def claim_not_found(name: str) -> str:
    return f'persistentvolumeclaim "{name}" not found'


def volume_not_found(name: str) -> str:
    return f'persistentvolume "{name}" not found'


def class_not_found(name: str) -> str:
    return f'storageclass.storage.k8s.io "{name}" not found'


def not_made_for(claim: PersistentVolumeClaim, pod: PodInfo) -> str:
    return f"PVC {claim.metadata.key} was not created for pod {pod.key} (pod is not owner)"


# -- wake-ups -----------------------------------------------------------------------------------


def claim_events(action: Action, *, ephemeral: bool = True) -> list[ClusterEventWithHint]:
    """Register for changes of claims that a pod uses.

    Named claims are the same for all pods of a template. The names of ephemeral ones begin with the
    pod's own, so their hint is per pod.

    kube-scheduler: isSchedulableAfterPersistentVolumeClaimChange,
    isSchedulableAfterPersistentVolumeClaimAdded, isSchedulableAfterPVCAdded.
    """
    event = ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, action)
    hints = [ClusterEventWithHint(event, _after_named_claim_change, per_pod=False)]
    if ephemeral:
        hints.append(ClusterEventWithHint(event, _after_ephemeral_claim_change))
    return hints


def _after_named_claim_change(
    pod: PodInfo, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim
) -> QueueingHint:
    """kube-scheduler: isPVCRequestedFromPod."""
    template, changed = pod.template, new.metadata
    is_used = changed.namespace == template.namespace and changed.name in template.claim_names
    return QueueingHint.QUEUE if is_used else QueueingHint.SKIP


def _after_ephemeral_claim_change(
    pod: PodInfo, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim
) -> QueueingHint:
    volumes = ephemeral_volumes(pod.template)
    if not volumes or new.metadata.namespace != pod.template.namespace:
        return QueueingHint.SKIP
    is_used = any(f"{pod.name}-{volume}" == new.metadata.name for volume in volumes)
    return QueueingHint.QUEUE if is_used else QueueingHint.SKIP
