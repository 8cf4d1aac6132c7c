"""Unexpected exceptions, kept to the one object they concern.

A fault of ours that some object sets off must not end the process: the object would be there again
after the restart, and on the standby. What handles one object of many does it inside ``contain``,
or catches everything and calls ``tell`` where that is done for every pod: it costs nothing.
What shows that the state itself is wrong (``InvariantBroken``) gets out: going on would bind
pods wrongly.

Does not belong here: faults of plugins, which have a guard of their own.
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
"""How many different ones are logged."""


class HasKey(Protocol):
    @property
    def key(self) -> str: ...


class UnexpectedErrors:
    """Counts and logs them; a traceback is logged once, as a fault may concern many objects."""

    def __init__(self, metrics: Metrics) -> None:
        self._count = metrics.unexpected_errors.increment
        self._told: set[tuple[str, type, tuple[object, ...]]] = set()

    def contain(self, activity: str, subject: HasKey) -> Containment:
        """Let nothing but a broken invariant out of a ``with`` block that handles one object."""
        return Containment(self, activity, subject)

    def tell(self, activity: str, key: str, problem: Exception) -> str:
        """Log one with the object's key; returns a text for whoever looks at the object.

        A broken invariant is raised again.
        """
        if isinstance(problem, InvariantBroken):
            raise problem
        self._count(activity)
        text = redact_text(f"{type(problem).__name__}: {problem}")
        text = text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."
        kind = (activity, type(problem), _place(problem))
        is_new = kind not in self._told and len(self._told) < MAX_TRACEBACKS
        if is_new:
            self._told.add(kind)
        log.error(
            "unexpected error",
            extra={"activity": activity, "object": key, "err": text},
            exc_info=problem if is_new else None,
        )
        return f"unexpected error: {text}"


class Containment:
    """A block that ends early instead of raising; ``text`` then says why."""

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
        self.text = self._unexpected_errors.tell(self._activity, self._subject.key, problem)
        return True


def _place(problem: BaseException) -> tuple[object, ...]:
    """Where in the code it was raised."""
    trace = problem.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return () if trace is None else (trace.tb_frame.f_code, trace.tb_lineno)
