"""Regular expressions in linear time, with RE2's syntax and choice of match.

A backtracking matcher that visits each pair of instruction and position at most once: the same
first match as Perl's, but never more steps than program times text (RE2 calls it bit-state).
Python's ``re`` backtracks without that bound, so one pattern could block the process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from ksched.cel.errors import CostExceeded, EvaluationError
from ksched.cel.regex_program import Instruction, RegexError
from ksched.cel.regex_syntax import program
from ksched.cel.values import Value, no_such_overload

MOST_STEPS: Final = 500_000
"""Limit of the steps of one call; far above any pattern on the 64 characters of an attribute."""
_PARTS: Final = 64
_REMEMBERED = 256
_LONGEST_REMEMBERED = 256
_WORD = frozenset("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz")


class _Visited:
    """The states of one search, in parts: a large set grows and is freed in one long call."""

    __slots__ = ("parts", "steps")

    def __init__(self) -> None:
        self.parts: list[set[int]] = [set() for _ in range(_PARTS)]
        self.steps = 0

    def clear(self) -> None:
        while self.parts:
            self.parts.pop()


class Regex:
    """A compiled pattern."""

    def __init__(self, pattern: str) -> None:
        self._program = program(pattern)
        self._known: dict[str, bool] = {}
        self.steps = 0
        """Steps of the last search."""

    def matches(self, text: str) -> bool:
        """Whether the text contains a match. The last results are cached."""
        known = self._known.get(text)
        if known is None:
            known = self.search(text, 0) is not None
            if len(text) > _LONGEST_REMEMBERED:
                return known
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[text] = known
        return known

    def search(self, text: str, start: int) -> tuple[int, int] | None:
        """Return begin and end of the leftmost match from a position on."""
        visited = _Visited()
        width = len(self._program)
        try:
            for begin in range(start, len(text) + 1):
                end = self._run(text, begin, visited, width)
                if end is not None:
                    return begin, end
            return None
        finally:
            self.steps = visited.steps
            visited.clear()

    def _run(self, text: str, begin: int, visited: _Visited, width: int) -> int | None:
        """Return the end of the preferred match from ``begin``."""
        code, parts = self._program, visited.parts
        pending = [begin * width]
        while pending:
            state = pending.pop()
            while state not in (part := parts[state % _PARTS]):
                part.add(state)
                visited.steps += 1
                if visited.steps > MOST_STEPS:
                    raise CostExceeded
                position, counter = divmod(state, width)
                instruction = code[counter]
                op = instruction.op
                if op == "char":
                    if position == len(text) or text[position] not in instruction.chars:  # type: ignore[operator]
                        break
                    state += width + 1
                elif op == "split":
                    pending.append(position * width + instruction.second)
                    state = position * width + instruction.first
                elif op == "jump":
                    state = position * width + instruction.first
                elif op == "match":
                    return position
                elif _holds(instruction, text, position):
                    state += 1
                else:
                    break
        return None

    def find(self, text: str) -> str:
        """Return the first match, empty if there is none."""
        found = self.search(text, 0)
        return text[found[0] : found[1]] if found is not None else ""

    def find_all(self, text: str, most: int) -> list[str]:
        """Return non-overlapping matches, at most ``most``; all if that is negative."""
        matches: list[str] = []
        position, last_end, steps = 0, -1, 0
        while position <= len(text) and (most < 0 or len(matches) < most):
            found = self.search(text, position)
            steps += self.steps
            if steps > MOST_STEPS:
                raise CostExceeded
            if found is None:
                break
            begin, end = found
            if end > begin or begin != last_end:
                matches.append(text[begin:end])
            last_end = end
            position = end if end > begin else end + 1
        return matches


def _holds(instruction: Instruction, text: str, position: int) -> bool:
    name = instruction.assertion
    if name == "text start":
        return position == 0
    if name == "text end":
        return position == len(text)
    if name == "line start":
        return position == 0 or text[position - 1] == "\n"
    if name == "line end":
        return position == len(text) or text[position] == "\n"
    before = position > 0 and text[position - 1] in _WORD
    after = position < len(text) and text[position] in _WORD
    return (before != after) == (name == "word")


@lru_cache(maxsize=256)
def compile_regex(pattern: str) -> Regex:
    """Compile a pattern; raises ``RegexError``."""
    return Regex(pattern)


def matches(text: Value, pattern: Value) -> bool:
    """``text.matches(pattern)``"""
    if type(text) is not str:
        raise EvaluationError("no such overload: matches")
    if type(pattern) is not str:
        raise no_such_overload()
    try:
        return compile_regex(pattern).matches(text)
    except RegexError as error:
        raise EvaluationError(str(error)) from None


def _known_matches(regex: Regex) -> Callable[..., Value]:
    def run(text: Value, pattern: Value) -> bool:
        if type(text) is not str:
            raise no_such_overload()
        return regex.matches(text)

    return run


def _known_find(regex: Regex) -> Callable[..., Value]:
    def run(text: Value, pattern: Value) -> str:
        if type(text) is not str:
            raise no_such_overload()
        return regex.find(text)

    return run


def _known_find_all(regex: Regex) -> Callable[..., Value]:
    def run(text: Value, pattern: Value, most: Value = -1) -> list[str]:
        if type(text) is not str or type(most) is not int:
            raise no_such_overload()
        return regex.find_all(text, most)

    return run


KNOWN_PATTERN: Mapping[str, Callable[[Regex], Callable[..., Value]]] = {
    "matches": _known_matches,
    "find": _known_find,
    "findAll": _known_find_all,
}
"""Functions whose constant patterns are compiled once, by the planner."""
