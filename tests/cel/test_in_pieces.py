"""``ksched.cel.in_pieces`` against the built-in functions; how long one holds up other threads."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import pytest

from ksched.cel import EvaluationError, in_pieces
from ksched.cel.in_pieces import PIECE
from ksched.devices.device_selectors import DeviceView, compile_device_selector
from ksched.testing.device_builders import make_slice

LENGTHS = (0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 5)
HOLD_SECONDS = 0.02
"""Of CPU time."""
(DEVICE,) = make_slice("n1").device("d", model="a").obj().spec.devices
VIEW = DeviceView("gpu.example.com", DEVICE)


@pytest.mark.parametrize("length", LENGTHS)
def test_the_answers_are_those_of_the_built_in_functions(length: int) -> None:
    text = ("a-bü" * (length // 4 + 1))[:length]
    parts = text.split("-")
    assert in_pieces.split(text, "-", -1) == parts
    for times in (0, 1, 5, PIECE, PIECE + 1, 10**9):
        assert in_pieces.split("x-" * length, "-", times) == ("x-" * length).split("-", times)
    assert in_pieces.join(parts, "::") == "::".join(parts)
    assert in_pieces.total_length(parts) == sum(map(len, parts))
    assert in_pieces.characters(text) == list(text)
    table: dict[int, int | str] = {ord("a"): "xy", ord("b"): 65}
    assert in_pieces.translate(text, table) == text.translate(table)
    for padded in (text, " " * length, f"{' ' * length}{text}\t{' ' * length}"):
        assert in_pieces.strip(padded, " \t") == padded.strip(" \t")
    assert in_pieces.integers(length) == list(range(length))


class CallTimes:
    """The longest call of a built-in function that calls nothing else."""

    def __init__(self) -> None:
        self.seconds, self.name = 0.0, ""
        self._open: list[tuple[str, float]] = []

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call":
            self._open.append((getattr(argument, "__qualname__", ""), time.thread_time()))
        elif event in ("c_return", "c_exception") and self._open:
            name, began = self._open.pop()
            seconds = time.thread_time() - began
            if seconds > self.seconds:
                self.seconds, self.name = seconds, name
        elif event == "call" and self._open:
            # It called back: other threads run meanwhile.
            self._open[-1] = (self._open[-1][0], float("inf"))


@contextmanager
def call_times() -> Iterator[CallTimes]:
    times = CallTimes()
    sys.setprofile(times)
    try:
        yield times
    finally:
        sys.setprofile(None)


LONG = "'aaaaaaaał'" + ".replace('a', 'aaaaaaaaaa')" * 5
"""Eight hundred thousand characters."""
SPACES = "'  '" + ".replace(' ', '          ')" * 5
PARTS = "'ab,'" + ".replace('ab,', 'ab,ab,ab,ab,ab,ab,ab,ab,ab,ab,')" * 5

DEAR = {
    "lower case": f"{LONG}.upperAscii().lowerAscii() != ''",
    "trim": f"{SPACES}.trim() == ''",
    "quote": f"strings.quote({LONG}) != ''",
    "split": f"{PARTS}.split(',').size() > 1",
    "characters": f"{LONG}.substring(0, 200000).split('').size() > 1",
    "join": f"{PARTS}.split(',').join('-').size() > 1",
    "search": f"{LONG}.indexOf('aaaał') == -1 && {LONG}.lastIndexOf('ła') == -1",
    "replace": f"{LONG}.replace('aa', 'b').replace('b', 'cc') != ''",
    "range": "lists.range(240000).reverse().slice(1, 200000).size() > 1",
    "sum": "(lists.range(120000) + lists.range(120000)).size() > 1",
    "pattern": f"!{LONG}.substring(0, 200000).matches('(a|b|c|d)*e')",
    "a pattern of many instructions": r"!'aaaaaaaaaaaaaaaaaaaaaaaaaaaa'.matches('(a{30}){30}b')",
    "one quantity": f"isQuantity({LONG}.substring(0, 400000))",
    "a message": "{'a': 1}[dyn(lists.range(200000))] == 1",
}


@pytest.mark.parametrize("kind", DEAR)
def test_no_built_in_function_holds_up_other_threads(kind: str) -> None:
    selector = compile_device_selector(DEAR[kind])
    with call_times() as times, suppress(EvaluationError):
        selector.matches(VIEW)
    assert times.seconds < HOLD_SECONDS, times.name
