"""The way to a server: directly, or through an HTTP proxy."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast
from urllib.parse import SplitResult, unquote, urlsplit

P = TypeVar("P", bound=asyncio.Protocol)

_HEAD_LIMIT: Final = 64 << 10


class Route:
    """Opens connections to the server of a URL.

    A proxy relays plain requests, which have ``origin`` before their path and ``headers``; for TLS
    it connects to the server, and sees only what is encrypted.
    """

    def __init__(self, server: str, *, server_name: str = "", proxy: str = "") -> None:
        url = urlsplit(server)
        self.host, self.port = _address(url)
        self._server_name = server_name or self.host
        self._proxy = urlsplit(proxy) if proxy else None
        self._authorization = _basic(self._proxy) if self._proxy else ""
        self.name = _named(self.host, self.port)
        if self._proxy:
            self.name += f" through the proxy {_named(*_address(self._proxy))}"
        is_relayed = self._proxy is not None and url.scheme == "http"
        self.origin = f"http://{url.netloc}" if is_relayed else ""
        self.headers = self._authorization if is_relayed else ""

    async def open(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: Callable[[], P],
        ssl_context: ssl.SSLContext | None,
    ) -> P:
        """Connect; raises ``OSError`` or ``ssl.SSLError``."""
        if self._proxy is None:
            tls = _tls(ssl_context, self._server_name)
            _, connection = await loop.create_connection(protocol, self.host, self.port, **tls)
            return connection
        host, port = _address(self._proxy)
        tls = {}
        if self._proxy.scheme == "https":
            tls = _tls(ssl_context or ssl.create_default_context(), host)
        if ssl_context is None:
            _, connection = await loop.create_connection(protocol, host, port, **tls)
            return connection
        transport, tunnel = await loop.create_connection(self._tunnel, host, port, **tls)
        try:
            await tunnel.opened
            connection = protocol()
            inner = await loop.start_tls(
                transport, connection, ssl_context, server_hostname=self._server_name
            )
            if inner is None:
                raise OSError("closed by the server")
        except BaseException:
            transport.abort()
            raise
        connection.connection_made(inner)
        return connection

    def _tunnel(self) -> _Tunnel:
        address = _named(self.host, self.port)
        head = f"CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n{self._authorization}\r\n"
        return _Tunnel(head.encode())


class _Tunnel(asyncio.Protocol):
    """Asks a proxy for a connection to the server."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._answer = bytearray()
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, end, rest = bytes(self._answer).partition(b"\r\n\r\n")
        if self.opened.done() or not (end or len(head) > _HEAD_LIMIT):
            return
        line = head.partition(b"\r\n")[0].decode("latin-1")
        # The server says nothing before the client does.
        if end and not rest and line.startswith("HTTP/1.") and line[8:12] == " 200":
            self.opened.set_result(None)
        else:
            self.opened.set_exception(OSError(f"the proxy answered {line[:100]!r}"))

    def connection_lost(self, error: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_exception(OSError(f"the proxy closed the connection: {error or ''}"))
            # asyncio would log an error that nobody waits for: the opening may be cancelled.
            self.opened.exception()


def _address(url: SplitResult) -> tuple[str, int]:
    return url.hostname or "", url.port or (443 if url.scheme == "https" else 80)


def _named(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _basic(url: SplitResult) -> str:
    """The header for user and password of a proxy's URL, if there are any."""
    if url.username is None:
        return ""
    pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return f"Proxy-Authorization: Basic {base64.b64encode(pair.encode()).decode()}\r\n"


def _tls(context: ssl.SSLContext | None, server_name: str) -> dict[str, Any]:
    return {} if context is None else {"ssl": context, "server_hostname": server_name}
