"""The leader election record: holder, times and lease duration."""

from __future__ import annotations

from typing import Any

import msgspec

from ksched.api.objects import Object
from ksched.errors import InvalidObject


class LeaderElectionRecord(Object, frozen=True):
    """The content of a lock. The times are wall time for display.

    They are never compared with a clock: a record is valid until it has not changed for
    ``lease_duration_seconds`` on the observer's own clock. They are therefore stored as the text
    they arrived as, whatever its format.
    """

    holder_identity: str = ""
    """Empty when the last holder released the lock."""
    lease_duration_seconds: int = 0
    acquire_time: str = ""
    renew_time: str = ""
    leader_transitions: int = 0


NOBODY = LeaderElectionRecord()


def from_lease(lease: dict[str, Any]) -> LeaderElectionRecord:
    """Read the record of a ``coordination.k8s.io/v1`` Lease."""
    spec = lease.get("spec") or {}
    return LeaderElectionRecord(
        holder_identity=spec.get("holderIdentity") or "",
        lease_duration_seconds=spec.get("leaseDurationSeconds") or 0,
        acquire_time=spec.get("acquireTime") or "",
        renew_time=spec.get("renewTime") or "",
        leader_transitions=spec.get("leaseTransitions") or 0,
    )


def to_lease_spec(record: LeaderElectionRecord) -> dict[str, Any]:
    return {
        "holderIdentity": record.holder_identity,
        "leaseDurationSeconds": record.lease_duration_seconds,
        "acquireTime": record.acquire_time or None,
        "renewTime": record.renew_time or None,
        "leaseTransitions": record.leader_transitions,
    }


def from_annotation(key: str, text: str) -> LeaderElectionRecord:
    """Read a record written as JSON, by us or by an old client-go; raises ``InvalidObject``."""
    try:
        fields = msgspec.json.decode(text, type=dict[str, Any])
        given = {name: value for name, value in fields.items() if value is not None}
        return msgspec.convert(given, LeaderElectionRecord)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise InvalidObject("leader election record of", key, str(error)) from error


def to_annotation(record: LeaderElectionRecord) -> str:
    """Every field is written, also the empty ones: old readers expect them."""
    fields = {
        "holderIdentity": record.holder_identity,
        "leaseDurationSeconds": record.lease_duration_seconds,
        "acquireTime": record.acquire_time or None,
        "renewTime": record.renew_time or None,
        "leaderTransitions": record.leader_transitions,
    }
    return msgspec.json.encode(fields).decode()
