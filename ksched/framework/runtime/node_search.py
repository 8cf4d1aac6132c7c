"""The search for feasible nodes: its space, and its result."""

from __future__ import annotations

from msgspec import Struct

from ksched.framework.diagnosis import Diagnosis
from ksched.framework.runtime.answer_cache import CachedColumns
from ksched.framework.runtime.codes import CodeBook, Codes
from ksched.framework.runtime.filter_columns import NO_ROWS, Rows
from ksched.framework.status import SUCCESS, Status
from ksched.queue.nominator import Nominations


class Search(Struct, frozen=True):
    """The search space for feasible nodes."""

    only: Rows | None = None
    """Candidate rows; the others get ``status_of_others``. ``None``: all rows."""
    status_of_others: Status = SUCCESS
    """Not set for the nominated node: when it does not fit, all nodes are searched."""
    nominated: Nominations | None = None
    """The nominated pods of at least this pod's priority, if there are any. The filters must pass
    both with and without them."""
    limit: int | None = None
    """Stop after this many feasible nodes."""
    start: int = 0
    """Where in the node order a limited search begins."""


EVERYWHERE = Search()


class Feasibility(Struct, frozen=True):
    """The feasible rows, and the statuses of the other nodes.

    ``columns`` are the cached columns, unless only a few rows were evaluated directly.
    ``is_cached`` means that the rows are exactly those that the cached verdicts leave, so that the
    cached totals can be used as they are.
    """

    rows: Rows
    evaluated: int
    codes: Codes
    book: CodeBook
    columns: CachedColumns | None = None
    is_cached: bool = False
    diagnosis: Diagnosis | None = None
    """Why there are no rows, if there are none."""


def nowhere(codes: Codes, book: CodeBook, diagnosis: Diagnosis) -> Feasibility:
    """No node is feasible."""
    return Feasibility(NO_ROWS, len(codes), codes, book, diagnosis=diagnosis)
