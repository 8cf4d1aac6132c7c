"""A fence: no write is sent by a process that no longer leads.

Cancelling a leader's work is not enough: a process that was stopped for a minute (SIGSTOP, a
suspended machine, a plugin that blocked the event loop) resumes in the middle of its work, and the
next task may be a bind. So every write is checked, right before it is sent, against the remaining
lease time on the monotonic clock, which does not stop with the process.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

import anyio

from ksched.client.telemetry import telemetry_of
from ksched.errors import Unavailable
from ksched.transport import JSON, NOT_SENT, Response, StreamResponse, Transport

_LOOK_AGAIN_SECONDS: Final = 0.05


def _for_ever() -> float:
    return math.inf


class WriteFence:
    """Passes writes while the lease is held, and tracks those in flight.

    ``remaining`` returns the seconds for which the lease holds, 0 when it does not; without an
    election it always holds.
    """

    def __init__(self, remaining: Callable[[], float] = _for_ever) -> None:
        self._remaining = remaining
        self._is_closed = False
        self._under_way = 0
        self._quiet = asyncio.Event()

    def guard(self, transport: Transport) -> Transport:
        """Wrap a transport for a leader: reads pass, writes must pass the fence."""
        return _FencedTransport(transport, self)

    def remaining(self) -> float:
        """Return the seconds for which a write may be sent; not positive when it must not."""
        return 0.0 if self._is_closed else self._remaining()

    def close(self) -> None:
        """Pass no further writes. Those in flight complete."""
        self._is_closed = True
        self._notify()

    async def wait_quiet(self) -> None:
        """After ``close``: wait until every write that was sent has been answered."""
        await self._quiet.wait()

    def enter(self) -> None:
        self._under_way += 1

    def leave(self) -> None:
        self._under_way -= 1
        self._notify()

    def _notify(self) -> None:
        if self._is_closed and not self._under_way:
            self._quiet.set()


class _FencedTransport:
    """A transport whose writes wait while they may not be sent.

    A task that writes without the lease is about to be cancelled, so it waits for that, and nothing
    is reported as failed that was never tried. A write may not take longer than the lease holds
    either: waiting for a connection counts, and nothing is sent after a request's time-out.
    """

    def __init__(self, transport: Transport, fence: WriteFence) -> None:
        self._transport, self._fence = transport, fence
        self.telemetry = telemetry_of(transport)

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        timeout: float = 30.0,
    ) -> Response:
        send, fence = self._transport.request, self._fence
        if method == "GET":
            return await send(method, path, body, content_type=content_type, timeout=timeout)
        remaining = fence.remaining()
        if remaining <= 0:
            remaining = await self._wait(method, path, timeout)
        fence.enter()
        try:
            timeout = min(timeout, remaining)
            return await send(method, path, body, content_type=content_type, timeout=timeout)
        finally:
            fence.leave()

    async def _wait(self, method: str, path: str, timeout: float) -> float:
        """Wait for the lease to hold again: a renewal may be in flight."""
        with anyio.move_on_after(timeout):
            while True:
                await anyio.sleep(_LOOK_AGAIN_SECONDS)
                remaining = self._fence.remaining()
                if remaining > 0:
                    return remaining
        raise Unavailable(0, NOT_SENT, f"{method} {path}: not sent, only the leader may write")

    def stream(
        self, path: str, *, idle_timeout: float | None = None
    ) -> AbstractAsyncContextManager[StreamResponse]:
        return self._transport.stream(path, idle_timeout=idle_timeout)

    async def aclose(self) -> None:
        await self._transport.aclose()
