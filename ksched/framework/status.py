"""The result of a plugin call."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from msgspec import Struct
from msgspec.structs import replace


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
    """PreFilter, PreScore, Bind: this plugin does not apply to this pod."""
    PENDING = "Pending"
    """Rejected; a registered event of the plugin makes the pod skip its backoff."""

    # Enum's is a function in Python, and codes are looked up several times in every attempt.
    __hash__ = object.__hash__


_REJECTED = frozenset(
    (Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.PENDING),
)


MESSAGE_LIMIT = 8192
"""Limit in characters of a text composed of reasons. A pod may have thousands of them, and the text
goes into the condition, the Event, the log and the decision log."""


def joined(parts: Sequence[str]) -> str:
    """Join the parts with commas, as many as ``MESSAGE_LIMIT`` allows.

    What of the first or of the last part alone is too much is cut off.
    """
    length = 0
    for number, part in enumerate(parts):
        length += len(part) + 2
        if length > MESSAGE_LIMIT:
            if number in (0, len(parts) - 1):
                return f"{', '.join(parts[: number + 1])[: MESSAGE_LIMIT - 3]}..."
            return f"{', '.join(parts[:number])}, and {len(parts) - number} more"
    return ", ".join(parts)


class Status(Struct, frozen=True):
    """A code, the reasons shown to users, and the plugin that returned it (set by the runtime)."""

    code: Code = Code.SUCCESS
    reasons: tuple[str, ...] = ()
    plugin: str = ""
    is_momentary: bool = False
    """PreFilter: what is under way here is about to end the rejection. Condition and Event wait a
    few seconds, and are not written if the pod is bound by then."""

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
        """Whether the pod was rejected, as opposed to an error."""
        return self.code in _REJECTED

    @property
    def message(self) -> str:
        return joined(self.reasons)

    def by(self, plugin: str) -> Status:
        """Return the same status, attributed to a plugin."""
        return self if self.plugin == plugin else replace(self, plugin=plugin)

    def __bool__(self) -> bool:
        raise TypeError("a Status is neither true nor false; use is_success or is_rejected")


SUCCESS = Status()
SKIP = Status(Code.SKIP)
SKIP_TEMPLATE = Status(Code.SKIP, ("does not apply to any pod of the template",))
"""SKIP for this and every other pod of its template: PreFilter and PreScore plugins that return it
are not called for them again."""
PASS_TEMPLATE = Status(Code.SUCCESS, ("has nothing to prepare for any pod of the template",))
"""SUCCESS likewise, for plugins that write nothing to the cycle state."""


def unschedulable(*reasons: str) -> Status:
    """Reject; evicting other pods may help."""
    return Status(Code.UNSCHEDULABLE, reasons)


def unresolvable(*reasons: str, is_momentary: bool = False) -> Status:
    """Reject; evicting other pods would not help."""
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reasons, is_momentary=is_momentary)


def pending(*reasons: str) -> Status:
    """Reject until an event this plugin registered for, then retry without backoff."""
    return Status(Code.PENDING, reasons)


def wait(*reasons: str) -> Status:
    """Permit: hold the pod, for the time that ``PermitResult`` or the plugin declares."""
    return Status(Code.WAIT, reasons)


def error(*reasons: str) -> Status:
    """The attempt fails and is retried after the error backoff."""
    return Status(Code.ERROR, reasons)
