"""API calls for claims, of PreBind, PostFilter and Unreserve.

Follows dynamicresources.go: bindClaim, and extendeddynamicresources.go (v1.36). A claim is written
with all its fields as they were read; only changed ones are encoded again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from ksched.api.decoding import decode_written_claim, decoder_of
from ksched.api.devices import (
    EXTENDED_RESOURCE_CLAIM,
    FINALIZER,
    MAX_RESERVATIONS,
    AllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimSpec,
)
from ksched.api.objects import ContainerExtendedResourceRequest
from ksched.api.watched_kinds import watched_kind
from ksched.clock import rfc3339
from ksched.errors import ApiError, Conflict, NotFound
from ksched.framework import Handle, PodInfo

log = logging.getLogger(__name__)

TRIES = 5
PAUSE_SECONDS = 0.01

_decode_claim: Callable[[bytes], ResourceClaim] = decoder_of(watched_kind(ResourceClaim))
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_list = msgspec.json.Decoder(list[Raw]).decode
_encode = msgspec.json.Encoder().encode

Fields = dict[str, Raw]


class NotWritten(Exception):
    """A claim could not be written; the text is the pod's error."""

    def __init__(self, text: str, *, is_conflict: bool = False) -> None:
        super().__init__(text)
        self.is_conflict = is_conflict


