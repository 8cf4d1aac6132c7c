"""Every exception ksched raises on purpose.

KschedError
├── ConfigError           the configuration file or the flags are wrong; lists all problems
├── ApiError              the API server returned a failure status
│   ├── NotFound          404
│   ├── Conflict          409: already exists, or was updated concurrently
│   ├── Gone              410: the resourceVersion is too old, list again
│   ├── TooManyRequests   429
│   └── Unavailable       no usable response: refused, reset, timed out, 5xx
├── InvalidObject         an API object is invalid
├── ExtenderError         an extender returned no response, or an invalid one
├── TookTooLong           an attempt was cut short; the next one resumes its work
├── LeaseLost             this replica is no longer the leader; its work was cancelled
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
    """The API server returned a failure."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        retry_after: float | None = None,
        said: str = "",
    ) -> None:
        self.code, self.reason, self.message, self.retry_after = code, reason, message, retry_after
        self.said = said or message
        """The server's own words, without the request."""
        super().__init__(f"{code} {reason}: {message}" if reason else f"{code}: {message}")

    @property
    def is_final(self) -> bool:
        """Whether a repetition would fail the same way: the request itself was rejected."""
        return 400 <= self.code < 500 and self.code not in (408, 429)


class NotFound(ApiError):
    """The object does not exist (any more)."""


class Conflict(ApiError):
    """The object exists already, or was changed since it was read."""


class Gone(ApiError):
    """The requested resourceVersion is no longer available; list again."""


class TooManyRequests(ApiError):
    """The API server is overloaded; ``retry_after`` is the delay it requests, if any."""


class Unavailable(ApiError):
    """No usable response: connection refused or reset, time-out, or a 5xx."""


class InvalidObject(KschedError):
    """An API object is invalid."""

    def __init__(self, kind: str, key: str, problem: str) -> None:
        self.kind, self.key, self.problem = kind, key, problem
        super().__init__(f"{kind} {key}: {problem}")


class ExtenderError(KschedError):
    """An extender returned no response, or an invalid one; the text names the extender."""


class TookTooLong(KschedError):
    """A pod's spec made its attempt so long that other pods are scheduled first."""

    def __init__(self, seconds: float, reason: str = "the spec is so large") -> None:
        super().__init__(
            f"{reason} that the attempt was cut short after {seconds * 1000:.0f} ms; "
            "it goes on after a pause"
        )


class LeaseLost(KschedError):
    """This replica is no longer the leader, and its work has been cancelled."""

    def __init__(self, lock: str, reason: str) -> None:
        self.lock, self.reason = lock, reason
        super().__init__(f"leader election lost: lease {lock}: {reason}")


class InvariantBroken(KschedError):
    """The scheduler's own state contradicts itself; continuing would bind pods wrongly."""
