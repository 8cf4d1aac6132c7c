"""Which rows of the node table changed, in order, for readers that catch up at their own pace."""

from __future__ import annotations


class ChangeLog:
    """A bounded list of row numbers.

    A reader remembers the position it has read up to and asks for the rows since. A reader that
    fell behind the bound is told to look at everything.
    """

    __slots__ = ("_dropped", "_rows", "limit", "position")

    def __init__(self, limit: int = 4096) -> None:
        self.limit = limit
        self._rows: list[int] = []
        self._dropped = 0
        self.position = 0
        """The position after the newest entry."""

    def append(self, row: int) -> None:
        self.position += 1
        rows = self._rows
        rows.append(row)
        if len(rows) > 2 * self.limit:
            surplus = len(rows) - self.limit
            del rows[:surplus]
            self._dropped += surplus

    def forget(self) -> None:
        """Send every reader to look at everything: more changed than the log can tell."""
        self.position += 1
        self._dropped = self.position
        self._rows.clear()

    def tail(self, position: int) -> list[int] | None:
        """Like ``since`` in order, with repetitions: cheaper for a reader that does not mind."""
        start = position - self._dropped
        return self._rows[start:] if start >= 0 else None

    def since(self, position: int) -> list[int] | None:
        """Distinct rows changed after ``position``; ``None`` if that is too long ago to tell."""
        tail = self.tail(position)
        return tail if tail is None or len(tail) <= 1 else sorted(set(tail))
