"""How often each plugin mattered in a run, and how often the two schedulers differed then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable


class Tally:
    """Counts decisions by what they hung on; suites add to one and it makes one table."""

    def __init__(self) -> None:
        self.decisions = 0
        self.differing = 0
        self._mattered: dict[str, int] = {}
        self._differed: Counter[str] = Counter()

    def expect(self, names: Iterable[str]) -> None:
        """Have these in the table, also when they never come up."""
        for name in names:
            self._mattered.setdefault(name, 0)

    def add(self, influences: Collection[str], *, differs: bool) -> None:
        self.decisions += 1
        self.differing += differs
        self.expect(influences)
        for name in influences:
            self._mattered[name] += 1
            self._differed[name] += differs

    def count(self, name: str) -> int:
        """In how many decisions this mattered."""
        return self._mattered.get(name, 0)

    def rarest(self, names: Iterable[str]) -> int:
        """In how many decisions each of these mattered at least."""
        return min(map(self.count, names))

    def table(self) -> list[str]:
        """Lines for people, in the order of the plugins' names."""
        rows = [(name, self._mattered[name], self._differed[name]) for name in self._mattered]
        rows = [("all decisions", self.decisions, self.differing), *sorted(rows)]
        table = [("what decisions hung on", "decisions", "differing"), *rows]
        width = max(len(name) for name, _, _ in table)
        return [f"{name:{width}} {count:>10} {bad:>10}" for name, count, bad in table]
