"""A transport that calls the embedded server directly: no sockets, so it lives on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ksched.apiserver.request import Request
from ksched.apiserver.server import ApiServer
from ksched.apiserver.watching import Watch
from ksched.errors import Unavailable
from ksched.transport import JSON, Response, StreamResponse

_STREAM_HEADERS = {"Content-Type": JSON, "Transfer-Encoding": "chunked"}


class InProcessTransport:
    """``Transport`` into an ``ApiServer`` in the same event loop.

    ``user`` is the identity the server's request log shows. Every call suspends before and after
    the server acts, as a wire would make it, so that others may run between a request and its
    answer.
    """

    def __init__(self, server: ApiServer, user: str = "system:admin") -> None:
        self._server, self._user = server, user

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        timeout: float = 30.0,
    ) -> Response:
        request = Request(method, path, body or b"", content_type, JSON, self._user)
        try:
            async with asyncio.timeout(timeout):
                return await self._exchange(request)
        except TimeoutError:
            message = f"{method} {path}: no answer within {timeout} seconds"
            raise Unavailable(0, "Timeout", message) from None

    @asynccontextmanager
    async def stream(
        self, path: str, *, idle_timeout: float | None = None
    ) -> AsyncIterator[StreamResponse]:
        await asyncio.sleep(0)
        answer = self._server.handle(Request("GET", path, accept=JSON, user=self._user))
        if isinstance(answer, Response):
            yield StreamResponse(answer.status, answer.headers, _single(answer.body))
            return
        lines = _within(answer.lines(), path, idle_timeout)
        try:
            yield StreamResponse(200, _STREAM_HEADERS, lines)
        finally:
            answer.close()

    async def aclose(self) -> None:
        """Nothing is held open."""

    async def _exchange(self, request: Request) -> Response:
        await asyncio.sleep(0)
        answer = self._server.handle(request)
        await asyncio.sleep(0)
        if isinstance(answer, Watch):
            lines = [line async for line in answer.lines()]
            return Response(200, _STREAM_HEADERS, b"\n".join(lines))
        return answer


async def _single(line: bytes) -> AsyncIterator[bytes]:
    yield line


async def _within(
    lines: AsyncIterator[bytes], path: str, idle_timeout: float | None
) -> AsyncIterator[bytes]:
    while True:
        try:
            async with asyncio.timeout(idle_timeout):
                line = await anext(lines, None)
        except TimeoutError:
            message = f"GET {path}: silent for {idle_timeout} seconds"
            raise Unavailable(0, "Timeout", message) from None
        if line is None:
            return
        yield line
