"""Pages that take long to write: a slice at a time, one page at a time, once for all who ask.

The event loop belongs to the scheduler. A page is written in slices, with pauses several times as
long in between, so that all readers together take a fixed share of it, however many they are and
whatever they ask for. They wait in line, and a page that was written a moment ago is given again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

SLICE: Final = 50
"""Pieces written at most before other tasks have their turn."""
_SLICE_SECONDS: Final = 0.001
_PAUSE_FACTOR: Final = 4.0
# Fresh within ten times of what it cost: at most a tenth of the time goes into one page.
_KEPT_FACTOR: Final = 10.0
_KEPT_SECONDS: Final = 1.0
_PAGES_KEPT: Final = 8


class _Page(NamedTuple):
    body: bytes
    until: float


class Renderer:
    """Writes pages. A page is named by everything that its content depends on."""

    def __init__(self) -> None:
        self._pages: dict[str, _Page] = {}
        self._turn = asyncio.Lock()

    async def page(self, name: str, pieces: Callable[[], Iterable[bytes]]) -> bytes:
        """The page of this name, as it was a moment ago or as ``pieces`` give it now."""
        loop = asyncio.get_running_loop()
        async with self._turn:
            kept = self._pages.get(name)
            if kept is not None and loop.time() < kept.until:
                return kept.body
            body, cost = await _written(pieces(), loop.time)
            until = loop.time() + min(cost * _KEPT_FACTOR, _KEPT_SECONDS)
            self._pages.pop(name, None)
            while len(self._pages) >= _PAGES_KEPT:
                del self._pages[next(iter(self._pages))]
            self._pages[name] = _Page(body, until)
            return body


async def _written(pieces: Iterable[bytes], now: Callable[[], float]) -> tuple[bytes, float]:
    """All pieces together, and the seconds that they took."""
    body = bytearray()
    cost, began = 0.0, now()
    for number, piece in enumerate(pieces, start=1):
        body += piece
        slice_cost = now() - began
        if number % SLICE == 0 or slice_cost >= _SLICE_SECONDS:
            cost += slice_cost
            await asyncio.sleep(slice_cost * _PAUSE_FACTOR)
            began = now()
    return bytes(body), cost + now() - began


def json_pieces(content: Any) -> Iterator[bytes]:
    """Indented JSON; an iterator is a list whose items are made when they are written."""
    yield from _json(content, 0)
    yield b"\n"


def _json(content: Any, depth: int) -> Iterator[bytes]:
    if isinstance(content, dict) and content:
        separator = b"{"
        for key, value in content.items():
            yield b"%s%s%s: " % (separator, _line(depth + 1), msgspec.json.encode(key))
            yield from _json(value, depth + 1)
            separator = b","
        yield _line(depth) + b"}"
    elif isinstance(content, Iterator):
        separator = b"["
        for item in content:
            yield separator + _line(depth + 1) + _indented(item, depth + 1)
            separator = b","
        yield b"[]" if separator == b"[" else _line(depth) + b"]"
    else:
        yield _indented(content, depth)


def _indented(content: Any, depth: int) -> bytes:
    text = msgspec.json.format(msgspec.json.encode(content), indent=2)
    return text.replace(b"\n", _line(depth))


def _line(depth: int) -> bytes:
    return b"\n" + b"  " * depth
