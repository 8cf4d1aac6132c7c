"""When a failed request is repeated, and after which delay.

A request that the server declined without processing it (429, or a 5xx with Retry-After), or that
cannot have reached the server, may be repeated. Otherwise its effect is unknown and only an
idempotent request is repeated; the others are the caller's to resolve.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from ksched.errors import ApiError, Conflict, TooManyRequests, Unavailable
from ksched.transport import NOT_SENT


class Backoff:
    """Delays that grow by ``factor`` up to ``maximum``, each extended at random.

    ``jitter`` 1.0 means between once and twice the nominal time.
    """

    def __init__(
        self,
        rng: random.Random,
        *,
        initial: float = 0.8,
        maximum: float = 30.0,
        factor: float = 2.0,
        jitter: float = 1.0,
    ) -> None:
        self._rng = rng
        self._initial, self._maximum = initial, maximum
        self._factor, self._jitter = factor, jitter
        self._next = initial

    def next(self) -> float:
        """Return the delay before the next try."""
        nominal = self._next
        self._next = min(nominal * self._factor, self._maximum)
        return nominal * (1.0 + self._jitter * self._rng.random())

    def reset(self) -> None:
        self._next = self._initial


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and after which delays one kind of request is repeated.

    ``repeatable`` means that the request may happen twice without harm. ``deadline`` bounds all
    tries together, in seconds.
    """

    repeatable: bool
    tries: int = 10
    initial: float = 0.1
    maximum: float = 5.0
    factor: float = 2.0
    jitter: float = 0.5
    deadline: float = 60.0
    on_conflict: bool = False

    def backoff(self, rng: random.Random) -> Backoff:
        return Backoff(
            rng,
            initial=self.initial,
            maximum=self.maximum,
            factor=self.factor,
            jitter=self.jitter,
        )

    def applies_to(self, error: ApiError) -> bool:
        """Whether the same request, sent again, may succeed and cannot do harm."""
        if isinstance(error, TooManyRequests):
            return True
        if isinstance(error, Unavailable):
            return self.repeatable or not may_have_happened(error)
        return self.on_conflict and isinstance(error, Conflict)


def may_have_happened(error: ApiError) -> bool:
    """Whether a request that failed this way may have taken effect nevertheless."""
    if not isinstance(error, Unavailable):
        return False
    if error.code == 0:
        return error.reason != NOT_SENT
    return error.retry_after is None


NO_RETRY = RetryPolicy(repeatable=False, tries=1)
REPEATABLE = RetryPolicy(repeatable=True)
"""For reads and idempotent writes."""
UNREPEATABLE = RetryPolicy(repeatable=False)
"""For creations: repeated only when the first try certainly had no effect."""
STATUS_PATCH = replace(REPEATABLE, tries=4, initial=0.01, factor=5.0, jitter=0.1, on_conflict=True)
"""pkg/scheduler/util/utils.go: PatchPodStatus, v1.36."""
