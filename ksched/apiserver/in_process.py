"""A transport that calls the embedded server directly: no sockets, so it lives on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ksched.apiserver.api_server import ApiServer, failure
from ksched.apiserver.faults import Fault, Faults, connection_reset, faulty_lines
from ksched.apiserver.request import Request
from ksched.apiserver.watching import Watch
from ksched.errors import Unavailable
from ksched.transport import JSON, SILENT, Response, StreamResponse

_NO_FAULT = Fault()
_STREAM_HEADERS = {"Content-Type": JSON, "Transfer-Encoding": "chunked"}


class InProcessTransport:
    """``Transport`` into an ``ApiServer`` in the same event loop.

    ``user`` is the identity the server's request log shows. Every call suspends before and after
    the server acts, as a wire would make it, so that others may run between a request and its
    answer.
    """

    def __init__(
        self, server: ApiServer, user: str = "system:admin", faults: Faults | None = None
    ) -> None:
        self._server, self._user = server, user
        self._faults = faults or Faults()

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
        request = Request("GET", path, accept=JSON, user=self._user)
        fault = self._fault(request)
        try:
            async with asyncio.timeout(idle_timeout):
                answer = await self._perform(request, fault)
        except TimeoutError:
            raise _silent(path, idle_timeout) from None
        if isinstance(answer, Response):
            yield StreamResponse(answer.status, answer.headers, _single(answer.body))
            return
        lines = answer.lines()
        if fault is not _NO_FAULT:
            lines = faulty_lines(lines, fault, request)
        if idle_timeout is not None:
            lines = _within(lines, path, idle_timeout)
        try:
            yield StreamResponse(200, _STREAM_HEADERS, lines)
        finally:
            answer.close()

    async def aclose(self) -> None:
        """Nothing is held open."""

    def _fault(self, request: Request) -> Fault:
        return self._faults.choose(request, self._server.resources) or _NO_FAULT

    async def _exchange(self, request: Request) -> Response:
        answer = await self._perform(request, self._fault(request))
        await asyncio.sleep(0)
        if isinstance(answer, Watch):
            lines = [line async for line in answer.lines()]
            return Response(200, _STREAM_HEADERS, b"\n".join(lines))
        return answer

    async def _perform(self, request: Request, fault: Fault) -> Response | Watch:
        await asyncio.sleep(fault.delay_seconds)
        if fault.hang:
            await asyncio.Event().wait()
        if fault.answer is not None:
            return failure(fault.answer)
        answer = self._server.handle(request)
        if fault.lose_response:
            if isinstance(answer, Watch):
                answer.close()
            raise connection_reset(request)
        return answer


def _silent(path: str, idle_timeout: float | None) -> Unavailable:
    return Unavailable(0, SILENT, f"GET {path}: silent for {idle_timeout} seconds")


async def _single(line: bytes) -> AsyncIterator[bytes]:
    yield line


async def _within(
    lines: AsyncIterator[bytes], path: str, idle_timeout: float
) -> AsyncIterator[bytes]:
    while True:
        try:
            async with asyncio.timeout(idle_timeout):
                line = await anext(lines, None)
        except TimeoutError:
            raise _silent(path, idle_timeout) from None
        if line is None:
            return
        yield line
