"""Connections of the web server: bounded in number and time.

A descriptor used here is not available to a watch or a bind, so the web server gets a small share
of them. When that is used up, the connection that has been without a request for longest is closed
for a new one: idle connections do not block requests. While every connection has a request in
progress, new ones wait in the kernel.

Does not belong here: HTTP, which a protocol per connection speaks.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final, cast

import anyio
from anyio.abc import TaskGroup

log = logging.getLogger(__name__)

HEADER_SECONDS: Final = 10.0
"""From the connection, TLS included, to the end of its first request's headers."""
IDLE_SECONDS: Final = 90.0
"""From one request to the next; kube-scheduler's."""
REQUEST_SECONDS: Final = 60.0
"""From a request to the end of its response, however slowly that is read."""

_MAX_CONNECTIONS: Final = 128
_SHARE_OF_DESCRIPTORS: Final = 8
_BACKLOG: Final = 128
_HANDSHAKES_PER_SECOND: Final = 50.0
_HANDSHAKE_BURST: Final = 64
_SWEEP_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 1.0
# No descriptors or no memory: trying again at once would only burn a core.
_EXHAUSTED: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))


def raise_descriptor_limit() -> None:
    """Raise the descriptor limit to the hard limit; the soft one is for programs that select."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connection_limit() -> int:
    """Return how many connections the process can spare for the web server."""
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if descriptors == resource.RLIM_INFINITY:
        return _MAX_CONNECTIONS
    return min(_MAX_CONNECTIONS, max(1, descriptors // _SHARE_OF_DESCRIPTORS))


ContextSource = Callable[[str], ssl.SSLContext]
"""Gives the TLS context for a new connection to an address of ours."""


class Connection(asyncio.Protocol):
    """One accepted socket with its deadline; forwards received data."""

    def __init__(self, listener: Listener, handler: asyncio.Protocol) -> None:
        self._listener = listener
        self.handler = handler
        self.is_busy = False
        self.since = self.deadline = 0.0
        self._transport: asyncio.Transport | None = None
        self.opening = anyio.CancelScope()

    def stay(self, now: float, seconds: float, is_busy: bool) -> None:
        """Begin to wait for a request, or to respond to one."""
        self.since, self.deadline, self.is_busy = now, now + seconds, is_busy

    def abort(self) -> None:
        """Close at once, also in the middle of a TLS handshake."""
        if self._transport is None:
            self.opening.cancel()
        else:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the interface without the base class.
        self._transport = cast(asyncio.Transport, transport)
        self.handler.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self.handler.data_received(data)

    def eof_received(self) -> bool | None:
        return self.handler.eof_received()

    def pause_writing(self) -> None:
        self.handler.pause_writing()

    def resume_writing(self) -> None:
        self.handler.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._listener.forget(self)
        self.handler.connection_lost(error)


class Listener:
    """Accepts connections for protocols made by ``factory``, at most ``limit`` at a time."""

    def __init__(self, factory: Callable[[], asyncio.Protocol], limit: int = 0) -> None:
        self._factory = factory
        self._limit = limit or connection_limit()
        # In the order in which they were opened.
        self._connections: dict[asyncio.Protocol, Connection] = {}
        self._room = anyio.Event()
        self._paced = 0.0

    def __len__(self) -> int:
        return len(self._connections)

    @asynccontextmanager
    async def listening(
        self, host: str, port: int, tls: ContextSource | None
    ) -> AsyncIterator[int]:
        """Accept while the block runs; yields the port. ``OSError`` if it is in use."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        server = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        with server:
            server.setblocking(False)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._accept, server, tls, tasks, name="accept")
                tasks.start_soon(self._sweep, name="connection time-outs")
                try:
                    yield server.getsockname()[1]
                finally:
                    tasks.cancel_scope.cancel()

    @contextmanager
    def request(self, handler: asyncio.Protocol) -> Iterator[None]:
        """Mark a connection as busy with a request while the block runs."""
        connection = self._connections.get(handler)
        if connection is None:  # lost already
            yield
            return
        now = asyncio.get_running_loop().time
        connection.stay(now(), REQUEST_SECONDS, is_busy=True)
        try:
            yield
        finally:
            connection.stay(now(), IDLE_SECONDS, is_busy=False)
            self._room.set()

    def forget(self, connection: Connection) -> None:
        """Remove a closed connection; called by itself."""
        self._connections.pop(connection.handler, None)
        self._room.set()

    async def _accept(
        self, server: socket.socket, tls: ContextSource | None, tasks: TaskGroup
    ) -> None:
        loop = asyncio.get_running_loop()
        is_exhausted = False
        while True:
            try:
                accepted = await self._next(server)
            except OSError as error:
                # Any other error concerns only the connection that was about to be accepted.
                if error.errno in _EXHAUSTED:
                    if not is_exhausted:
                        log.warning("cannot accept connections", extra={"err": str(error)})
                    is_exhausted = True
                    await asyncio.sleep(_PAUSE_SECONDS)
                continue
            is_exhausted = False
            try:
                await self._make_room()
                if tls:
                    await self._pace()
            except asyncio.CancelledError:
                accepted.close()
                raise
            connection = Connection(self, self._factory())
            connection.stay(loop.time(), HEADER_SECONDS, is_busy=False)
            self._connections[connection.handler] = connection
            tasks.start_soon(self._open, connection, accepted, tls)

    async def _pace(self) -> None:
        """Wait after many handshakes in a short time: each is work for the event loop."""
        now = asyncio.get_running_loop().time()
        burst_began = now - _HANDSHAKE_BURST / _HANDSHAKES_PER_SECOND
        self._paced = max(self._paced, burst_began) + 1 / _HANDSHAKES_PER_SECOND
        if self._paced > now:
            await asyncio.sleep(self._paced - now)

    async def _next(self, server: socket.socket) -> socket.socket:
        accepted, _ = await asyncio.get_running_loop().sock_accept(server)
        return accepted

    async def _make_room(self) -> None:
        """Wait until one more connection may be served; closes an idle one if needed."""
        while len(self._connections) >= self._limit:
            quiet = [one for one in self._connections.values() if not one.is_busy]
            if quiet:
                oldest = min(quiet, key=lambda one: one.since)
                oldest.abort()
                self.forget(oldest)
            else:
                self._room = anyio.Event()
                await self._room.wait()

    async def _open(
        self, connection: Connection, accepted: socket.socket, tls: ContextSource | None
    ) -> None:
        """Pass a socket to its protocol, after the TLS handshake if any."""
        loop = asyncio.get_running_loop()
        timeout = HEADER_SECONDS if tls else None
        is_open = False
        with connection.opening:
            try:
                await loop.connect_accepted_socket(
                    lambda: connection,
                    accepted,
                    ssl=tls(accepted.getsockname()[0]) if tls else None,
                    ssl_handshake_timeout=timeout,
                )
                is_open = True
            except (OSError, TimeoutError) as error:
                log.debug("connection not opened", extra={"err": str(error)})
            finally:
                if not is_open:
                    self.forget(connection)
                    accepted.close()

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            now = loop.time()
            for connection in list(self._connections.values()):
                if now >= connection.deadline:
                    connection.abort()
