"""Built-in functions on long strings and lists, in pieces.

A long evaluation runs in a thread. Other threads run between two calls of built-in functions but
not during one, so none may take more than a few milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

PIECE = 16384


def total_length(parts: Sequence[str]) -> int:
    """The characters of all strings."""
    return sum(sum(map(len, parts[start : start + PIECE])) for start in range(0, len(parts), PIECE))


def join(parts: Sequence[str], separator: str = "") -> str:
    """``separator.join(parts)``"""
    if len(parts) <= PIECE:
        return separator.join(parts)
    return separator.join(
        [separator.join(parts[start : start + PIECE]) for start in range(0, len(parts), PIECE)]
    )


def split(text: str, separator: str, times: int) -> list[str]:
    """``text.split(separator, times)``"""
    found: list[str] = []
    left = times if times >= 0 else len(text)
    while left > PIECE:
        *parts, text = text.split(separator, PIECE)
        found.extend(parts)
        if len(parts) < PIECE:
            left = 0
        else:
            left -= PIECE
    found.extend(text.split(separator, left) if left else [text])
    return found


def characters(text: str) -> list[str]:
    """``list(text)``"""
    found: list[str] = []
    for start in range(0, len(text), PIECE):
        found.extend(text[start : start + PIECE])
    return found


def translate(text: str, table: Mapping[int, int | str]) -> str:
    """``text.translate(table)``"""
    return "".join(
        [text[start : start + PIECE].translate(table) for start in range(0, len(text), PIECE)]
    )


def strip(text: str, unwanted: str) -> str:
    """``text.strip(unwanted)``"""
    begin, end = 0, len(text)
    while begin < end:
        piece = text[begin : begin + PIECE]
        stripped = len(piece) - len(piece.lstrip(unwanted))
        begin += stripped
        if stripped < len(piece):
            break
    while begin < end:
        piece = text[max(begin, end - PIECE) : end]
        stripped = len(piece) - len(piece.rstrip(unwanted))
        end -= stripped
        if stripped < len(piece):
            break
    return text[begin:end]


def integers(count: int) -> list[int]:
    """``list(range(count))``"""
    found: list[int] = []
    for start in range(0, count, PIECE):
        found.extend(range(start, min(start + PIECE, count)))
    return found
