"""kube-apiserver's own account of who wrote what and when, for tests about several schedulers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from lab.control_plane import KSCHED

POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "Metadata",
            "verbs": ["create"],
            "resources": [{"group": "", "resources": ["pods/binding"]}],
        },
        {
            "level": "Request",
            "verbs": ["create", "update"],
            "namespaces": ["kube-system"],
            "resources": [{"group": "coordination.k8s.io", "resources": ["leases"]}],
        },
        {"level": "Metadata", "users": [KSCHED.name]},
        {"level": "None"},
    ],
}

_FORBIDDEN = 403


class Bind(NamedTuple):
    """A pod was to be bound; ``source`` is the address the request came from.

    With the code 504 the client went away before it was answered, and the pod may be bound.
    """

    began: float
    ended: float
    source: str
    user: str
    pod: str
    code: int


class LeaseWrite(NamedTuple):
    """A lease was written with success; ``holder`` is empty when it was given back."""

    began: float
    ended: float
    source: str
    holder: str


class Refusal(NamedTuple):
    """Something that ksched asked for and may not do."""

    at: float
    verb: str
    path: str


class AuditLog:
    """Written by a kube-apiserver that was started with ``flags``."""

    def __init__(self, folder: Path, lease: str = "kube-scheduler") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path, self._policy = folder / "audit.log", folder / "audit-policy.json"
        self._lease = lease
        self._policy.write_text(json.dumps(POLICY))
        self._binds: list[Bind] = []
        self._writes: list[LeaseWrite] = []
        self._refusals: list[Refusal] = []
        self._read_to = 0

    @property
    def flags(self) -> Sequence[str]:
        return (f"--audit-policy-file={self._policy}", f"--audit-log-path={self._path}")

    def binds(self) -> list[Bind]:
        """All binds, refused ones too, in the order in which they arrived."""
        self._read()
        return sorted(self._binds)

    def lease_writes(self) -> list[LeaseWrite]:
        """All successful writes of the lease, in the order in which they took effect."""
        self._read()
        return sorted(self._writes, key=lambda write: write.ended)

    def refusals(self) -> list[Refusal]:
        """What ksched was forbidden to do."""
        self._read()
        return self._refusals

    def problems(self) -> list[str]:
        """Everything that must not happen, however the schedulers are treated."""
        binds = self.binds()
        return [
            *_bound_twice(binds),
            *_two_binders(binds),
            *_without_lease(binds, self.lease_writes()),
        ]

    def _read(self) -> None:
        """Read what was added; a last line that is half written is left for the next time."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._read_to)
            *lines, rest = file.read().split(b"\n")
            self._read_to = file.tell() - len(rest)
        for line in lines:
            self._take(json.loads(line))

    def _take(self, entry: dict[str, Any]) -> None:
        began, ended = map(_seconds, (entry["requestReceivedTimestamp"], entry["stageTimestamp"]))
        source, code = entry["sourceIPs"][0], entry["responseStatus"]["code"]
        about = entry.get("objectRef", {})
        if code == _FORBIDDEN:
            self._refusals.append(Refusal(ended, entry["verb"], entry["requestURI"]))
        elif about.get("subresource") == "binding":
            user = entry["user"]["username"]
            self._binds.append(Bind(began, ended, source, user, about["name"], code))
        elif code < 300 and _lease_name(entry) == self._lease:
            holder = entry["requestObject"]["spec"].get("holderIdentity") or ""
            self._writes.append(LeaseWrite(began, ended, source, holder))


def _lease_name(entry: dict[str, Any]) -> str | None:
    """The lease that was written, if one was: only then the log has the object."""
    written: dict[str, Any] | None = entry.get("requestObject")
    return written["metadata"]["name"] if written else None


def _bound_twice(binds: list[Bind]) -> Iterator[str]:
    counts = Counter(bind.pod for bind in binds if bind.code == 201)
    yield from (f"{pod}: bound {count} times" for pod, count in counts.items() if count > 1)


def _two_binders(binds: list[Bind]) -> Iterator[str]:
    """Requests of two schedulers that were under way at the same moment."""
    last: dict[str, Bind] = {}
    for bind in binds:
        for other in last.values():
            if other.source != bind.source and other.ended > bind.began:
                yield f"{bind.pod} is bound by {bind.source} while {other.source} binds {other.pod}"
        previous = last.get(bind.source)
        if previous is None or bind.ended > previous.ended:
            last[bind.source] = bind


def _without_lease(binds: list[Bind], writes: list[LeaseWrite]) -> Iterator[str]:
    """Binds that arrived when the lease was certainly somebody else's, or nobody's."""
    for bind in binds:
        before = [write for write in writes if write.ended <= bind.began]
        # A write that was under way when the bind arrived may have come first or last.
        beside = [write for write in writes if write.began <= bind.ended < write.ended]
        holders = {write.source for write in beside if write.holder}
        if before and before[-1].holder:
            holders.add(before[-1].source)
        if bind.source not in holders:
            yield f"{bind.pod} is bound by {bind.source}, the lease is with {holders or 'nobody'}"


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()
