"""The errors of compilation and evaluation.

CompileError       the expression does not parse, type-check or plan
EvaluationError    the expression has no value; ``&&``, ``||`` and macros may absorb it
CostExceeded       evaluation was stopped at the cost limit; nothing absorbs it
"""

from __future__ import annotations

from dataclasses import dataclass

MOST_ISSUES = 100
"""Limit of the issues in a message, as in cel-go."""


class CompileError(Exception):
    """An expression cannot be evaluated at all; the message is cel-go's."""


class EvaluationError(Exception):
    """An expression has no value for this input."""


class CostExceeded(Exception):
    """Evaluation exceeds its cost limit."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


NO_SUCH_OVERLOAD = "no such overload"


@dataclass(slots=True)
class Issue:
    """One problem of an expression's text."""

    position: int
    """Offset of the character; -1 for a problem of the whole text."""
    message: str


class Issues:
    """The problems found in one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._found: list[Issue] = []

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, position: int, message: str) -> None:
        self._found.append(Issue(position, message))

    def describe(self) -> str:
        """Return all issues in the order of the text, each with its line and a pointer."""
        self._found.sort(key=lambda issue: issue.position)
        lines = [self._describe(issue) for issue in self._found[:MOST_ISSUES]]
        if len(self._found) > MOST_ISSUES:
            lines.append(f"{len(self._found) - MOST_ISSUES} more errors were truncated")
        return "\n".join(lines)

    def _describe(self, issue: Issue) -> str:
        if issue.position < 0:
            return f"ERROR: <input>:-1:0: {issue.message}"
        start = self._text.rfind("\n", 0, issue.position) + 1
        end = self._text.find("\n", issue.position)
        line = self._text[start : end if end >= 0 else len(self._text)].replace("\t", " ")
        row = self._text.count("\n", 0, start) + 1
        column = issue.position - start
        head = f"ERROR: <input>:{row}:{column + 1}: {issue.message}"
        if len(line.encode()) > _LONGEST_SNIPPET:
            return head
        dots = "".join("." if ord(char) < 128 else "\uff0e" for char in line[:column])
        mark = "^" if column >= len(line) or ord(line[column]) < 128 else "\uff3e"
        return f"{head}\n | {line}\n | {dots}{mark}"


_LONGEST_SNIPPET = 16384
