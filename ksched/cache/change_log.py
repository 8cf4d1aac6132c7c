"""One way to be up to date: a log of what changed, and a reader's place in it.

Whatever is derived from something that changes holds a ``Cursor`` of its log, deals with
``changes()`` and then says ``advance()``. A reader that raised, or was given up half-way, finds the
same changes again. Where nothing matters but whether anything changed, two ``generation`` numbers
are compared: they grow with every change.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from ksched.tuning import CHANGES_LOGGED

T = TypeVar("T")

NEVER = -1
"""The generation of a reader that has read nothing."""


class ChangeLog(Generic[T]):
    """What changed, in order, and no more of it than twice ``limit``."""

    __slots__ = ("_changes", "_dropped", "generation", "limit")

    def __init__(self, limit: int = CHANGES_LOGGED) -> None:
        self.limit = limit
        self._changes: list[T] = []
        self._dropped = 0
        self.generation = 0
        """How many changes there were."""

    def append(self, change: T) -> None:
        self.generation += 1
        changes = self._changes
        changes.append(change)
        if len(changes) > 2 * self.limit:
            self.drop_before(self.generation - self.limit)

    def forget(self) -> None:
        """Send every reader to look at everything: more changed than the log can tell."""
        self.generation += 1
        self._dropped = self.generation
        self._changes.clear()

    def drop_before(self, generation: int) -> None:
        """Let go of the changes up to a generation."""
        surplus = generation - self._dropped
        if surplus > 0:
            del self._changes[:surplus]
            self._dropped = generation

    def since(self, generation: int) -> list[T] | None:
        """The changes after a generation; ``None`` if that is too long ago to tell."""
        start = generation - self._dropped
        return self._changes[start:] if start >= 0 else None

    def cursor(self) -> Cursor[T]:
        """A place before everything: the first changes are ``None``."""
        return Cursor(self)


class Cursor(Generic[T]):
    """How far one reader has read a log."""

    __slots__ = ("_log", "_read", "_shown")

    def __init__(self, log: ChangeLog[T]) -> None:
        self._log = log
        self._read = self._shown = NEVER

    @property
    def is_current(self) -> bool:
        """Whether there is nothing to read."""
        return self._read == self._log.generation

    def changes(self) -> list[T] | None:
        """What was not dealt with yet; ``None`` if that cannot be told, and all is to be read."""
        # As ``ChangeLog.since``, in place: every attempt reads a dozen logs.
        log = self._log
        self._shown = log.generation
        start = self._read - log._dropped
        return log._changes[start:] if start >= 0 else None

    def advance(self) -> None:
        """Count as read what ``changes`` returned last; not what was logged since."""
        self._read = self._shown

    def start_over(self) -> None:
        """Count nothing as read, until the reader advances."""
        self._read = NEVER

    def go_to_end(self) -> None:
        """Count as read all that was logged."""
        self._read = self._log.generation

    def go_to(self, other: Cursor[T]) -> None:
        """Count as read what another cursor of the same log has read."""
        self._read = other._read


class RowLog(ChangeLog[int]):
    """Which rows of the node table changed."""

    __slots__ = ()

    def cursor(self) -> RowCursor:
        return RowCursor(self)


class RowCursor(Cursor[int]):
    """Reads rows each once, in ascending order."""

    __slots__ = ()

    def changes(self) -> list[int] | None:
        log = self._log
        self._shown = log.generation
        start = self._read - log._dropped
        if start < 0:
            return None
        rows = log._changes[start:]
        return rows if len(rows) <= 1 else sorted(set(rows))
