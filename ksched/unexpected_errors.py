"""Unexpected exceptions, contained to the object they occurred for.

A bug triggered by one object must not end the process: the object would still be there after the
restart, and on the standby. Code that handles one object of many runs inside ``contain``, or, where
it runs for every pod, catches ``Exception`` and calls ``report``: no cost without an exception.
``InvariantBroken`` propagates: it means that the state itself is wrong, and continuing could bind
pods wrongly.

Does not belong here: failures of plugins (``runtime.guard``).
"""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Final, Protocol

from ksched.errors import InvariantBroken
from ksched.metrics import Metrics
from ksched.redaction import redact_text

log = logging.getLogger(__name__)

MAX_TEXT: Final = 300
MAX_TRACEBACKS: Final = 100
"""How many distinct tracebacks are logged."""


class HasKey(Protocol):
    @property
    def key(self) -> str: ...


class UnexpectedErrors:
    """Counts and logs them; each traceback is logged once, as a bug may affect many objects."""

    def __init__(self, metrics: Metrics) -> None:
        self._count = metrics.unexpected_errors.increment
        self._reported: set[tuple[str, type, tuple[object, ...]]] = set()

    def contain(self, activity: str, subject: HasKey) -> Containment:
        """Return a context for handling one object that suppresses all but a broken invariant."""
        return Containment(self, activity, subject)

    def report(self, activity: str, key: str, problem: Exception) -> str:
        """Log an exception with the object's key; returns a text for its status or Event.

        A broken invariant is raised again.
        """
        if isinstance(problem, InvariantBroken):
            raise problem
        self._count(activity)
        text = redact_text(f"{type(problem).__name__}: {problem}")
        text = text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."
        kind = (activity, type(problem), _place(problem))
        is_new = kind not in self._reported and len(self._reported) < MAX_TRACEBACKS
        if is_new:
            self._reported.add(kind)
        log.error(
            "unexpected error",
            extra={"activity": activity, "object": key, "err": text},
            exc_info=problem if is_new else None,
        )
        return f"unexpected error: {text}"


class Containment:
    """A ``with`` block that ends early instead of raising; ``text`` is the reason then."""

    __slots__ = ("_activity", "_subject", "_unexpected_errors", "text")

    def __init__(self, unexpected_errors: UnexpectedErrors, activity: str, subject: HasKey) -> None:
        self._unexpected_errors = unexpected_errors
        self._activity, self._subject = activity, subject
        self.text = ""

    def __enter__(self) -> Containment:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if not isinstance(problem, Exception):
            return False
        self.text = self._unexpected_errors.report(self._activity, self._subject.key, problem)
        return True


def _place(problem: BaseException) -> tuple[object, ...]:
    """Return where in the code it was raised."""
    trace = problem.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return () if trace is None else (trace.tb_frame.f_code, trace.tb_lineno)
