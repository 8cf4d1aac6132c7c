"""A transport that refuses every request that could change something."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from ksched.errors import InvariantBroken
from ksched.transport import JSON, Response, StreamResponse, Transport


class ReadOnlyTransport:
    """Passes GET requests and watches; anything else raises before it is sent."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        timeout: float = 30.0,
    ) -> Response:
        if method != "GET" or body is not None:
            raise InvariantBroken(f"{method} {path}: refused, this connection is read-only")
        return await self._transport.request(method, path, timeout=timeout)

    def stream(
        self, path: str, *, idle_timeout: float | None = None
    ) -> AbstractAsyncContextManager[StreamResponse]:
        return self._transport.stream(path, idle_timeout=idle_timeout)

    async def aclose(self) -> None:
        await self._transport.aclose()
