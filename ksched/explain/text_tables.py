"""Tables, lists and counts as text, for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

EXAMPLES: Final = 3


def table(rows: Sequence[Sequence[str]], *, right_from: int = 99, right_to: int = 0) -> str:
    """Align columns; numbers (from one column on, or up to one) to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def line(row: Iterable[str]) -> str:
        cells = [
            cell.rjust(width) if place >= right_from or place < right_to else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        return "  ".join(cells).rstrip()

    return "\n".join(map(line, rows))


def listed(names: Sequence[str], most: int = EXAMPLES) -> str:
    """The first few names; an ellipsis stands for the rest."""
    text = ", ".join(names[:most])
    return f"{text}, …" if len(names) > most else text


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
