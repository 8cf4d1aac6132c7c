"""A minimal HTTP/1.1 client: every bind, patch and Event, lists and watches.

One request at a time per connection, connections are reused, one timer for all and no task. It
supports what an API server needs (TLS, chunked and compressed responses, keep-alive) and nothing
else.
"""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
import struct
import zlib
from collections import deque
from functools import cached_property
from typing import cast

import httptools

from ksched.client.headers import UNREAD, Headers
from ksched.client.route import Route
from ksched.client.stream_body import StreamBody
from ksched.client.tls import keep_session
from ksched.errors import Unavailable
from ksched.transport import NOT_SENT, Response

_MAX_HEADERS = 128
_HEAD_LIMIT = 256 << 10
_CONNECT_SECONDS = 10.0
_TIMER_SECONDS = 0.001
"""uvloop's timers have this resolution: one may fire as much too early."""
_NO_LINGER = struct.pack("ii", 1, 0)
_GZIP = 31
# As client-go's HTTP/2 pings: probed after 30 s of silence, closed 15 s later.
_DEAD_PEER = (
    ("TCP_KEEPIDLE", 30),
    ("TCP_KEEPINTVL", 5),
    ("TCP_KEEPCNT", 3),
    ("TCP_USER_TIMEOUT", 45_000),
)


class Dropped(Exception):
    """A connection ended without a complete response.

    ``untouched`` if none had begun, ``late`` if it did not go on in time.
    """

    def __init__(self, cause: str, *, untouched: bool = False, late: bool = False) -> None:
        super().__init__(cause)
        self.untouched = untouched
        self.late = late


