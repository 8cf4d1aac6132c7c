"""The records of a journal: one JSON object per line, told apart by ``record``.

A file begins with a ``header``, then comes everything the scheduler knew (``ready`` ends that),
then every change and decision in the order in which they happened. Pods refer to the ``template``
that equal ones share. A decision was made on the state at its ``began``, if there is one: what
follows up to its ``decided`` came too late for it; otherwise on the state at its ``decided``.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from ksched.api.objects import Labels, OwnerReference, PodSpec, PodStatus

FORMAT: Final = 1
"""Grows when older versions cannot read what is written."""


class Record(Struct, frozen=True, rename="camel", omit_defaults=True, tag_field="record", gc=False):
    """Base of all lines."""


class Header(Record, frozen=True, tag="header"):
    """How the file was made; ``left_out`` are watched kinds that are not recorded."""

    format: int
    ksched: str
    at: float
    configuration: dict[str, Any]
    left_out: list[str] = []


class Ready(Record, frozen=True, tag="ready"):
    """The state is complete."""

    at: float


class TemplateRecord(Record, frozen=True, tag="template"):
    """What equal pods have in common."""

    number: int
    namespace: str = ""
    labels: Labels = {}
    controller: OwnerReference | None = None
    spec: PodSpec = PodSpec()


class PodRecord(Record, frozen=True, tag="pod"):
    """A pod: pending, or on its node."""

    uid: str
    name: str
    template: int
    node: str = ""
    is_assumed: bool = False
    version: str = ""
    created: str | None = None
    deleted: str | None = None
    annotations: Labels = {}
    owners: list[OwnerReference] = []
    """Those that are no controller."""
    status: PodStatus = PodStatus()


class Assumed(Record, frozen=True, tag="assumed"):
    """A pending pod counts on a node from now on; members of groups only, of others the decision
    says it."""

    uid: str
    node: str


class Bound(Record, frozen=True, tag="bound"):
    """The watch confirmed an assumed pod."""

    uid: str


class Off(Record, frozen=True, tag="off"):
    """A pod counts on its node no longer."""

    uid: str


class Gone(Record, frozen=True, tag="gone"):
    """A pending pod was deleted, or is another scheduler's now."""

    uid: str


class Put(Record, frozen=True, tag="put"):
    """An object of any other kind, new or changed."""

    kind: str
    object: Raw


class Removed(Record, frozen=True, tag="removed"):
    """An object of any other kind was deleted."""

    kind: str
    object: Raw


class Nominated(Record, frozen=True, tag="nominated"):
    """All pods that are nominated to a node from now on."""

    node: str
    uids: list[str]


class Claims(Record, frozen=True, tag="claims"):
    """Resource claims that differ from what was watched; ``null`` where that is over."""

    in_flight: dict[str, Raw] = {}
    assumed: dict[str, Raw] = {}


class Volumes(Record, frozen=True, tag="volumes"):
    """Volumes and their claims that differ from what was watched; ``null`` where that is over."""

    volumes: dict[str, Raw] = {}
    claims: dict[str, Raw] = {}


class Began(Record, frozen=True, tag="began"):
    """The decision of a pod is made on the state as it is now."""

    uid: str
    start: int = 0


class Decided(Record, frozen=True, tag="decided"):
    """A decision: the node, or the message of a rejection.

    With both, Reserve or Permit rejected the pod on that node. ``start`` is the node with which the
    search began, where it ends before the last.
    """

    at: float
    pod: str
    uid: str
    profile: str
    node: str = ""
    start: int = 0
    evaluated: int = 0
    feasible: int = 0
    message: str = ""
    nominated: str = ""
    plugins: list[str] = []
    """Those that rejected it."""


class Together(Record, frozen=True, tag="together"):
    """The outcome for a member of a group, which are decided together."""

    at: float
    pod: str
    uid: str


AnyRecord = (
    Header
    | Ready
    | TemplateRecord
    | PodRecord
    | Assumed
    | Bound
    | Off
    | Gone
    | Put
    | Removed
    | Nominated
    | Claims
    | Volumes
    | Began
    | Decided
    | Together
)

_encoder: Final = msgspec.json.Encoder()
encode = _encoder.encode
encode_lines = _encoder.encode_lines
decode = msgspec.json.Decoder(AnyRecord).decode
