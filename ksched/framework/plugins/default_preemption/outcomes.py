"""Outcomes of dry runs, kept as long as nothing changes that they depend on."""

from __future__ import annotations

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

    def get(self, row: int, expected: object) -> Outcome | None:
        """The outcome on a node to which pods are nominated as ``expected``, if it is known."""
        known = self._by_row.get(row)
        if known is None or known[1] is not expected:
            return None
        return known[2] if known[0] == self._table.infos[row].version else None

    def put(self, row: int, expected: object, outcome: Outcome) -> None:
        self._by_row[row] = (self._table.infos[row].version, expected, outcome)
