"""Objects to lines of a journal, without what a journal must not have.

Of pods and nodes the scheduler knows only what it reads: no environment, no commands, no tokens.
Annotations are left out but for those that a decision can depend on, so are the parameters of
device drivers, and Secrets and ConfigMaps whatever plugin watches them. Objects of kinds that
plugins add are redacted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ksched.api import devices, storage
from ksched.api.objects import Labels, Node, ObjectMeta, Pod, PodStatus
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


class PodItem(Struct, frozen=True, gc=False):
    """A pod as it is now."""

    pod: PodInfo
    is_assumed: bool = False


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


Item = Record | PodItem | ObjectItem | ClaimsItem | VolumesItem


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
    """Whether two versions of a pod, on the same node or on none, are recorded alike."""
    before, after = old.metadata, new.metadata
    return (
        (old.spec is new.spec or old.spec == new.spec)
        and before.labels == after.labels
        and before.deletion_timestamp == after.deletion_timestamp
        and kept_annotations(before.annotations) == kept_annotations(after.annotations)
        and before.owner_references == after.owner_references
        and bare_status(old.status) == bare_status(new.status)
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
    """Makes the lines of one file: a template is written before the first pod that has it."""

    def __init__(self) -> None:
        self._templates: set[int] = set()

    def lines(self, item: Item) -> Iterator[bytes]:
        if isinstance(item, Record):
            yield records.encode(item)
        elif isinstance(item, PodItem):
            yield from self._pod(item)
        elif isinstance(item, ObjectItem):
            make = records.Removed if item.is_gone else records.Put
            kind = item.kind
            yield records.encode(make(kind=str(kind.resource), object=encoded(kind, item.object)))
        elif isinstance(item, ClaimsItem):
            yield records.encode(
                records.Claims(in_flight=_scrubbed(item.in_flight), assumed=_scrubbed(item.assumed))
            )
        else:
            yield records.encode(
                records.Volumes(volumes=_scrubbed(item.volumes), claims=_scrubbed(item.claims))
            )

    def _pod(self, item: PodItem) -> Iterator[bytes]:
        info, template = item.pod, item.pod.template
        if template.number not in self._templates:
            self._templates.add(template.number)
            yield records.encode(
                TemplateRecord(
                    number=template.number,
                    namespace=template.namespace,
                    labels=template.labels,
                    controller=template.controller,
                    spec=template.spec,
                )
            )
        meta, controller = info.pod.metadata, template.controller
        yield records.encode(
            PodRecord(
                uid=info.uid,
                name=meta.name,
                template=template.number,
                node=info.node_name,
                is_assumed=item.is_assumed,
                version=meta.resource_version,
                created=meta.creation_timestamp,
                deleted=meta.deletion_timestamp,
                annotations=kept_annotations(meta.annotations),
                owners=[one for one in meta.owner_references if one != controller],
                status=bare_status(info.pod.status),
            )
        )


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


def all_lines(encoding: Encoding, items: Iterable[Item]) -> bytes:
    """The lines of several items."""
    return b"".join(line + b"\n" for item in items for line in encoding.lines(item))