class ClaimWriter:
    """Writes claims for one profile."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    async def bind(
        self,
        pods: Sequence[PodInfo],
        claim: ResourceClaim,
        allocation: AllocationResult | None,
    ) -> ResourceClaim:
        """Write the allocation of a claim, if it has none, and reserve it for pods.

        Pods for which there is no room are left out. Returns the claim as stored; raises
        ``NotWritten``.
        """
        for tried in range(1, TRIES + 1):
            try:
                if tried > 1:
                    claim = await self._read(claim)
                return await self._bind_once(pods, claim, allocation)
            except NotWritten as problem:
                if not problem.is_conflict or tried == TRIES:
                    raise
            await self._handle.clock.sleep(PAUSE_SECONDS)
        raise AssertionError("the last try returns or raises")

    async def _bind_once(
        self,
        pods: Sequence[PodInfo],
        claim: ResourceClaim,
        allocation: AllocationResult | None,
    ) -> ResourceClaim:
        key = claim.metadata.key
        if claim.metadata.deletion_timestamp is not None:
            raise NotWritten(f"claim {key} got deleted in the meantime")
        if allocation is not None:
            if claim.status.allocation is not None:
                raise NotWritten(f"claim {key} got allocated elsewhere in the meantime")
            fields = _decode_fields(claim.whole)
            if _add_finalizer(fields):
                claim = await self._put(claim, fields, "", f"add finalizer to claim {key}")
            what = f"add allocation and reservation to claim {key}"
        else:
            what = f"add reservation to claim {key}"
        allocated = allocation or claim.status.allocation
        if allocated is None:
            raise NotWritten(f"claim {key} got deallocated elsewhere in the meantime")
        now = rfc3339(self._handle.clock.wall()) if allocated.allocation_timestamp is None else None
        fields = _decode_fields(claim.whole)
        status = _decode_fields(fields.get("status", Raw(b"{}")))
        status["allocation"] = _allocation(status.get("allocation"), allocation, now)
        reserved = _decode_list(status.get("reservedFor", Raw(b"[]")))
        consumers = [
            ResourceClaimConsumerReference(resource="pods", name=pod.name, uid=pod.uid)
            for pod in pods
            if not claim.is_reserved_for(pod.uid)
        ]
        # The first writes for itself: if there is no room for it, that is the server's to say.
        del consumers[max(MAX_RESERVATIONS - len(reserved), 1) :]
        status["reservedFor"] = Raw(_encode([*reserved, *consumers]))
        fields["status"] = Raw(_encode(status))
        return await self._put(claim, fields, "status", what)

    async def create(
        self, pod: PodInfo, claim: ResourceClaim, spec: ResourceClaimSpec
    ) -> ResourceClaim:
        """Create the claim for a pod's extended resources; raises ``NotWritten``.

        It has the finalizer from the beginning, which saves the write that adds it.

        kube-scheduler: createExtendedResourceClaimInAPI.
        """
        owners = [{**_plain(one), "controller": True} for one in claim.metadata.owner_references]
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {
                "namespace": pod.namespace,
                "generateName": f"{pod.name}-extended-resources-",
                "annotations": {EXTENDED_RESOURCE_CLAIM: "true"},
                "finalizers": [FINALIZER],
                "ownerReferences": owners,
            },
            "spec": spec,
        }
        creates = self._handle.metrics.resourceclaim_creates
        try:
            created = await self._handle.client.create_resource_claim(pod.namespace, _encode(body))
        except ApiError as problem:
            creates.increment("failure")
            text = f"create claim for extended resources {pod.namespace}/: {problem.said}"
            raise NotWritten(text) from problem
        creates.increment("success")
        return _decode_claim(created)

    async def write_mappings(
        self,
        pod: PodInfo,
        claim: ResourceClaim,
        mappings: Sequence[ContainerExtendedResourceRequest],
    ) -> None:
        """Write which requests of the claim are for which container; raises ``NotWritten``.

        kube-scheduler: patchPodExtendedResourceClaimStatus.
        """
        what = f"pod {pod.key} ExtendedResourceClaimStatus"
        if not mappings:
            raise NotWritten(f"nil or empty request mappings, no update of {what}")
        status = {"resourceClaimName": claim.metadata.name, "requestMappings": mappings}
        body = _encode({"status": {"extendedResourceClaimStatus": status}})
        try:
            await self._handle.client.patch_pod_status(pod.namespace, pod.name, body)
        except ApiError as problem:
            raise NotWritten(f"update {what}: {problem.said}") from problem

    async def deallocate(self, claim: ResourceClaim) -> None:
        """Deallocate a claim; raises ``ApiError``."""
        fields = _decode_fields(claim.whole)
        status = _decode_fields(fields.get("status", Raw(b"{}")))
        for name in ("allocation", "reservedFor", "devices"):
            status.pop(name, None)
        fields["status"] = Raw(_encode(status))
        meta = claim.metadata
        await self._handle.client.update_resource_claim(
            meta.namespace, meta.name, _whole(fields), subresource="status"
        )

    async def release(self, claim: ResourceClaim, pod_uid: str) -> ResourceClaim:
        """Remove a reservation; the allocation stays. Raises ``ApiError``."""
        patch = {
            "metadata": {"uid": claim.metadata.uid},
            "status": {"reservedFor": [{"$patch": "delete", "uid": pod_uid}]},
        }
        meta = claim.metadata
        return _decode_claim(
            await self._handle.client.patch_resource_claim_status(
                meta.namespace, meta.name, _encode(patch)
            )
        )

    async def delete(self, claim: ResourceClaim) -> None:
        """Delete a claim created for extended resources; raises ``ApiError``.

        kube-scheduler: deleteClaim.
        """
        meta = claim.metadata
        for tried in range(1, TRIES + 1):
            try:
                if tried > 1:
                    raw = await self._handle.client.read_resource_claim(meta.namespace, meta.name)
                    claim = _decode_claim(raw)
                fields = _decode_fields(claim.whole)
                _remove_finalizer(fields)
                await self._handle.client.update_resource_claim(
                    meta.namespace, meta.name, _whole(fields)
                )
                await self._handle.client.delete_resource_claim(meta.namespace, meta.name)
            except NotFound:
                return
            except Conflict:
                if tried == TRIES:
                    raise
                await self._handle.clock.sleep(PAUSE_SECONDS)
            else:
                return

    async def _read(self, claim: ResourceClaim) -> ResourceClaim:
        meta = claim.metadata
        try:
            raw = await self._handle.client.read_resource_claim(meta.namespace, meta.name)
        except ApiError as problem:
            text = f"get updated claim {meta.key} after conflict: {problem.said}"
            raise NotWritten(text) from problem
        return _decode_claim(raw)

    async def _put(
        self, claim: ResourceClaim, fields: Fields, subresource: str, what: str
    ) -> ResourceClaim:
        meta = claim.metadata
        try:
            stored = await self._handle.client.update_resource_claim(
                meta.namespace, meta.name, _whole(fields), subresource=subresource
            )
        except ApiError as problem:
            is_conflict = isinstance(problem, Conflict)
            raise NotWritten(f"{what}: {problem.said}", is_conflict=is_conflict) from problem
        return decode_written_claim(stored)


def _allocation(stored: Raw | None, chosen: AllocationResult | None, now: str | None) -> Raw:
    if chosen is not None:
        return Raw(_encode(replace(chosen, allocation_timestamp=now)))
    assert stored is not None
    if now is None:
        return stored
    return Raw(_encode({**_decode_fields(stored), "allocationTimestamp": now}))


def _whole(fields: Fields) -> bytes:
    return _encode({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **fields})


def _add_finalizer(fields: Fields) -> bool:
    metadata = msgspec.json.decode(fields["metadata"])
    finalizers = metadata.get("finalizers") or []
    if FINALIZER in finalizers:
        return False
    metadata["finalizers"] = [*finalizers, FINALIZER]
    fields["metadata"] = Raw(_encode(metadata))
    return True


def _remove_finalizer(fields: Fields) -> None:
    metadata = msgspec.json.decode(fields["metadata"])
    finalizers = [one for one in metadata.get("finalizers") or [] if one != FINALIZER]
    metadata["finalizers"] = finalizers
    fields["metadata"] = Raw(_encode(metadata))


def _plain(struct: Any) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(struct)
    return plain
