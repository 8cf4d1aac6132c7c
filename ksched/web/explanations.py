"""Pods explained for readers of the debug paths: one at a time, in a process of its own.

A list of what the scheduler knows is taken on the event loop, written to the process in slices like
a long page, and copied and judged there, as ``ksched explain`` does. So it takes the scheduler no
longer than a page, and a plugin that hangs is ended with the process. What was explained a moment
ago is shown again; only a few requests may wait.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import chain, islice
from typing import Final, NamedTuple

import msgspec
from aiohttp import web

from ksched.api.objects import ObjectMeta
from ksched.configuration.dumping import versioned
from ksched.errors import KschedError
from ksched.journal.encoding import Encoding, Item
from ksched.journal.whole_state import promises_of, state_of
from ksched.scheduling.scheduler import Scheduler
from ksched.web.rendering import Renderer

SECONDS: Final = 50.0
"""Of which less than half is for the search for changes; then the process is ended."""
MAX_WAITING: Final = 8
KEPT_SECONDS: Final = 5.0
_BATCH: Final = 20
"""Objects that are encoded between two looks at the clock."""
_PROCESS: Final = "ksched.web.explanation_process"


class NotExplained(KschedError):
    """A pod could not be explained; the text says why."""

    status = 503


class TooMany(NotExplained):
    """Others wait already."""

    status = 429


class _Kept(NamedTuple):
    name: str
    body: bytes
    until: float


class Explanations:
    """Explains one pod after the other."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._last = _Kept("", b"", 0.0)

    async def response(self, scheduler: Scheduler, pod: ObjectMeta) -> web.Response:
        """Respond with the explanation of a pod as JSON, or why there is none as text."""
        try:
            body = await self.page(scheduler, pod.uid)
        except NotExplained as problem:
            return web.Response(text=f"pod {pod.key}: {problem}\n", status=problem.status)
        return web.Response(body=body, content_type="application/json")

    async def page(self, scheduler: Scheduler, uid: str) -> bytes:
        """Return the explanation of a pod as JSON; raises ``NotExplained``."""
        if self._waiting >= MAX_WAITING:
            raise TooMany(f"{self._waiting} explanations are waited for, try again later")
        name, now = f"{id(scheduler)} {uid}", asyncio.get_running_loop().time
        self._waiting += 1
        try:
            async with self._turn:
                if self._last.name != name or now() >= self._last.until:
                    body = await self._made(scheduler, uid)
                    self._last = _Kept(name, body, now() + KEPT_SECONDS)
                return self._last.body
        finally:
            self._waiting -= 1

    async def _made(self, scheduler: Scheduler, uid: str) -> bytes:
        lines = state_lines(scheduler)
        try:
            async with asyncio.timeout(SECONDS), _running(_PROCESS, uid) as process:
                await self._feed(process, lines)
                assert process.stdout is not None
                body = await process.stdout.read()
                code = await process.wait()
        except TimeoutError:
            raise NotExplained(f"not explained within {SECONDS:.0f} s") from None
        except OSError as problem:
            raise NotExplained(f"no process for it: {problem.strerror or problem}") from problem
        if code:
            raise NotExplained(
                body.decode(errors="replace").strip() or f"its process ended with {code}"
            )
        return body

    async def _feed(self, process: Process, lines: Iterator[bytes]) -> None:
        assert process.stdin is not None
        try:
            async for some in self._renderer.stream(lines):
                process.stdin.write(some)
                await process.stdin.drain()
            process.stdin.close()
        except ConnectionError:
            # It has ended, and says why.
            return


def state_lines(scheduler: Scheduler) -> Iterator[bytes]:
    """The configuration, and then everything that the scheduler knows now as lines of a journal."""
    encoding = Encoding(is_whole=True)
    items = chain(state_of(scheduler, lambda kind: False), promises_of(scheduler))
    first = msgspec.json.encode(versioned(scheduler.configuration)) + b"\n"
    return chain([first], (encoding.lines(some) for some in _batches(items)))


def _batches(items: Iterator[Item]) -> Iterator[list[Item]]:
    while batch := list(islice(items, _BATCH)):
        yield batch


@asynccontextmanager
async def _running(module: str, argument: str) -> AsyncIterator[Process]:
    """A Python process that has ended when the block has."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, argument, stdin=PIPE, stdout=PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