class Connection(asyncio.Protocol):
    """One socket and the response arriving on it. Belongs to a ``ConnectionPool``."""

    def __init__(self, pool: ConnectionPool, ssl_context: ssl.SSLContext | None) -> None:
        self._pool = pool
        self.ssl_context = ssl_context
        self.idle_since = 0.0
        self.deadline = math.inf
        """When the pending request ends at the latest."""
        self._transport: asyncio.Transport | None = None
        self._fields: dict[bytes, bytes] = {}
        # The parser calls it for each header: a method of our own would cost more than the parser.
        self.on_header = self._fields.__setitem__
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[Response] | None = None
        self._stream: StreamBody | None = None
        self._limit = 0
        self._body = bytearray()
        self._is_new = True
        self._clear()

    def _clear(self) -> None:
        self._fields.clear()
        self._body.clear()
        self._unpacker: zlib._Decompress | None = None
        self._received = self._carried = 0
        self._touched = self._has_head = self._complete = self._reusable = False

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(
        self, request: bytes, deadline: float, limit: int, stream: StreamBody | None
    ) -> asyncio.Future[Response]:
        """Write a request; the future resolves to the response or ``Dropped``.

        ``limit`` is the maximum length of the body. With ``stream`` it arrives there, and the
        response is its head.
        """
        self._clear()
        self.deadline = deadline
        self._limit = limit
        self._stream = stream
        if stream is not None:
            stream.source = self
        self._waiter = waiter = self._pool.loop.create_future()
        transport = self._transport
        if transport is None or transport.is_closing():
            self._fail("closed by the server at once", untouched=True)
        else:
            transport.write(request)
        return waiter

    def owes(self, answer: asyncio.Future[Response]) -> bool:
        return self._waiter is answer

    def drop(self, cause: str, *, late: bool = False) -> None:
        """Close at once; the pending future or stream gets ``Dropped``.

        Unsent request bytes in the kernel are discarded: after an outage they could still arrive,
        long after another replica has become leader.
        """
        is_asking = self._waiter is not None
        self._fail(cause, late=late)
        if self._transport is not None:
            if is_asking and not self._transport.is_closing():
                own = self._transport.get_extra_info("socket")
                own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            self._transport.abort()

    # -- stream_body.Source ---------------------------------------------------------------------

    def pause(self) -> None:
        assert self._transport is not None
        self.deadline = math.inf
        self._transport.pause_reading()

    def resume(self) -> None:
        if self.is_open:
            assert self._transport is not None
            self._transport.resume_reading()
        self._be_patient()

    def _be_patient(self) -> None:
        """Wait for more of a stream, for as long as it may be silent."""
        if self._stream is not None:
            self.deadline = self._pool.loop.time() + self._stream.idle_seconds
            self._pool.observe(self.deadline)

    # -- asyncio.Protocol -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the interface without the base class.
        self._transport = cast(asyncio.Transport, transport)
        _detect_dead_peer(self._transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        parser, stream = self._parser, self._stream
        if parser is None or (self._waiter is None and stream is None):
            # No request is pending: the data would be taken for the next response.
            self.drop("unexpected data")
            return
        self._touched = True
        self._received += len(data)
        if stream is not None and self.deadline < math.inf:
            # Later than before, so the timer is early enough.
            self.deadline = self._pool.loop.time() + stream.idle_seconds
        try:
            parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not self._complete:
                self.drop(f"not an HTTP answer: {error.__context__ or error}")
                return
            # What follows an answer belongs to no request, nor does the connection any more.
            self._reusable = False
        # The parser buffers a whole header or trailer first.
        if len(self._body) > self._limit:
            self.drop("answer too long")
        elif len(self._fields) > _MAX_HEADERS:
            self.drop("too many headers")
        elif self._received - 2 * self._carried > _HEAD_LIMIT:
            self.drop("headers too long")
        elif self._complete:
            self._finish()

    def connection_lost(self, error: Exception | None) -> None:
        self._pool.forget(self)
        headers = Headers(self._fields)
        lengthless = "content-length" not in headers and (
            "chunked" not in headers.get("transfer-encoding", "").lower()
        )
        if self._has_head and not self._complete and lengthless and error is None:
            self._finish()
        cause = f"connection lost: {error or 'closed by the server'}"
        self._fail(cause, untouched=not self._touched)
        # The parser holds our bound methods: this breaks the reference cycle.
        self._parser = None

    # -- httptools ------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._complete:
            raise ValueError("two answers to one request")

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        self._has_head = True
        status = self._parser.get_status_code()
        if status < 200:
            return
        if not self._fields.keys() <= UNREAD:
            encoding = Headers(self._fields).get("content-encoding", "identity").lower()
            if encoding == "gzip" and self._stream is None:
                self._unpacker = zlib.decompressobj(_GZIP)
            elif encoding not in ("", "identity"):
                raise ValueError(f"content encoding {encoding[:40]!r}")
        if self._stream is not None:
            self._answer(Response(status, Headers(self._fields.copy()), b""))

    def on_body(self, body: bytes) -> None:
        if self._stream is not None:
            # What arrived so far is neither header nor trailer.
            self._received = 0
            self._stream.feed(body)
            return
        self._carried += len(body)
        if self._unpacker is None:
            self._body += body
        elif self._unpacker.eof:
            raise ValueError("data after the compressed answer")
        else:
            most = self._limit + 1 - len(self._body)
            if most > 0:
                self._body += self._unpacker.decompress(body, most)

    def on_message_complete(self) -> None:
        assert self._parser is not None
        if self._parser.get_status_code() < 200:
            # 100 Continue and the like: the response is yet to come.
            self._clear()
            self._touched = True
        else:
            self._complete = True
            # Only here: afterwards the parser has dropped the headers.
            self._reusable = self._parser.should_keep_alive()

    def _answer(self, response: Response) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(response)

    def _finish(self) -> None:
        if self._unpacker is not None and self._carried and not _is_whole(self._unpacker):
            self.drop("compressed answer is cut or too long")
            return
        self.deadline = math.inf
        assert self._parser is not None
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.end()
        headers, body = Headers(self._fields.copy()), bytes(self._body)
        self._answer(Response(self._parser.get_status_code(), headers, body))
        self._body.clear()
        if self._is_new and self._transport is not None:
            self._is_new = False
            keep_session(self._transport.get_extra_info("ssl_object"))
        if self._reusable:
            self._pool.give_back(self)
        elif self._transport is not None:
            self._transport.close()

    def _fail(self, cause: str, *, untouched: bool = False, late: bool = False) -> None:
        waiter, self._waiter = self._waiter, None
        stream, self._stream = self._stream, None
        self.deadline = math.inf
        dropped = Dropped(cause, untouched=untouched, late=late)
        if waiter is not None:
            if not waiter.done():
                waiter.set_exception(dropped)
        elif stream is not None:
            stream.end(dropped)


class ConnectionPool:
    """At most ``limit`` connections to one server; further callers wait in FIFO order."""

    def __init__(self, route: Route, *, limit: float, idle_seconds: float) -> None:
        self._route = route
        self._limit = limit
        self._idle_seconds = idle_seconds
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self._opening = 0
        self._waiters: deque[asyncio.Future[Connection | None]] = deque()
        # A timer for each request would be started and stopped in vain almost always.
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._closed = False

    @cached_property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of all connections: to find it for every request costs system calls, getpid."""
        return asyncio.get_running_loop()

    async def exchange(
        self,
        request: bytes,
        *,
        deadline: float,
        ssl_context: ssl.SSLContext | None,
        repeatable: bool,
        limit: int,
        stream: StreamBody | None = None,
    ) -> Response:
        """Send one complete request and return its response, or with ``stream`` its head.

        A pooled connection may turn out to be dead when it is used. Then, if no response had begun
        and the request is ``repeatable``, it is sent once more on a new connection. Nothing is sent
        after ``deadline``, even when the event loop was late.
        """
        loop = self.loop
        connection, reused = self._take_idle(ssl_context), True
        if connection is None:
            connection, reused = await self._acquire(ssl_context, deadline)
        while True:
            if loop.time() >= deadline:
                self.give_back(connection)
                raise Unavailable(0, NOT_SENT, "timed out before it was sent")
            if deadline < self._timer_at:
                self._set_timer(deadline)
            answer = connection.send(request, deadline, limit, stream)
            try:
                return await answer
            except Dropped as dropped:
                if not (reused and repeatable and dropped.untouched):
                    raise Unavailable(0, "AnswerLost", str(dropped)) from None
            except asyncio.CancelledError:
                # A connection that has answered may serve another request already.
                if connection.owes(answer):
                    connection.drop("cancelled")
                elif stream is not None:
                    stream.close()
                raise
            connection, reused = await self._connect(ssl_context, deadline), False

    def close(self) -> None:
        """Close every connection; pending responses are lost."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self._open):
            connection.drop("transport closed")
        while self._waiters:
            self._wake(None)

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = self.loop.call_at(at, self._expire), at

    def _expire(self) -> None:
        """End the requests that are late, and wait for the earliest of the others."""
        self._timer, self._timer_at = None, math.inf
        now = self.loop.time() + _TIMER_SECONDS
        for connection in [one for one in self._open if one.deadline <= now]:
            connection.drop("timed out", late=True)
        earliest = min((one.deadline for one in self._open), default=math.inf)
        if earliest < math.inf:
            self._set_timer(earliest)

    # -- called by connections ------------------------------------------------------------------

    def observe(self, deadline: float) -> None:
        """End what is not over by then."""
        if deadline < self._timer_at:
            self._set_timer(deadline)

    def give_back(self, connection: Connection) -> None:
        """Return a connection to the pool, or pass it to the first waiter."""
        connection.idle_since = self.loop.time()
        if not (self._waiters and self._wake(connection)):
            self._idle.append(connection)

    def forget(self, connection: Connection) -> None:
        """Remove a dead connection and free its slot."""
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        self._wake(None)

    # -- finding a connection -------------------------------------------------------------------

    async def _acquire(
        self, ssl_context: ssl.SSLContext | None, deadline: float
    ) -> tuple[Connection, bool]:
        """Return an open connection, as there is no idle one, and whether it was used before."""
        while len(self._open) + self._opening >= self._limit:
            connection = await self._wait(deadline)
            if connection is not None and self._is_usable(connection, ssl_context):
                return connection, True
        return await self._connect(ssl_context, deadline), False

    def _take_idle(self, ssl_context: ssl.SSLContext | None) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if self._is_usable(connection, ssl_context):
                return connection
        return None

    def _is_usable(self, connection: Connection, ssl_context: ssl.SSLContext | None) -> bool:
        """Whether a pooled connection may be used; otherwise it is closed.

        A connection that was idle for long may have been dropped by a middlebox, and one opened
        with an older certificate has an outdated identity.
        """
        is_fresh = self.loop.time() - connection.idle_since < self._idle_seconds
        if is_fresh and connection.ssl_context is ssl_context and connection.is_open:
            return True
        connection.drop("stale")
        self._open.discard(connection)
        return False

    async def _wait(self, deadline: float) -> Connection | None:
        """Wait for a connection, or for None: a slot to open one."""
        waiter: asyncio.Future[Connection | None] = self.loop.create_future()
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout_at(deadline):
                return await waiter
        except TimeoutError:
            raise Unavailable(0, NOT_SENT, "timed out waiting for a connection") from None
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                # It was already handed over; pass it to the next waiter.
                connection = waiter.result()
                if connection is None:
                    self._wake(None)
                else:
                    self.give_back(connection)
            raise

    def _wake(self, connection: Connection | None) -> bool:
        """Hand over to the first waiter; False without waiters."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return True
        return False

    async def _connect(self, ssl_context: ssl.SSLContext | None, deadline: float) -> Connection:
        if self._closed:
            raise Unavailable(0, NOT_SENT, "transport closed")
        self._opening += 1
        try:
            async with asyncio.timeout_at(min(deadline, self.loop.time() + _CONNECT_SECONDS)):
                connection = await self._route.open(
                    self.loop, lambda: Connection(self, ssl_context), ssl_context
                )
        except TimeoutError:
            raise self._unreachable("timed out while connecting") from None
        except (OSError, ssl.SSLError) as error:
            raise self._unreachable(str(error) or repr(error)) from error
        except asyncio.CancelledError:
            self._wake(None)
            raise
        finally:
            self._opening -= 1
        self._register(connection)
        return connection

    def _register(self, connection: Connection) -> None:
        """Count an open connection; uvloop never tells the end of one still being opened."""
        if self._closed:
            connection.drop("transport closed")
        if not connection.is_open:
            raise self._unreachable("closed at once")
        self._open.add(connection)

    def _unreachable(self, cause: str) -> Unavailable:
        # The reserved slot is free again: the next waiter may try.
        self._wake(None)
        return Unavailable(0, NOT_SENT, f"cannot reach {self._route.name}: {cause}")


def _is_whole(unpacker: zlib._Decompress) -> bool:
    return unpacker.eof and not unpacker.unused_data


def _detect_dead_peer(own: socket.socket) -> None:
    """Let the kernel detect a silently lost peer, even while nothing is sent."""
    own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Not every system has all of them; system defaults apply where one is missing.
    for option, value in _DEAD_PEER:
        if hasattr(socket, option):
            own.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
