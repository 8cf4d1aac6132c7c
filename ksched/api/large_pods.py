"""Pods of up to 1.5 MB, such as one with six thousand containers: they must not stop anything.

A large pod is decoded in steps. Every change of its status delivers all of it again, therefore
versions of a pod share its spec as long as it is the same apart from the node, and what is computed
of a spec is kept with it (``facts_of``).
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any, get_args, get_origin
from weakref import WeakValueDictionary

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from ksched.api.objects import Object, ObjectMeta, Pod, PodSpec, PodStatus
from ksched.steps import Steps

LARGE_POD_BYTES = 65_536
"""Above it, looking for a spec that is known costs less than decoding it."""

_STEP_BYTES = 65_536
"""JSON that is decoded in one step: about a millisecond."""

_FACTS, _UNASSIGNED = "facts", "unassigned"


class LargePodSpec(PodSpec, frozen=True, gc=True, weakref=True, dict=True):
    """A spec that all versions of its pod share."""


class LargePod(Pod, frozen=True, gc=True, dict=True):
    """A large pod whose containers have a status: what it occupies follows from both."""


def facts_of(owner: Pod | PodSpec) -> dict[str, Any] | None:
    """What was computed of a large pod or spec; ``None`` for others, of which nothing is kept."""
    if isinstance(owner, LargePodSpec):
        owner = owner.__dict__.get(_UNASSIGNED, owner)
    elif not isinstance(owner, LargePod):
        return None
    facts: dict[str, Any] = owner.__dict__.setdefault(_FACTS, {})
    return facts


def assigned(spec: PodSpec, node_name: str) -> PodSpec:
    """Return a spec as it is on a node."""
    placed = replace(spec, node_name=node_name)
    if isinstance(spec, LargePodSpec):
        placed.__dict__[_UNASSIGNED] = unassigned(spec)
    return placed


def unassigned(spec: PodSpec) -> PodSpec:
    """Return a spec without its node."""
    if not spec.node_name:
        return spec
    known: PodSpec | None = None
    if isinstance(spec, LargePodSpec):
        known = spec.__dict__.get(_UNASSIGNED)
    return replace(spec, node_name="") if known is None else known


# -- decoding ------------------------------------------------------------------------------------


class _PodParts(Object, frozen=True):
    metadata: ObjectMeta
    spec: Raw = Raw(b"{}")
    status: PodStatus = PodStatus()


_decode_parts = msgspec.json.Decoder(_PodParts).decode
_decode_small_spec = msgspec.json.Decoder(PodSpec).decode
_decode_spec = msgspec.json.Decoder(LargePodSpec).decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_items = msgspec.json.Decoder(list[Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode

_LISTS: dict[str, tuple[str, Callable[[Raw], Any]]] = {
    field.encode_name: (field.name, msgspec.json.Decoder(get_args(field.type)[0]).decode)
    for field in msgspec.structs.fields(PodSpec)
    if get_origin(field.type) is list
}
"""Attribute and decoder of the items, for the fields of a spec that are lists."""

_specs: WeakValueDictionary[bytes, LargePodSpec] = WeakValueDictionary()


def large_pod_steps(data: bytes | Raw) -> Steps[Pod]:
    """Decode a pod; raises ``msgspec.DecodeError`` or ``RecursionError`` where JSON is unusual."""
    parts = _decode_parts(data)
    yield
    spec: PodSpec
    if len(parts.spec) < LARGE_POD_BYTES:
        spec = _decode_small_spec(parts.spec)
    else:
        spec = yield from _spec_steps(parts.spec)
    status = parts.status
    if status.container_statuses or status.init_container_statuses:
        return LargePod(parts.metadata, spec, status)
    return Pod(parts.metadata, spec, status)


def _spec_steps(raw: Raw) -> Steps[PodSpec]:
    """Return the spec of an earlier version if it differs at most in the node."""
    fields = _decode_fields(raw)
    node_name = _decode_text(fields.pop("nodeName", b'""'))
    yield
    digest = blake2b(digest_size=16)
    for name, value in fields.items():
        digest.update(f"{name}:{len(value)}:".encode())
        digest.update(value)
    key = digest.digest()
    yield
    spec = _specs.get(key)
    if spec is None:
        spec = _specs[key] = yield from _new_spec(fields)
    return assigned(spec, node_name) if node_name else spec


def _new_spec(fields: dict[str, Raw]) -> Steps[LargePodSpec]:
    long = {name: fields.pop(name) for name in _LISTS if len(fields.get(name, b"")) > _STEP_BYTES}
    spec = _decode_spec(_encode(fields))
    yield
    lists: dict[str, list[Any]] = {}
    for name, raw in long.items():
        attribute, decode = _LISTS[name]
        items = lists[attribute] = []
        decoded_bytes = 0
        for item in _decode_items(raw):
            items.append(decode(item))
            decoded_bytes += len(item)
            if decoded_bytes > _STEP_BYTES:
                decoded_bytes = 0
                yield
    return replace(spec, **lists) if lists else spec
