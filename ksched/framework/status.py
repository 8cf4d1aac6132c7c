"""The answer of a plugin."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from msgspec import Struct


class Code(Enum):
    """Outcomes a plugin may return; the values are kube-scheduler's names."""

    SUCCESS = "Success"
    ERROR = "Error"
    UNSCHEDULABLE = "Unschedulable"
    """Not now: waiting, or evicting pods of lower priority, may help."""
    UNSCHEDULABLE_AND_UNRESOLVABLE = "UnschedulableAndUnresolvable"
    """Not now, and evicting pods would not help: preemption skips the node."""
    WAIT = "Wait"
    """Permit only: hold the pod until a plugin allows or rejects it."""
    SKIP = "Skip"
    """PreFilter, PreScore, Bind: this plugin has no business with this pod."""
    PENDING = "Pending"
    """Rejected, and when the awaited event comes the pod skips its backoff."""


_REJECTED = frozenset(
    (Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.PENDING),
)


MESSAGE_LIMIT = 8192
"""Characters of a text that is made of reasons. A pod may give a node thousands of them, and the
text goes into the condition, the Event, the log and the list of decisions."""


def joined(parts: Sequence[str]) -> str:
    """The parts with commas between them, as many as ``MESSAGE_LIMIT`` allows."""
    length = 0
    for number, part in enumerate(parts):
        length += len(part) + 2
        if length > MESSAGE_LIMIT:
            if not number:
                return f"{part[: MESSAGE_LIMIT - 3]}..."
            return f"{', '.join(parts[:number])}, and {len(parts) - number} more"
    return ", ".join(parts)


class Status(Struct, frozen=True):
    """A code, the reasons a user will read, and the plugin that answered (set by the runtime)."""

    code: Code = Code.SUCCESS
    reasons: tuple[str, ...] = ()
    plugin: str = ""

    @property
    def is_success(self) -> bool:
        return self.code is Code.SUCCESS

    @property
    def is_skip(self) -> bool:
        return self.code is Code.SKIP

    @property
    def is_wait(self) -> bool:
        return self.code is Code.WAIT

    @property
    def is_rejected(self) -> bool:
        """The pod may not go (there), as opposed to: something went wrong."""
        return self.code in _REJECTED

    @property
    def message(self) -> str:
        return joined(self.reasons)

    def by(self, plugin: str) -> Status:
        """Return the same answer, attributed to a plugin."""
        return self if self.plugin == plugin else Status(self.code, self.reasons, plugin)

    def __bool__(self) -> bool:
        raise TypeError("a Status is neither true nor false; ask is_success or is_rejected")


SUCCESS = Status()
SKIP = Status(Code.SKIP)
SKIP_TEMPLATE = Status(Code.SKIP, ("has no business with any pod of the template",))
"""SKIP for this pod and for every other of its template: PreFilter and PreScore plugins that
answer so are not asked about them again."""
PASS_TEMPLATE = Status(Code.SUCCESS, ("has nothing to prepare for any pod of the template",))
"""SUCCESS likewise, by plugins that leave nothing in the cycle state."""


def unschedulable(*reasons: str) -> Status:
    """Reject; evicting other pods may help."""
    return Status(Code.UNSCHEDULABLE, reasons)


def unresolvable(*reasons: str) -> Status:
    """Reject; evicting other pods would not help."""
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reasons)


def pending(*reasons: str) -> Status:
    """Reject until an event this plugin registered for, then retry without backoff."""
    return Status(Code.PENDING, reasons)


def wait(*reasons: str) -> Status:
    """Permit: hold the pod, for as long as ``PermitResult`` or the plugin itself says."""
    return Status(Code.WAIT, reasons)


def error(*reasons: str) -> Status:
    """Something went wrong; the attempt fails and is retried after the error backoff."""
    return Status(Code.ERROR, reasons)
