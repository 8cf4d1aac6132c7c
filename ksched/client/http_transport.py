"""The transport over real sockets: credentials and headers around ``connection``."""

from __future__ import annotations

import math
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from ksched.api.resources import is_path_of_object
from ksched.client.authentication import FixedSecret, Secret, SecretSource
from ksched.client.connection import ConnectionPool, Dropped
from ksched.client.route import Route
from ksched.client.stream_body import StreamBody
from ksched.client.tls import TlsContexts, TlsSettings
from ksched.clock import Clock
from ksched.errors import Unavailable
from ksched.redaction import redact_text
from ksched.transport import JSON, SILENT, Response, StreamResponse

USER_AGENT = "ksched"
MAX_ANSWER = 64 << 20
"""Maximum body length of a response to a small request, and of any response of an extender."""

MAX_LINE = 64 << 20
"""Maximum length of a watch line; the API server's own limit for one object is far below."""

MAX_LIST = 2 << 30
"""Maximum length of a list: it may have to be fetched in one piece."""

# How long an identity is used before its files are checked again.
_IDENTITY_SECONDS = 1.0
_LONG_IDLE_SECONDS = 30.0
# A repeated PUT carries the resourceVersion it was made for, a repeated DELETE finds nothing.
_REPEATABLE = frozenset(("GET", "PUT", "DELETE"))


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
        route = Route(config.server, server_name=config.tls.server_name, proxy=config.proxy)
        self._config = config
        self._clock = clock
        self._prefix = route.origin + url.path.rstrip("/")
        self._tls = TlsContexts(config.tls) if url.scheme == "https" else None
        headers = (
            ("Host", url.netloc),
            ("User-Agent", user_agent),
            ("Accept", JSON),
            *config.headers,
        )
        self._head = "".join(f"{name}: {value}\r\n" for name, value in headers) + route.headers
        self._identity: _Identity | None = None
        self._identity_seconds = identity_seconds
        self._pool = ConnectionPool(route, limit=max_connections, idle_seconds=idle_seconds)
        # Lists and watches take long, so they do not count against the limit.
        self._long = ConnectionPool(route, limit=math.inf, idle_seconds=_LONG_IDLE_SECONDS)

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
        try:
            identity = self._identity
            if identity is None or deadline - timeout >= identity.valid_until:
                identity = await self._current_identity()
            answer = await self._send(identity, method, path, body, content_type, deadline)
            if answer.status == 401:
                renewed = await self._renewed_identity(identity)
                if renewed is not None:
                    answer = await self._send(renewed, method, path, body, content_type, deadline)
        except Unavailable as error:
            raise _named(error, method, path) from error.__cause__
        return answer

    @asynccontextmanager
    async def stream(
        self, path: str, *, idle_timeout: float | None = None
    ) -> AsyncIterator[StreamResponse]:
        try:
            identity = await self._current_identity()
            head, body = await self._open(identity, path, idle_timeout)
            if head.status == 401:
                renewed = await self._renewed_identity(identity)
                if renewed is not None:
                    body.close()
                    head, body = await self._open(renewed, path, idle_timeout)
        except Unavailable as error:
            raise _named(error, "WATCH", path) from error.__cause__
        lines = _lines(body, path)
        try:
            yield StreamResponse(head.status, head.headers, lines)
        finally:
            await lines.aclose()
            body.close()

    async def aclose(self) -> None:
        self._pool.close()
        self._long.close()

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
        authorization = f"Authorization: {secret.authorization}\r\n" if secret.authorization else ""
        self._identity = _Identity(
            secret=secret,
            ssl_context=self._tls.context(secret) if self._tls else None,
            head=(self._head + authorization).encode(),
            valid_until=self._clock.now() + self._identity_seconds,
        )
        return self._identity

    # -- sending --------------------------------------------------------------------------------

    def _send(
        self,
        identity: _Identity,
        method: str,
        path: str,
        body: bytes | None,
        content_type: str,
        deadline: float,
    ) -> Awaitable[Response]:
        content = b"" if body is None else body
        more = f"Content-Type: {content_type}\r\nContent-Length: {len(content)}\r\n"
        is_list = method == "GET" and not is_path_of_object(path)
        if is_list:
            more += "Accept-Encoding: gzip\r\n"
        pool = self._long if is_list else self._pool
        return pool.exchange(
            self._request(identity, method, path, more) + content,
            deadline=deadline,
            ssl_context=identity.ssl_context,
            repeatable=method in _REPEATABLE,
            limit=MAX_LIST if is_list else MAX_ANSWER,
        )

    async def _open(
        self, identity: _Identity, path: str, idle_timeout: float | None
    ) -> tuple[Response, StreamBody]:
        idle_seconds = math.inf if idle_timeout is None else idle_timeout
        body = StreamBody(idle_seconds)
        head = await self._long.exchange(
            self._request(identity, "GET", path, "Accept-Encoding: identity\r\n"),
            deadline=self._clock.now() + idle_seconds,
            ssl_context=identity.ssl_context,
            repeatable=True,
            limit=0,
            stream=body,
        )
        return head, body

    def _request(self, identity: _Identity, method: str, path: str, more: str) -> bytes:
        _check_path(path)
        start = f"{method} {self._prefix}{path} HTTP/1.1\r\n{more}".encode()
        return b"%b%b\r\n" % (start, identity.head)


async def _lines(body: StreamBody, path: str) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a watch; those that arrived together are read together."""
    begun = bytearray()
    try:
        while data := await body.read():
            start = 0
            while end := data.find(b"\n", start) + 1:
                line, start = data[start:end], end
                if begun:
                    line = bytes(begun + line)
                    begun.clear()
                yield line
            begun += data[start:]
            if len(begun) > MAX_LINE:
                raise _lost(path, f"a line of more than {MAX_LINE} bytes")
        if begun:
            yield bytes(begun)
    except Dropped as dropped:
        raise _lost(path, str(dropped), SILENT if dropped.late else "AnswerLost") from None


def _lost(path: str, problem: str, reason: str = "AnswerLost") -> Unavailable:
    return _named(Unavailable(0, reason, problem), "WATCH", path)


def _named(error: Unavailable, method: str, path: str) -> Unavailable:
    return Unavailable(0, error.reason, f"{method} {path.partition('?')[0]}: {error.message}")


def _check_path(path: str) -> None:
    """Reject a path that could smuggle a second request."""
    if not (path.isascii() and path.isprintable()) or " " in path:
        raise ValueError(f"request path: not a path: {redact_text(path)!r}")
