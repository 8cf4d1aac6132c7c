"""Pods as their controllers make them: a new name and UID, the same labels and spec, no node."""

from __future__ import annotations

import random
from typing import Final

from msgspec.structs import replace

from ksched.api.objects import OwnerReference, Pod, PodStatus
from ksched.api.storage import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    PersistentVolumeClaim,
    PersistentVolumeClaimStatus,
)
from ksched.api.watched_kinds import watched_kind
from ksched.cache.listers import Lister, Listers
from ksched.clock import Clock, rfc3339

_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_LENGTH: Final = 5
STATEFUL_SET: Final = "StatefulSet"


def controller_of(pod: Pod) -> OwnerReference | None:
    return next((one for one in pod.metadata.owner_references if one.controller), None)


class NewPods:
    """Makes pods, and the claims of their ephemeral volumes; equal calls make equal names."""

    def __init__(self, listers: Listers, clock: Clock) -> None:
        # Names only: nothing is to be kept secret.
        self._random = random.Random(0)
        self._clock = clock
        self._made = 0
        self._claims: Lister[PersistentVolumeClaim] | None = listers.required().get(
            watched_kind(PersistentVolumeClaim)
        )

    def replacement(self, pod: Pod) -> Pod:
        """The pod that a controller makes when this one is gone."""
        controller = controller_of(pod)
        assert controller is not None
        if controller.kind == STATEFUL_SET:
            return self.named(pod, pod.metadata.name)
        return self.named(pod, self._name(controller.name))

    def another(self, pod: Pod, controller: OwnerReference) -> Pod:
        """One more pod like this one, of a controller other than a StatefulSet."""
        owned = replace(pod, metadata=replace(pod.metadata, owner_references=[controller]))
        return self.named(owned, self._name(controller.name))

    def named(self, pod: Pod, name: str) -> Pod:
        self._made += 1
        metadata = replace(
            pod.metadata,
            name=name,
            uid=f"what-if-{self._made}",
            creation_timestamp=rfc3339(self._clock.wall()),
            deletion_timestamp=None,
        )
        spec = replace(pod.spec, node_name="")
        new = Pod(metadata=metadata, spec=spec, status=PodStatus())
        self._make_claims(pod, new)
        return new

    def _name(self, prefix: str) -> str:
        letters = "".join(self._random.choice(_LETTERS) for _ in range(_LENGTH))
        return f"{prefix}-{letters}"

    def _make_claims(self, old: Pod, new: Pod) -> None:
        """A claim for each ephemeral volume, named after pod and volume."""
        if self._claims is None:
            return
        namespace, controller = new.metadata.namespace, _owner(new)
        for volume in new.spec.volumes:
            if volume.ephemeral is None:
                continue
            known = self._claims.get(f"{old.metadata.name}-{volume.name}", namespace)
            if known is not None:
                name = f"{new.metadata.name}-{volume.name}"
                self._claims.put(unbound(known, name, f"{new.metadata.uid}-{name}", [controller]))

    def make_claim(self, template: PersistentVolumeClaim, name: str, namespace: str) -> None:
        """Make a claim from a template of a StatefulSet, unless there is one of this name."""
        if self._claims is not None and self._claims.get(name, namespace) is None:
            metadata = replace(template.metadata, namespace=namespace)
            self._claims.put(unbound(replace(template, metadata=metadata), name, f"claim-{name}"))


def unbound(
    claim: PersistentVolumeClaim, name: str, uid: str, owners: list[OwnerReference] | None = None
) -> PersistentVolumeClaim:
    """A new claim with the wishes of another, bound to nothing."""
    known = {BIND_COMPLETED, BOUND_BY_CONTROLLER, SELECTED_NODE}
    metadata = replace(
        claim.metadata,
        name=name,
        uid=uid,
        annotations={k: v for k, v in claim.metadata.annotations.items() if k not in known},
        owner_references=owners or [],
    )
    return PersistentVolumeClaim(
        metadata=metadata,
        spec=replace(claim.spec, volume_name=""),
        status=PersistentVolumeClaimStatus(phase="Pending"),
    )


def _owner(pod: Pod) -> OwnerReference:
    meta = pod.metadata
    return OwnerReference(
        api_version="v1", kind="Pod", name=meta.name, uid=meta.uid, controller=True
    )
