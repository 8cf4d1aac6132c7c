"""Outcomes of dry runs, kept as long as nothing changes that they depend on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ksched.framework import Status
from ksched.framework.node_columns import NodeTable
from ksched.framework.plugins.default_preemption.candidates import Candidate

Outcome: TypeAlias = Candidate | Status
"""Whom to evict from a node, or why that would not help."""


class KnownOutcomes:
    """What dry runs for pods of one template and priority found, by row of the node table.

    Only where amounts alone decide. An outcome then depends on the node and its pods, on the pods
    nominated to it, on budgets and on pod groups, and on no other node.
    """

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._nodes = table.node_log.cursor()
        self._generations: tuple[int, ...] = ()
        self._by_row: dict[int, tuple[int, object, Outcome]] = {}

    def catch_up(self, *generations: int) -> None:
        """Forget all outcomes if one of the generations is new, or the nodes are."""
        is_readable = self._nodes.changes() is not None
        is_too_long = len(self._by_row) > len(self._table)
        if not is_readable or is_too_long or generations != self._generations:
            self._by_row.clear()
        self._nodes.advance()
        self._generations = generations

    def recall(self, expected_on: Callable[[str], object]) -> Callable[[int], Outcome | None]:
        """Return a function for the outcome on a row, if it is known.

        ``expected_on`` returns the pods that are nominated to a node now.
        """
        known, infos = self._by_row, self._table.infos

        def outcome(row: int) -> Outcome | None:
            one = known.get(row)
            if one is None:
                return None
            info = infos[row]
            is_valid = one[0] == info.version and one[1] is expected_on(info.name)
            return one[2] if is_valid else None

        return outcome

    def put(self, row: int, expected: object, outcome: Outcome) -> None:
        self._by_row[row] = (self._table.infos[row].version, expected, outcome)
