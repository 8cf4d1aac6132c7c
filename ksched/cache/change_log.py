"""What changed, in order, for readers that catch up at their own pace."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class ChangeLog(Generic[T]):
    """A bounded list of changes.

    A reader remembers the position it has read up to and asks for the changes since. A reader that
    fell behind the bound is told to look at everything.
    """

    __slots__ = ("_changes", "_dropped", "limit", "position")

    def __init__(self, limit: int = 4096) -> None:
        self.limit = limit
        self._changes: list[T] = []
        self._dropped = 0
        self.position = 0
        """The position after the newest entry."""

    def append(self, change: T) -> None:
        self.position += 1
        changes = self._changes
        changes.append(change)
        if len(changes) > 2 * self.limit:
            surplus = len(changes) - self.limit
            del changes[:surplus]
            self._dropped += surplus

    def forget(self) -> None:
        """Send every reader to look at everything: more changed than the log can tell."""
        self.position += 1
        self._dropped = self.position
        self._changes.clear()

    def drop_before(self, position: int) -> None:
        """Let go of the changes up to a position."""
        surplus = position - self._dropped
        if surplus > 0:
            del self._changes[:surplus]
            self._dropped = position

    def tail(self, position: int) -> list[T] | None:
        """The changes after ``position``; ``None`` if that is too long ago to tell."""
        start = position - self._dropped
        return self._changes[start:] if start >= 0 else None


class RowLog(ChangeLog[int]):
    """Which rows of the node table changed."""

    __slots__ = ()

    def since(self, position: int) -> list[int] | None:
        """The rows after ``position``, each once, ascending; ``None`` as of ``tail``."""
        tail = self.tail(position)
        return tail if tail is None or len(tail) <= 1 else sorted(set(tail))
