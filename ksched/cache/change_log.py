"""Change propagation: a bounded log of changes, and cursors that read it.

State derived from something that changes has a ``Cursor`` on its log, applies ``changes()`` and
then calls ``advance()``. A reader that raised or stopped half-way gets the same changes again.
Where it only matters whether anything changed, compare ``generation`` numbers: they grow with every
change.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from ksched.tuning import CHANGES_LOGGED

T = TypeVar("T")

NEVER = -1
"""The generation of a reader that has read nothing."""


class ChangeLog(Generic[T]):
    """Changes in order; at most twice ``limit`` are stored."""

    __slots__ = ("_changes", "_dropped", "generation", "limit")

    def __init__(self, limit: int = CHANGES_LOGGED) -> None:
        self.limit = limit
        self._changes: list[T] = []
        self._dropped = 0
        self.generation = 0
        """Number of changes so far."""

    def append(self, change: T) -> None:
        self.generation += 1
        changes = self._changes
        changes.append(change)
        if len(changes) > 2 * self.limit:
            self.drop_before(self.generation - self.limit)

    def forget(self) -> None:
        """Drop all entries, so that every reader has to read the full state."""
        self.generation += 1
        self._dropped = self.generation
        self._changes.clear()

    def drop_before(self, generation: int) -> None:
        """Drop the entries up to a generation."""
        surplus = generation - self._dropped
        if surplus > 0:
            del self._changes[:surplus]
            self._dropped = generation

    def since(self, generation: int) -> list[T] | None:
        """Return the changes after a generation; ``None`` if they are no longer stored."""
        start = generation - self._dropped
        return self._changes[start:] if start >= 0 else None

    def cursor(self) -> Cursor[T]:
        """Return a cursor at the start: its first ``changes()`` is ``None`` (read everything)."""
        return Cursor(self)


class Cursor(Generic[T]):
    """One reader's position in a log."""

    __slots__ = ("_log", "_read", "_shown")

    def __init__(self, log: ChangeLog[T]) -> None:
        self._log = log
        self._read = self._shown = NEVER

    @property
    def is_current(self) -> bool:
        """Whether there is nothing to read."""
        return self._read == self._log.generation

    def changes(self) -> list[T] | None:
        """Return the unread changes; ``None`` if the full state has to be read."""
        now = self._shown = self._log.generation
        return [] if self._read == now else self._log.since(self._read)

    def advance(self) -> None:
        """Mark what ``changes`` returned last as read; not what was logged since."""
        self._read = self._shown

    def start_over(self) -> None:
        """Reset, so that the full state is read next."""
        self._read = NEVER

    def go_to_end(self) -> None:
        """Mark everything logged as read."""
        self._read = self._log.generation

    def go_to(self, other: Cursor[T]) -> None:
        """Move to the position of another cursor of the same log."""
        self._read = other._read


class RowLog(ChangeLog[int]):
    """Changed rows of the node table."""

    __slots__ = ()

    def since(self, generation: int) -> list[int] | None:
        """Return each row that changed after a generation once, in ascending order."""
        start = generation - self._dropped
        if start < 0:
            return None
        rows = self._changes[start:]
        return rows if len(rows) <= 1 else sorted(set(rows))
