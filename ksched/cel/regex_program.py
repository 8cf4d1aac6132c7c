"""Programs of regular expressions, built from fragments."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

LARGEST_PROGRAM: Final = 10_000

Ranges = tuple[tuple[int, int], ...]


class RegexError(ValueError):
    """A pattern is invalid; the message is that of Go's ``regexp``."""

    def __init__(self, problem: str, where: str) -> None:
        super().__init__(f"error parsing regexp: {problem}: `{where}`")


class CharacterSet:
    """Characters, tested once each."""

    __slots__ = ("_categories", "_folded", "_known", "_negated", "_ranges")

    def __init__(
        self, ranges: Ranges, categories: tuple[tuple[str, bool], ...], negated: bool, folded: bool
    ) -> None:
        self._ranges = ranges
        self._categories = categories
        self._negated = negated
        self._folded = folded
        self._known: dict[str, bool] = {}

    def __contains__(self, char: str) -> bool:
        known = self._known.get(char)
        if known is None:
            known = self._known[char] = self._test(char)
        return known

    def _test(self, char: str) -> bool:
        variants = {char}
        if self._folded:
            variants |= {one for one in (char.lower(), char.upper()) if len(one) == 1}
        return any(map(self._has, variants)) != self._negated

    def _has(self, char: str) -> bool:
        code = ord(char)
        if any(low <= code <= high for low, high in self._ranges):
            return True
        category = unicodedata.category(char)
        return any(
            (category.startswith(prefix) or prefix == "Any") != negated
            for prefix, negated in self._categories
        )


@dataclass(slots=True)
class Instruction:
    """``op`` is char, split (first alternative first), jump, assert or match."""

    op: str
    chars: CharacterSet | None = None
    first: int = 0
    second: int = 0
    assertion: str = ""


Fragment = Callable[[list[Instruction]], None]
"""Appends its instructions to a program."""


def _emit(instructions: list[Instruction], instruction: Instruction) -> Instruction:
    if len(instructions) >= LARGEST_PROGRAM:
        raise RegexError("expression too large", "")
    instructions.append(instruction)
    return instruction


def one_of(chars: CharacterSet) -> Fragment:
    def emit(code: list[Instruction]) -> None:
        _emit(code, Instruction("char", chars))

    return emit


def assertion(name: str) -> Fragment:
    def emit(code: list[Instruction]) -> None:
        _emit(code, Instruction("assert", assertion=name))

    return emit


def sequence(parts: list[Fragment]) -> Fragment:
    def emit(code: list[Instruction]) -> None:
        for part in parts:
            part(code)

    return emit


def either(one: Fragment, other: Fragment) -> Fragment:
    def emit(code: list[Instruction]) -> None:
        split = _emit(code, Instruction("split", first=len(code) + 1))
        one(code)
        jump = _emit(code, Instruction("jump"))
        split.second = len(code)
        other(code)
        jump.first = len(code)

    return emit


def maybe(part: Fragment, greedy: bool) -> Fragment:
    def emit(code: list[Instruction]) -> None:
        split = _emit(code, Instruction("split", first=len(code) + 1))
        part(code)
        split.second = len(code)
        if not greedy:
            split.first, split.second = split.second, split.first

    return emit


def any_number(part: Fragment, greedy: bool) -> Fragment:
    def emit(code: list[Instruction]) -> None:
        start = len(code)
        split = _emit(code, Instruction("split", first=start + 1))
        part(code)
        _emit(code, Instruction("jump", first=start))
        split.second = len(code)
        if not greedy:
            split.first, split.second = split.second, split.first

    return emit


def repeated(part: Fragment, low: int, high: int | None, greedy: bool) -> Fragment:
    def emit(code: list[Instruction]) -> None:
        for _ in range(low):
            part(code)
        if high is None:
            any_number(part, greedy)(code)
            return
        exits: list[Instruction] = []
        for _ in range(high - low):
            split = _emit(code, Instruction("split", first=len(code) + 1))
            exits.append(split)
            part(code)
        for split in exits:
            split.second = len(code)
            if not greedy:
                split.first, split.second = split.second, split.first

    return emit


def quantified(atom: Fragment, low: int, high: int | None, greedy: bool) -> Fragment:
    if (low, high) == (0, None):
        return any_number(atom, greedy)
    if (low, high) == (0, 1):
        return maybe(atom, greedy)
    return repeated(atom, low, high, greedy)
