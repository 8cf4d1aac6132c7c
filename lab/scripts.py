"""Scripted tests: commands and what they must print, in a text file.

A script is a list of steps, separated by blank lines::

    # A comment belongs to the step below it.
    add web-0 priority=10
    ----
    active: web-0

``run_script`` gives each command to an interpreter, puts what it prints in place of what was
expected, and compares the whole text, so that one failure shows every difference. With ``rewrite``
the file is recorded anew instead; review the change like code.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Callable, Iterator
from inspect import isawaitable
from pathlib import Path
from typing import Any

from msgspec import Struct

SEPARATOR = "----"


class Command(Struct, frozen=True):
    """A command line: its name, its plain arguments, and its ``key=value`` options."""

    line: str
    name: str
    args: list[str]
    options: dict[str, str]

    @classmethod
    def parse(cls, line: str) -> Command:
        name, *words = shlex.split(line)
        options = dict(word.split("=", 1) for word in words if "=" in word)
        return cls(line, name, [word for word in words if "=" not in word], options)


class Step(Struct, frozen=True):
    """A command with the comment above it and the output below it."""

    comment: list[str]
    command: str
    output: list[str]

    def render(self) -> str:
        return "\n".join([*self.comment, self.command, SEPARATOR, *self.output])


Interpreter = Callable[[Command], Any]
"""Executes a command and returns its output: a string, or an awaitable of one."""


def parse(text: str) -> list[Step]:
    """Split a script into steps; raises ``ValueError`` naming the line that is out of place."""
    return [_step(number, block) for number, block in _blocks(text)]


def render(steps: list[Step]) -> str:
    return "\n\n".join(step.render() for step in steps) + "\n"


async def run_script(path: Path, interpret: Interpreter, *, rewrite: bool = False) -> None:
    """Run a script; raises ``AssertionError`` with a diff if it prints something else."""
    _compare(path, await play(parse(_read(path)), interpret), rewrite)


async def play(steps: list[Step], interpret: Interpreter) -> str:
    """Execute the commands in order and return the script as it would be recorded now.

    Blank lines of the output are left out: they end a step.
    """
    recorded = []
    for step in steps:
        output = interpret(Command.parse(step.command))
        if isawaitable(output):
            output = await output
        lines = [line.rstrip() for line in str(output).splitlines() if line.strip()]
        recorded.append(Step(step.comment, step.command, lines))
    return render(recorded)


def _read(path: Path) -> str:
    return path.read_text()


def _compare(path: Path, actual: str, rewrite: bool) -> None:
    expected = path.read_text()
    if actual == expected:
        return
    if rewrite:
        path.write_text(actual)
        return
    diff = difflib.unified_diff(
        expected.splitlines(), actual.splitlines(), "expected", "actual", lineterm="", n=6
    )
    raise AssertionError("\n".join([f"{path.name}: run with --rewrite to accept", *diff]))


def _blocks(text: str) -> Iterator[tuple[int, list[str]]]:
    block: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.strip():
            block.append(line.rstrip())
        elif block:
            yield number - len(block), block
            block = []


def _step(number: int, block: list[str]) -> Step:
    comment = [line for line in block if line.startswith("#")]
    rest = block[len(comment) :]
    if block[: len(comment)] != comment or not rest:
        raise ValueError(f"line {number}: comments stand above a command, got {block[0]!r}")
    # A new script may have bare commands: the first --rewrite records their output.
    if len(rest) > 1 and rest[1] != SEPARATOR:
        raise ValueError(f"line {number}: wanted {SEPARATOR} below the command, got {rest[1]!r}")
    return Step(comment, rest[0], rest[2:])
