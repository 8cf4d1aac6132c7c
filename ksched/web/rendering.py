"""Pages that take long to render: in slices, one page at a time, shared by concurrent requests.

The event loop belongs to the scheduler. A page is rendered in slices, with pauses several times as
long in between, so that all requests together take a fixed share of it, however many there are.
Requests are queued, and a page that was rendered a moment ago is served again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

SLICE: Final = 50
"""Pieces rendered at most before yielding to other tasks."""
_SLICE_SECONDS: Final = 0.001
_PAUSE_FACTOR: Final = 4.0
# Valid for ten times its cost: at most a tenth of the time is spent on one page.
_CACHE_FACTOR: Final = 10.0
_CACHE_SECONDS: Final = 1.0
_PAGES_KEPT: Final = 8
_CHUNK_BYTES: Final = 64 * 1024


class _Page(NamedTuple):
    body: bytes
    until: float


class Renderer:
    """Renders pages. The name of a page includes everything that its content depends on."""

    def __init__(self) -> None:
        self._pages: dict[str, _Page] = {}
        self._turn = asyncio.Lock()

    async def page(self, name: str, pieces: Callable[[], Iterable[bytes]]) -> bytes:
        """Return the page of this name, cached or rendered from ``pieces``."""
        loop = asyncio.get_running_loop()
        async with self._turn:
            cached = self._pages.get(name)
            if cached is not None and loop.time() < cached.until:
                return cached.body
            body, cost = await _written(pieces(), loop.time)
            until = loop.time() + min(cost * _CACHE_FACTOR, _CACHE_SECONDS)
            self._pages.pop(name, None)
            while len(self._pages) >= _PAGES_KEPT:
                del self._pages[next(iter(self._pages))]
            self._pages[name] = _Page(body, until)
            return body

    async def stream(self, pieces: Iterable[bytes]) -> AsyncGenerator[bytes, None]:
        """Yield a page that is too long to be kept, slice by slice as its reader takes it.

        Several of them and other pages take turns, so that the share of the event loop is that of
        one.
        """
        now = asyncio.get_running_loop().time
        remaining = iter(pieces)
        is_complete = False
        while not is_complete:
            chunk = bytearray()
            async with self._turn:
                began, is_complete = now(), True
                for piece in remaining:
                    chunk += piece
                    if now() - began >= _SLICE_SECONDS or len(chunk) >= _CHUNK_BYTES:
                        is_complete = False
                        break
                await asyncio.sleep((now() - began) * _PAUSE_FACTOR)
            if chunk:
                yield bytes(chunk)


async def _written(pieces: Iterable[bytes], now: Callable[[], float]) -> tuple[bytes, float]:
    """Return all pieces joined, and the seconds that they took."""
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
    """Yield indented JSON; an iterator is encoded as a list, lazily."""
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
