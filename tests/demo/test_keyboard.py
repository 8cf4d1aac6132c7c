from __future__ import annotations

import asyncio
import os
import sys
import termios
from collections.abc import Iterator

import pytest

from ksched.demo.keyboard import keys

pytestmark = pytest.mark.real_time


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The user's side of a terminal whose other side is standard input."""
    user, program = os.openpty()
    with os.fdopen(program) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield user
    os.close(user)


async def test_keys_arrive_without_enter(terminal: int) -> None:
    pressed = asyncio.Queue[str]()
    with keys(pressed.put_nowait):
        os.write(terminal, b"pq")
        async with asyncio.timeout(5):
            assert [await pressed.get(), await pressed.get()] == ["p", "q"]


async def test_the_terminal_is_restored_even_after_an_error(terminal: int) -> None:
    before = termios.tcgetattr(sys.stdin)

    def fail() -> None:
        with keys(lambda key: None):
            assert termios.tcgetattr(sys.stdin) != before
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert termios.tcgetattr(sys.stdin) == before


async def test_without_a_keyboard_there_are_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull) as nothing:  # noqa: ASYNC230
        monkeypatch.setattr(sys, "stdin", nothing)
        with keys(lambda key: pytest.fail("a key")):
            await asyncio.sleep(0)
