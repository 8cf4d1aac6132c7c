"""The transport over real sockets.

Lists and watches use aiohttp, which handles large bodies and compression well; writes and reads of
one object are small and many and use ``connection``, at a fifth of the cost. Behind a proxy
everything uses aiohttp.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from ksched.api.resources import is_path_of_object
from ksched.client.authentication import FixedSecret, Secret, SecretSource
from ksched.client.connection import MAX_ANSWER, MAX_HEADERS, ConnectionPool
from ksched.client.tls import TlsContexts, TlsSettings
from ksched.clock import Clock
from ksched.errors import Unavailable
from ksched.redaction import redact_text
from ksched.transport import JSON, NOT_SENT, SILENT, Response, StreamResponse

USER_AGENT = "ksched"
MAX_LINE = 64 << 20
"""Maximum length of a watch line; the API server's own limit for one object is far below."""

MAX_LIST = 2 << 30
"""Maximum length of a list: it may have to be fetched in one piece."""

_READ_BUFFER = 2 << 20
_CONNECT_SECONDS = 10.0
# As client-go's HTTP/2 pings: probed after 30 s of silence, closed 15 s later.
_DEAD_PEER = (
    ("TCP_KEEPIDLE", 30),
    ("TCP_KEEPINTVL", 5),
    ("TCP_KEEPCNT", 3),
    ("TCP_USER_TIMEOUT", 45_000),
)
# How long an identity is used before its files are checked again.
_IDENTITY_SECONDS = 1.0
# A repeated PUT carries the resourceVersion it was made for, a repeated DELETE finds nothing.
_REPEATABLE = frozenset(("GET", "PUT", "DELETE"))
# aiohttp writes them into what it says of a failed connection, a context as an address in memory.
_TLS_SETTINGS = re.compile(r" ssl:(?:<[^>]*>|\w+)")


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Everything needed to talk to one API server.

    ``server`` is a URL, possibly with a path; ``headers`` are sent with every request
    (impersonation); ``proxy`` is an http or https URL.
    """

    server: str
    tls: TlsSettings = field(default_factory=TlsSettings)
    credentials: SecretSource = field(default_factory=FixedSecret)
    headers: tuple[tuple[str, str], ...] = ()
    proxy: str = ""


@dataclass(frozen=True, slots=True)
class _Identity:
    """A credential ready for use, until its source is checked again."""

    secret: Secret
    ssl_context: ssl.SSLContext | None
    headers: CIMultiDict[str]
    head: bytes
    valid_until: float


class HttpTransport:
    """Implements ``ksched.transport.Transport`` for a ``ClientConfig``.

    Close it with ``aclose``. After a 401 it renews the credential and repeats the request once: the
    server rejected it before doing anything.
    """

    def __init__(
        self,
        config: ClientConfig,
        clock: Clock,
        *,
        user_agent: str = USER_AGENT,
        max_connections: int = 64,
        idle_seconds: float = 60.0,
        identity_seconds: float = _IDENTITY_SECONDS,
    ) -> None:
        url = urlsplit(config.server)
        host = url.hostname or ""
        port = url.port or (443 if url.scheme == "https" else 80)
        self._config = config
        self._clock = clock
        self._origin = f"{url.scheme}://{url.netloc}"
        self._prefix = url.path.rstrip("/")
        self._server_name = config.tls.server_name
        self._tls = TlsContexts(config.tls) if url.scheme == "https" else None
        self._base_headers = (
            ("Host", url.netloc),
            ("User-Agent", user_agent),
            ("Accept", JSON),
            *config.headers,
        )
        self._identity: _Identity | None = None
        self._identity_seconds = identity_seconds
        self._session: aiohttp.ClientSession | None = None
        self._pool = ConnectionPool(
            host,
            port,
            server_name=self._server_name or host,
            limit=max_connections,
            idle_seconds=idle_seconds,
        )

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        timeout: float = 30.0,
    ) -> Response:
        deadline = self._clock.now() + timeout
        is_large = method == "GET" and not is_path_of_object(path)
        send = self._send_aiohttp if is_large or self._config.proxy else self._send_hot
        try:
            identity = await self._current_identity()
            answer = await send(identity, method, path, body, content_type, deadline)
            if answer.status == 401:
                renewed = await self._renewed_identity(identity)
                if renewed is not None:
                    answer = await send(renewed, method, path, body, content_type, deadline)
        except Unavailable as error:
            raise _named(error, method, path) from error.__cause__
        return answer

    @asynccontextmanager
    async def stream(
        self, path: str, *, idle_timeout: float | None = None
    ) -> AsyncIterator[StreamResponse]:
        try:
            identity = await self._current_identity()
            answer = await self._open_stream(identity, path, idle_timeout)
            if answer.status == 401:
                renewed = await self._renewed_identity(identity)
                if renewed is not None:
                    answer.close()
                    answer = await self._open_stream(renewed, path, idle_timeout)
        except Unavailable as error:
            raise _named(error, "WATCH", path) from error.__cause__
        lines = _lines(answer, path)
        try:
            yield StreamResponse(answer.status, answer.headers, lines)
        finally:
            await lines.aclose()
            answer.close()

    async def aclose(self) -> None:
        self._pool.close()
        if self._session is not None:
            await self._session.close()

    # -- identity -------------------------------------------------------------------------------

    async def _current_identity(self) -> _Identity:
        identity = self._identity
        if identity is None or self._clock.now() >= identity.valid_until:
            identity = self._make_identity(await self._config.credentials.get())
        return identity

    async def _renewed_identity(self, rejected: _Identity) -> _Identity | None:
        """Return another identity than the one just rejected, or None."""
        current = self._identity
        if current is not None and current.secret != rejected.secret:
            return current
        secret = await self._config.credentials.renew(rejected.secret)
        if secret == rejected.secret:
            return None
        return self._make_identity(secret)

    def _make_identity(self, secret: Secret) -> _Identity:
        headers = CIMultiDict(self._base_headers)
        if secret.authorization:
            headers["Authorization"] = secret.authorization
        self._identity = _Identity(
            secret=secret,
            ssl_context=self._tls.context(secret) if self._tls else None,
            headers=headers,
            head="".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode(),
            valid_until=self._clock.now() + self._identity_seconds,
        )
        return self._identity

    # -- small requests -------------------------------------------------------------------------

    async def _send_hot(
        self,
        identity: _Identity,
        method: str,
        path: str,
        body: bytes | None,
        content_type: str,
        deadline: float,
    ) -> Response:
        _check_path(path)
        content = b"" if body is None else body
        start = f"{method} {self._prefix}{path} HTTP/1.1\r\n".encode()
        tail = f"Content-Type: {content_type}\r\nContent-Length: {len(content)}\r\n\r\n".encode()
        return await self._pool.exchange(
            b"".join((start, identity.head, tail, content)),
            deadline=deadline,
            ssl_context=identity.ssl_context,
            repeatable=method in _REPEATABLE,
        )

    # -- large answers and proxies --------------------------------------------------------------

    async def _send_aiohttp(
        self,
        identity: _Identity,
        method: str,
        path: str,
        body: bytes | None,
        content_type: str,
        deadline: float,
    ) -> Response:
        headers = identity.headers.copy()
        if body is not None:
            headers["Content-Type"] = content_type
        remaining = max(deadline - self._clock.now(), 0.001)
        timeout = aiohttp.ClientTimeout(total=remaining, sock_connect=_CONNECT_SECONDS)
        try:
            answer = await self._open(identity, method, path, headers, timeout, body)
            async with answer:
                limit = MAX_LIST if method == "GET" else MAX_ANSWER
                return Response(answer.status, answer.headers, await _read(answer, limit))
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _unavailable(error) from error

    async def _open_stream(
        self, identity: _Identity, path: str, idle_timeout: float | None
    ) -> aiohttp.ClientResponse:
        headers = identity.headers.copy()
        headers["Accept-Encoding"] = "identity"
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=_CONNECT_SECONDS, sock_read=idle_timeout
        )
        try:
            return await self._open(identity, "GET", path, headers, timeout)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _unavailable(error) from error

    async def _open(
        self,
        identity: _Identity,
        method: str,
        path: str,
        headers: CIMultiDict[str],
        timeout: aiohttp.ClientTimeout,
        body: bytes | None = None,
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0, keepalive_timeout=30.0, socket_factory=_watchful_socket
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=_READ_BUFFER,
                max_headers=MAX_HEADERS,
                trust_env=False,
            )
        return await self._session.request(
            method,
            URL(f"{self._origin}{self._prefix}{path}", encoded=True),
            data=body,
            headers=headers,
            ssl=identity.ssl_context or True,
            server_hostname=self._server_name or None,
            proxy=self._config.proxy or None,
            timeout=timeout,
            # A redirected request would carry the token to the redirect's target.
            allow_redirects=False,
        )


async def _read(answer: aiohttp.ClientResponse, limit: int) -> bytes:
    """Return the decompressed body; reading stops where it exceeds ``limit``."""
    body = bytearray()
    async for piece in answer.content.iter_any():
        body += piece
        if len(body) > limit:
            # Not read to its end, so the connection cannot be reused.
            answer.close()
            raise aiohttp.ClientPayloadError("answer too long")
    return bytes(body)


def _watchful_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Create a socket that detects a silently lost peer, even while nothing is sent."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Not every system has all of them; system defaults apply where one is missing.
    for option, value in _DEAD_PEER:
        if hasattr(socket, option):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


async def _lines(answer: aiohttp.ClientResponse, path: str) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a watch; those that arrived together are read together."""
    read = answer.content.readany
    begun = bytearray()
    try:
        while data := await read():
            start = 0
            while end := data.find(b"\n", start) + 1:
                line, start = data[start:end], end
                if begun:
                    line = bytes(begun + line)
                    begun.clear()
                yield line
            begun += data[start:]
            if len(begun) > MAX_LINE:
                raise ValueError(f"a line of more than {MAX_LINE} bytes")
        if begun:
            yield bytes(begun)
    except aiohttp.SocketTimeoutError as error:
        raise Unavailable(0, SILENT, f"WATCH {path.partition('?')[0]}: {error}") from error
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        raise _named(_unavailable(error), "WATCH", path) from error


def _unavailable(error: Exception) -> Unavailable:
    reason = "AnswerLost"
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        reason = NOT_SENT
    said = _TLS_SETTINGS.sub("", str(error))
    cause = said or ("timed out" if isinstance(error, TimeoutError) else repr(error))
    # aiohttp includes the whole URL of the request or of the proxy.
    return Unavailable(0, reason, redact_text(cause))


def _named(error: Unavailable, method: str, path: str) -> Unavailable:
    return Unavailable(0, error.reason, f"{method} {path.partition('?')[0]}: {error.message}")


def _check_path(path: str) -> None:
    """Reject a path that could smuggle a second request."""
    if not (path.isascii() and path.isprintable()) or " " in path:
        raise ValueError(f"request path: not a path: {redact_text(path)!r}")
