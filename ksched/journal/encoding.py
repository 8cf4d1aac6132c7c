"""Objects to lines of a journal, without what a journal must not have.

Of pods and nodes the scheduler knows only what it reads: no environment, no commands, no tokens.
Annotations are left out but for those that a decision can depend on, so are the parameters of
device drivers, and Secrets and ConfigMaps whatever plugin watches them. Objects of kinds that
plugins add are redacted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ksched.api import devices, storage
from ksched.api.objects import Labels, Node, ObjectMeta, OwnerReference, Pod, PodStatus
from ksched.api.watched_kinds import WATCHED_KINDS, Unstructured, WatchedKind
from ksched.cache.pod_info import PodInfo
from ksched.groups.dialects import annotations as own
from ksched.groups.dialects import koordinator, volcano
from ksched.journal import records
from ksched.journal.records import PodRecord, Record, TemplateRecord
from ksched.redaction import redact
from ksched.scheduling.group_order import RANKS

KEPT_ANNOTATIONS: Final = frozenset(
    (
        storage.BIND_COMPLETED,
        storage.BOUND_BY_CONTROLLER,
        storage.SELECTED_NODE,
        storage.MIGRATED_PLUGINS,
        storage.BETA_STORAGE_CLASS,
        devices.EXTENDED_RESOURCE_CLAIM,
        devices.POD_CLAIM_NAME,
        own.NAME,
        own.MINIMUM,
        own.TIMEOUT,
        own.TOPOLOGY,
        koordinator.NAME,
        koordinator.MINIMUM,
        koordinator.TOTAL,
        koordinator.TIMEOUT,
        *volcano.MARKS,
        volcano.ROLE,
        *RANKS,
    )
)
LEFT_OUT: Final = frozenset((("", "secrets"), ("", "configmaps")))
_DROPPED: Final = frozenset(("opaque", "-whole", "whole"))
# Whether a pod was preempted; other conditions decide nothing.
_KEPT_CONDITION: Final = "DisruptionTarget"
_NULL: Final = Raw(b"null")


class AssumedPod(Struct, frozen=True, gc=False):
    """A pod that counts on its node before the watch has confirmed it."""

    pod: PodInfo


class ObjectItem(Struct, frozen=True, gc=False):
    """An object of any other kind, as it is now or was last."""

    kind: WatchedKind[Any]
    object: Any
    is_gone: bool = False


class ClaimsItem(Struct, frozen=True):
    """Changes of the resource claims that are in flight or assumed; ``None`` if no longer."""

    in_flight: Mapping[str, Any]
    assumed: Mapping[str, Any]


class VolumesItem(Struct, frozen=True):
    """Changes of assumed volumes and claims; ``None`` if no longer."""

    volumes: Mapping[str, Any]
    claims: Mapping[str, Any]


Item = Record | PodInfo | AssumedPod | ObjectItem | ClaimsItem | VolumesItem
"""What a line, or two, is made of; a pod as it is stands for itself."""


def is_left_out(kind: WatchedKind[Any]) -> bool:
    return (kind.resource.group, kind.resource.plural) in LEFT_OUT


def kept_annotations(given: Labels) -> Labels:
    if not given:
        return given
    return {key: value for key, value in given.items() if key in KEPT_ANNOTATIONS}


def bare_status(status: PodStatus) -> PodStatus:
    """The status without conditions that decide nothing, and without all messages."""
    if not status.conditions:
        return status
    kept = [replace(one, message="") for one in status.conditions if one.type == _KEPT_CONDITION]
    return replace(status, conditions=kept)


def is_same_pod(old: Pod, new: Pod) -> bool:
    """Whether two versions of a pod of one template, on one node or on none, are recorded alike."""
    before, after = old.metadata, new.metadata
    return (
        before.deletion_timestamp == after.deletion_timestamp
        and before.owner_references == after.owner_references
        and (
            before.annotations == after.annotations
            or kept_annotations(before.annotations) == kept_annotations(after.annotations)
        )
        and (old.status == new.status or bare_status(old.status) == bare_status(new.status))
    )


def is_same_node(old: Node, new: Node) -> bool:
    """Whether two versions of a node are recorded alike: mostly heartbeats."""
    return (
        old.spec == new.spec
        and old.status == new.status
        and old.metadata.labels == new.metadata.labels
        and old.metadata.uid == new.metadata.uid
    )


class Encoding:
    """Makes the lines of one file: a template is written before the first pod that has it.

    A ``whole`` encoding leaves nothing out; it is for a process of our own, not for a file.
    """

    def __init__(self, *, is_whole: bool = False) -> None:
        self._templates: set[int] = set()
        self._annotations = _all_annotations if is_whole else kept_annotations
        self._encoded = _wholly_encoded if is_whole else encoded
        self._scrubbed = _wholly_encoded_each if is_whole else _scrubbed

    def lines(self, items: Iterable[Item]) -> bytes:
        """The lines of several items, encoded at once."""
        made: list[Record] = []
        for item in items:
            if isinstance(item, PodInfo):
                self._add_pod(made, item)
            elif isinstance(item, Record):
                made.append(item)
            elif isinstance(item, AssumedPod):
                self._add_pod(made, item.pod, is_assumed=True)
            else:
                made.append(self._record_of(item))
        return records.encode_lines(made)

    def _add_pod(self, made: list[Record], info: PodInfo, *, is_assumed: bool = False) -> None:
        pod, template = info.pod, info.template
        if template.number not in self._templates:
            self._templates.add(template.number)
            made.append(
                TemplateRecord(
                    number=template.number,
                    namespace=template.namespace,
                    labels=template.labels,
                    controller=template.controller,
                    spec=template.spec,
                )
            )
        meta = pod.metadata
        # By position: this is called for every pod, and names take longer than the rest.
        made.append(
            PodRecord(
                info.uid,
                meta.name,
                template.number,
                info.node_name,
                is_assumed,
                meta.resource_version,
                meta.creation_timestamp,
                meta.deletion_timestamp,
                self._annotations(meta.annotations),
                _other_owners(meta.owner_references, template.controller),
                bare_status(pod.status),
            )
        )

    def _record_of(self, item: ObjectItem | ClaimsItem | VolumesItem) -> Record:
        if isinstance(item, ObjectItem):
            make = records.Removed if item.is_gone else records.Put
            kind = item.kind
            return make(kind=str(kind.resource), object=self._encoded(kind, item.object))
        scrubbed = self._scrubbed
        if isinstance(item, ClaimsItem):
            return records.Claims(scrubbed(item.in_flight), scrubbed(item.assumed))
        return records.Volumes(scrubbed(item.volumes), scrubbed(item.claims))


def _other_owners(
    owners: list[OwnerReference], controller: OwnerReference | None
) -> list[OwnerReference]:
    if not owners or (len(owners) == 1 and owners[0].controller):
        return []
    return [one for one in owners if one != controller]


def encoded(kind: WatchedKind[Any], obj: Any) -> Raw:
    """An object as JSON, without what is left out."""
    if isinstance(obj, Node):
        bare = Node(metadata=_bare_meta(obj.metadata), spec=obj.spec, status=obj.status)
        return Raw(records.encode(bare))
    content = obj.object if isinstance(obj, Unstructured) else obj
    plain = _scrub(msgspec.json.decode(msgspec.json.encode(content)))
    if kind not in WATCHED_KINDS:
        plain = redact(plain)
    return Raw(records.encode(plain))


def _wholly_encoded(kind: WatchedKind[Any], obj: Any) -> Raw:
    return Raw(records.encode(obj.object if isinstance(obj, Unstructured) else obj))


def _wholly_encoded_each(objects: Mapping[str, Any]) -> dict[str, Raw]:
    return {key: Raw(records.encode(obj)) for key, obj in objects.items()}


def _all_annotations(given: Labels) -> Labels:
    return given


def _bare_meta(meta: ObjectMeta) -> ObjectMeta:
    return replace(meta, annotations=kept_annotations(meta.annotations))


def _scrubbed(objects: Mapping[str, Any]) -> dict[str, Raw]:
    return {key: _NULL if obj is None else _plain(obj) for key, obj in objects.items()}


def _plain(obj: Any) -> Raw:
    return Raw(records.encode(_scrub(msgspec.json.decode(msgspec.json.encode(obj)))))


def _scrub(content: Any) -> Any:
    if isinstance(content, dict):
        kept: dict[str, Any] = {}
        for key, value in content.items():
            if key in _DROPPED:
                continue
            if key == "annotations" and isinstance(value, dict):
                kept[key] = kept_annotations(value)
            elif key != "managedFields":
                kept[key] = _scrub(value)
        return kept
    return [_scrub(one) for one in content] if isinstance(content, list) else content
