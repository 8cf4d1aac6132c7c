"""The claims of a pod."""

from __future__ import annotations

from collections.abc import Mapping

from ksched.api.devices import ResourceClaim
from ksched.api.objects import Pod, PodResourceClaim
from ksched.devices.claim_store import ClaimStore
from ksched.framework import PodInfo


class Unresolved(Exception):
    """A claim of a pod cannot be used; the message names it and the reason."""


def claims_of(pod: Pod, store: ClaimStore) -> list[ResourceClaim]:
    """A pod's claims in the order of its spec; raises ``Unresolved`` with the first problem.

    kube-scheduler: foreachPodResourceClaim.
    """
    found = []
    namespace, made = pod.metadata.namespace, _made_for(pod)
    for entry in pod.spec.resource_claims:
        name = _claim_name(pod, entry, made)
        if name is None:
            continue
        claim = store.get(name, namespace)
        if claim is None:
            raise Unresolved(f'could not find ResourceClaim "{namespace}/{name}"')
        if claim.metadata.deletion_timestamp is not None:
            raise Unresolved(f'resourceclaim "{name}" is being deleted')
        if entry.resource_claim_name is None and not _is_made_for(claim, pod):
            text = f"was not created for Pod {pod.metadata.key} (Pod is not owner)"
            raise Unresolved(f"ResourceClaim {claim.metadata.key} {text}")
        found.append(claim)
    return found


def claim_keys(pod: PodInfo) -> list[str]:
    """The keys of a pod's claims whose names are known."""
    found, made = [], _made_for(pod.pod)
    for entry in pod.spec.resource_claims:
        try:
            name = _claim_name(pod.pod, entry, made)
        except Unresolved:
            continue
        if name is not None:
            found.append(f"{pod.namespace}/{name}")
    return found


def _made_for(pod: Pod) -> Mapping[str, str | None]:
    """The names of the claims that were made for a pod, by name in its spec; there may be many."""
    statuses = pod.status.resource_claim_statuses
    # Of several with one name the first counts.
    return {one.name: one.resource_claim_name for one in reversed(statuses)}


def _claim_name(pod: Pod, entry: PodResourceClaim, made: Mapping[str, str | None]) -> str | None:
    """The name of a claim, ``None`` if none is needed. kube-scheduler: resourceclaim.Name."""
    if entry.resource_claim_name is not None:
        return entry.resource_claim_name
    if entry.resource_claim_template_name is None:
        text = "none of the supported fields are set"
        raise Unresolved(f'pod "{pod.metadata.key}", spec.resourceClaim "{entry.name}": {text}')
    if entry.name in made:
        return made[entry.name]
    raise Unresolved(f'pod "{pod.metadata.key}": ResourceClaim not created yet')


def _is_made_for(claim: ResourceClaim, pod: Pod) -> bool:
    """kube-scheduler: resourceclaim.IsForPod."""
    uid = pod.metadata.uid
    return any(one.controller and one.uid == uid for one in claim.metadata.owner_references)
