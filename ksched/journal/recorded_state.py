"""The state of a journal at one record, in a copy of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from ksched.api.decoding import decoder_of
from ksched.api.devices import AllocationResult, ResourceClaim
from ksched.api.objects import Node, ObjectMeta, Pod
from ksched.api.storage import PersistentVolume, PersistentVolumeClaim
from ksched.api.watched_kinds import WatchedKind, watched_kind
from ksched.cache.pod_info import PodInfo
from ksched.cache.storage import volumes
from ksched.cache.storage.volumes import AssumedLister, Volumes
from ksched.devices import claim_store
from ksched.devices.claim_store import ClaimStore
from ksched.errors import InvalidObject
from ksched.explain.cluster_copy import ClusterCopy
from ksched.journal import records
from ksched.journal.records import AnyRecord, PodRecord, TemplateRecord

MAX_NOTES: Final = 20
_decode_allocation = msgspec.json.Decoder(AllocationResult).decode
_decode_claim = decoder_of(watched_kind(ResourceClaim))
_decode_volume = decoder_of(watched_kind(PersistentVolume))
_decode_volume_claim = decoder_of(watched_kind(PersistentVolumeClaim))
_NULL: Final = b"null"


class RecordedState:
    """Applies records to a copy of the cluster; decisions are the caller's."""

    def __init__(self, copy: ClusterCopy) -> None:
        self._copy = copy
        copy.listers.complete()
        self._templates: dict[int, TemplateRecord] = {}
        kinds = [watched_kind(Node), *copy.listers.required()]
        self._kinds: dict[str, tuple[WatchedKind[Any], Callable[[bytes | Raw], Any]]] = {
            str(kind.resource): (kind, decoder_of(kind)) for kind in kinds
        }
        self._claims = copy.listers.known_view(ClaimStore)
        self._volumes = copy.listers.known_view(Volumes)
        self.notes: list[str] = []
        """Records that could not be used."""
        self._apply_by_type: Mapping[type, Callable[[Any], None]] = {
            TemplateRecord: self._template,
            PodRecord: self._pod,
            records.Assumed: lambda one: self.assume(one.uid, one.node),
            records.Bound: self._bound,
            records.Off: self._off,
            records.Gone: self._gone,
            records.Put: self._object,
            records.Removed: self._object,
            records.Nominated: self._nominated,
            records.Claims: self._apply_claims,
            records.Volumes: self._apply_volumes,
        }

    def apply(self, record: AnyRecord) -> bool:
        """Apply a record; False if it is none of a change."""
        apply = self._apply_by_type.get(type(record))
        if apply is None:
            return False
        try:
            apply(record)
        except (InvalidObject, msgspec.MsgspecError, KeyError) as problem:
            if len(self.notes) < MAX_NOTES:
                self.notes.append(f"record {type(record).__name__} cannot be used: {problem}")
        return True

    def pending(self, uid: str) -> PodInfo | None:
        return self._copy.pending.get(uid)

    def assume(self, uid: str, node: str) -> None:
        """Count a pending pod on a node."""
        pod = self._copy.pending.get(uid)
        if pod is None or self._copy.cache.get_pod(uid) is not None:
            return
        self._copy.cache.assume_pod(pod.on_node(node))

    # -- pods -----------------------------------------------------------------------------------

    def _template(self, record: TemplateRecord) -> None:
        self._templates[record.number] = record

    def _pod(self, record: PodRecord) -> None:
        copy = self._copy
        info = copy.cache.pod_info(self._decoded(record))
        if not record.node:
            copy.pending.put(info)
            if copy.groups.is_on:
                copy.groups.pending(info, is_ours=True)
        elif record.is_assumed:
            copy.cache.assume_pod(info)
        else:
            copy.cache.add_pod(info)
            copy.pending.remove(record.uid)

    def _decoded(self, record: PodRecord) -> Pod:
        template = self._templates[record.template]
        owners = list(record.owners)
        if template.controller is not None:
            owners.append(template.controller)
        spec = template.spec
        metadata = ObjectMeta(
            name=record.name,
            namespace=template.namespace,
            uid=record.uid,
            resource_version=record.version,
            labels=template.labels,
            annotations=record.annotations,
            owner_references=owners,
            creation_timestamp=record.created,
            deletion_timestamp=record.deleted,
        )
        return Pod(
            metadata=metadata,
            spec=replace(spec, node_name=record.node) if record.node else spec,
            status=record.status,
        )

    def _bound(self, record: records.Bound) -> None:
        info = self._copy.cache.get_pod(record.uid)
        if info is not None:
            self._copy.cache.add_pod(info)
        self._copy.pending.remove(record.uid)

    def _off(self, record: records.Off) -> None:
        self._copy.cache.remove_pod(record.uid)

    def _gone(self, record: records.Gone) -> None:
        self._copy.pending.remove(record.uid)
        if self._copy.groups.is_on:
            self._copy.groups.gone(record.uid)

    def _nominated(self, record: records.Nominated) -> None:
        nominator = self._copy.nominator
        for pod in nominator.nominated_pods_for_node(record.node):
            nominator.delete(pod.uid)
        for uid in record.uids:
            pending = self._copy.pending.get(uid)
            if pending is not None:
                nominator.add(pending, record.node)

    # -- other objects --------------------------------------------------------------------------

    def _object(self, record: records.Put | records.Removed) -> None:
        known = self._kinds.get(record.kind)
        if known is None:
            return
        kind, decode = known
        obj, is_gone = decode(record.object), isinstance(record, records.Removed)
        if kind.struct is not Node:
            lister = self._copy.listers.required()[kind]
            (lister.remove if is_gone else lister.put)(obj)
        elif is_gone:
            self._copy.cache.remove_node(obj.metadata.name)
        else:
            self._copy.cache.add_node(obj)

    def _apply_claims(self, record: records.Claims) -> None:
        if self._claims is None:
            return
        for uid, raw in record.in_flight.items():
            if bytes(raw) == _NULL:
                self._claims.remove_in_flight(uid)
            else:
                self._claims.add_in_flight(uid, _decode_allocation(raw))
        for key, raw in record.assumed.items():
            if bytes(raw) == _NULL:
                self._claims.forget(key)
                continue
            try:
                self._claims.assume(_decode_claim(raw))
            except claim_store.NotAssumed:
                # The watch has delivered it since.
                continue

    def _apply_volumes(self, record: records.Volumes) -> None:
        if self._volumes is not None:
            _assume_all(self._volumes.volumes, record.volumes, _decode_volume)
            _assume_all(self._volumes.claims, record.claims, _decode_volume_claim)


def _assume_all(
    lister: AssumedLister[Any],
    objects: Mapping[str, Raw],
    decode: Callable[[bytes | Raw], Any],
) -> None:
    for key, raw in objects.items():
        if bytes(raw) != _NULL:
            try:
                lister.assume(decode(raw))
            except volumes.NotAssumed:
                continue
        elif key in lister.assumed:
            lister.restore(lister.assumed[key])
