"""Transports that change nothing: one that only reads, and one without a server."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from ksched.errors import InvariantBroken, Unavailable
from ksched.transport import JSON, NOT_SENT, Response, StreamResponse, Transport


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


class NoServer:
    """A transport without anybody at the other end: everything that is read is in memory."""

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        timeout: float = 30.0,
    ) -> Response:
        raise Unavailable(0, NOT_SENT, f"{method} {path}: this copy of a cluster has no API server")

    def stream(
        self, path: str, *, idle_timeout: float | None = None
    ) -> AbstractAsyncContextManager[StreamResponse]:
        raise Unavailable(0, NOT_SENT, f"{path}: this copy of a cluster has no API server")

    async def aclose(self) -> None:
        """Nothing is open."""
