"""What a scheduler has written for a pod before it binds it: the decision cannot depend on that.

Volumes are reserved for claims, claims get the selected node, devices are allocated and reserved.
"""

from __future__ import annotations

from collections.abc import Iterable

from ksched.api.devices import ResourceClaim
from ksched.api.objects import Pod
from ksched.api.storage import (
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from ksched.api.watched_kinds import watched_kind
from ksched.cache.listers import Listers
from ksched.shadow.changes import Change


def own_writes(pod: Pod, before: Iterable[Change], listers: Listers) -> list[Change]:
    """Changes of the pod's own claims, of volumes reserved for them, and what builds on them.

    Not of claims that are bound before there is a consumer: others bind them.
    """
    devices = _resource_claims(pod)
    claims = {one for one in _volume_claims(pod) if _waits_for_consumer(one, listers)}
    if not claims and not devices:
        return []
    found, keys = [], set[tuple[str, str]]()
    for change in before:
        if change.key in keys or _is_own(change, claims, devices):
            keys.add(change.key)
            found.append(change)
    return found


def _is_own(change: Change, claims: set[str], devices: set[str]) -> bool:
    if change.old is None or change.new is None:
        return False
    struct, key = change.kind.struct, change.new.metadata.key
    if struct is PersistentVolumeClaim:
        return key in claims
    if struct is ResourceClaim:
        return key in devices
    if struct is PersistentVolume:
        reference = change.new.spec.claim_ref
        return reference is not None and f"{reference.namespace}/{reference.name}" in claims
    return False


def _volume_claims(pod: Pod) -> set[str]:
    namespace, name = pod.metadata.namespace, pod.metadata.name
    claims = set()
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            claims.add(f"{namespace}/{volume.persistent_volume_claim.claim_name}")
        elif volume.ephemeral is not None:
            claims.add(f"{namespace}/{name}-{volume.name}")
    return claims


def _resource_claims(pod: Pod) -> set[str]:
    namespace = pod.metadata.namespace
    names = {one.resource_claim_name for one in pod.spec.resource_claims}
    names |= {one.resource_claim_name for one in pod.status.resource_claim_statuses}
    return {f"{namespace}/{name}" for name in names if name}


def _waits_for_consumer(key: str, listers: Listers) -> bool:
    required = listers.required()
    claims = required.get(watched_kind(PersistentVolumeClaim))
    classes = required.get(watched_kind(StorageClass))
    if claims is None or classes is None:
        return False
    namespace, _, name = key.partition("/")
    claim = claims.get(name, namespace)
    known = None if claim is None else classes.get(claim.class_name)
    return known is not None and known.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
