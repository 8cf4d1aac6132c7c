"""Long pages: what they cost the event loop, counted in slices on virtual time."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ksched.web.rendering import SLICE, Renderer, json_pieces


class Source:
    """Pieces that note when they are asked for."""

    def __init__(self, count, seconds=0.0):
        self.count, self.seconds, self.rendered = count, seconds, 0

    def pieces(self):
        self.rendered += 1
        for number in range(self.count):
            yield b"%d " % number


async def count_turns(turns):
    while True:
        turns.append(1)
        await asyncio.sleep(0)


async def test_others_have_their_turn_after_every_slice():
    turns: list[int] = []
    async with asyncio.TaskGroup() as group:
        other = group.create_task(count_turns(turns))
        body = await Renderer().page("x", Source(100 * SLICE).pieces)
        other.cancel()

    assert body.split()[-1] == b"%d" % (100 * SLICE - 1)
    assert len(turns) >= 100


class SlowClock:
    """Seconds that pass with every look: rendering seems to take time."""

    def __init__(self, loop):
        self._loop, self.extra = loop, 0.0

    def __call__(self):
        self.extra += 0.0001
        return self._time() + self.extra

    @property
    def _time(self):
        return self._loop.__class__.time.__get__(self._loop)


async def test_a_page_takes_a_share_of_the_time_and_is_kept_for_a_while(monkeypatch):
    loop = asyncio.get_running_loop()
    clock = SlowClock(loop)
    monkeypatch.setattr(loop, "time", clock, raising=False)
    renderer, source = Renderer(), Source(20 * SLICE)
    began = loop.time()
    await renderer.page("x", source.pieces)
    wall, cost = loop.time() - began, clock.extra

    assert wall >= 3 * cost
    await renderer.page("x", source.pieces)
    assert source.rendered == 1
    await asyncio.sleep(10.0)
    await renderer.page("x", source.pieces)
    assert source.rendered == 2


async def test_concurrent_readers_share_one_rendering(monkeypatch):
    monkeypatch.setattr("ksched.web.rendering._CACHE_FACTOR", float("inf"))
    renderer, source = Renderer(), Source(10 * SLICE)
    # On virtual time a page costs nothing and would not be kept.
    monkeypatch.setattr("ksched.web.rendering.min", lambda cost, most: most, raising=False)
    pages = await asyncio.gather(*(renderer.page("x", source.pieces) for _ in range(8)))

    assert source.rendered == 1
    assert len(set(pages)) == 1


async def test_one_page_is_written_at_a_time():
    active = []

    def pieces(name):
        for _ in range(3 * SLICE):
            active.append(name)
            yield b"x"

    renderer = Renderer()
    await asyncio.gather(*(renderer.page(name, partial(pieces, name)) for name in "abc"))

    assert active == sorted(active), "pages are not interleaved"


async def test_reader_that_leaves_does_not_hold_up_the_others():
    renderer, source = Renderer(), Source(10 * SLICE)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(renderer.page("x", source.pieces))
        second = group.create_task(renderer.page("x", source.pieces))
        await asyncio.sleep(0)
        first.cancel()
    assert second.result().endswith(b"%d " % (10 * SLICE - 1))


async def test_kept_pages_are_few():
    renderer = Renderer()
    for number in range(100):
        await renderer.page(f"{number}", Source(1).pieces)

    assert len(renderer._pages) <= 8


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=12,
)


def lazily(content):
    """The same with iterators for the lists below dictionaries."""
    if isinstance(content, dict):
        return {key: lazily(value) for key, value in content.items()}
    return iter(content) if isinstance(content, list) else content


@given(VALUES)
def test_pieces_are_the_indented_document(content):
    whole = msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"
    assert b"".join(json_pieces(content)) == whole
    assert b"".join(json_pieces(lazily(content))) == whole


@pytest.mark.parametrize("content", [{}, [], {"a": []}, {"a": {}}])
def test_empty_things_stay_on_their_line(content):
    assert (
        b"".join(json_pieces(lazily(content)))
        == msgspec.json.encode(content)
        .replace(b'{"a":', b'{\n  "a": ')
        .replace(b"]}", b"]\n}")
        .replace(b"}}", b"}\n}")
        + b"\n"
    )


def long_pieces(count):
    return (b"%07d\n" % number * 128 for number in range(count))


async def test_stream_is_the_whole_page_in_small_chunks():
    chunks = [chunk async for chunk in Renderer().stream(long_pieces(1000))]

    assert b"".join(chunks) == b"".join(long_pieces(1000))
    assert len(chunks) > 10
    assert max(map(len, chunks)) < 70_000
    assert [chunk async for chunk in Renderer().stream(())] == []


async def test_reader_of_a_stream_that_stops_holds_up_no_other_page():
    renderer = Renderer()
    stream = renderer.stream(long_pieces(1000))
    await anext(stream)
    async with asyncio.timeout(1):
        assert await renderer.page("x", Source(3).pieces) == b"0 1 2 "
        assert len([chunk async for chunk in renderer.stream(long_pieces(1000))]) > 10
    await stream.aclose()
