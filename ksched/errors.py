"""Every exception ksched raises on purpose.

KschedError
├── ConfigError           the configuration file or the flags are wrong; lists all problems
├── ApiError              the API server answered with a failure status
│   ├── NotFound          404
│   ├── Conflict          409: already exists, or somebody wrote first
│   ├── Gone              410: the resourceVersion is too old, list again
│   ├── TooManyRequests   429
│   └── Unavailable       no usable answer: refused, reset, timed out, 5xx
├── InvalidObject         an API object cannot be understood
├── ExtenderError         an extender gave no answer, or one that makes no sense
├── TookTooLong           an attempt was cut short; what was done of it is kept for the next one
├── LeaseLost             this replica leads no longer; its work was cancelled
└── InvariantBroken       the scheduler's own state contradicts itself; the process must stop

Expected outcomes (a pod that fits nowhere, a plugin that rejects) are values, not exceptions.
"""

from __future__ import annotations

from collections.abc import Sequence


class KschedError(Exception):
    """Base of all errors raised by ksched."""


class ConfigError(KschedError):
    """The configuration cannot be used; ``problems`` names every field that is wrong."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class ApiError(KschedError):
    """The API server answered a request with a failure."""

    def __init__(
        self, code: int, reason: str, message: str, retry_after: float | None = None
    ) -> None:
        self.code, self.reason, self.message, self.retry_after = code, reason, message, retry_after
        super().__init__(f"{code} {reason}: {message}" if reason else f"{code}: {message}")

    @property
    def is_final(self) -> bool:
        """Whether asking again would get the same answer: the request itself is refused."""
        return 400 <= self.code < 500 and self.code not in (408, 429)


class NotFound(ApiError):
    """The object does not exist (any more)."""


class Conflict(ApiError):
    """The object exists already, or was changed since it was read."""


class Gone(ApiError):
    """The resourceVersion asked for is no longer kept; list again."""


class TooManyRequests(ApiError):
    """The API server asks for patience; ``retry_after`` says how much, if it knows."""


class Unavailable(ApiError):
    """No usable answer: connection refused or reset, time-out, or a 5xx."""


class InvalidObject(KschedError):
    """An API object cannot be understood."""

    def __init__(self, kind: str, key: str, problem: str) -> None:
        self.kind, self.key, self.problem = kind, key, problem
        super().__init__(f"{kind} {key}: {problem}")


class ExtenderError(KschedError):
    """An extender gave no answer, or one that makes no sense; the text names it."""


class TookTooLong(KschedError):
    """A pod's own spec made its attempt so long that other pods come first."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"the spec is so large that the attempt was cut short after {seconds * 1000:.0f} ms; "
            "it goes on after a pause"
        )


class LeaseLost(KschedError):
    """This replica leads no longer, and its work has been cancelled."""

    def __init__(self, lock: str, reason: str) -> None:
        self.lock, self.reason = lock, reason
        super().__init__(f"leader election lost: lease {lock}: {reason}")


class InvariantBroken(KschedError):
    """The scheduler's own state contradicts itself; going on would bind pods wrongly."""
