"""Connections: how many, for how long, and what happens when descriptors run out."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trustme

from ksched.web import listener as module
from ksched.web.listener import Listener, connection_limit

pytestmark = pytest.mark.real_time

LOOPBACK = "127.0.0.1"


class Echo(asyncio.Protocol):
    """Answers every line; marks the connection busy between ``[`` and ``]``."""

    def __init__(self, site):
        self.site = site
        self.request: Any = None

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        if b"[" in data:
            self.request = self.site.listener.request(self)
            self.request.__enter__()
        if b"]" in data:
            self.request.__exit__(None, None, None)
        self.transport.write(data)


class Site:
    def __init__(self, limit):
        self.listener = Listener(lambda: Echo(self), limit)
        self.port = 0
        self.open = []

    async def connect(self, **options):
        reader, writer = await asyncio.open_connection(LOOPBACK, self.port, **options)
        self.open.append(writer)
        return reader, writer

    async def ask(self, stream, data=b"x"):
        reader, writer = stream
        writer.write(data)
        async with asyncio.timeout(10):
            return await reader.read(100)

    async def until(self, condition):
        async with asyncio.timeout(10):
            while not condition():  # noqa: ASYNC110 (what happens on a socket sets no event)
                await asyncio.sleep(0.005)


@asynccontextmanager
async def serving(limit=4, ssl_context=None):
    site = Site(limit)
    async with site.listener.listening(
        LOOPBACK, 0, (lambda address: ssl_context) if ssl_context else None
    ) as site.port:
        try:
            yield site
        finally:
            for writer in site.open:
                writer.transport.abort()


async def gone(stream):
    """Wait until the other side has closed."""
    async with asyncio.timeout(10):
        try:
            assert await stream[0].read() == b""
        except ConnectionError:
            pass


async def test_silent_connections_make_room_for_new_ones():
    async with serving(limit=4) as site:
        silent = [await site.connect() for _ in range(20)]
        newcomer = await site.connect()
        assert await site.ask(newcomer) == b"x"
        assert len(site.listener) <= 4
        for stream in silent[:16]:
            await gone(stream)


async def test_request_under_way_is_not_given_up_for_a_new_connection():
    async with serving(limit=2) as site:
        busy = await site.connect()
        assert await site.ask(busy, b"[") == b"["
        for _ in range(10):
            assert await site.ask(await site.connect()) == b"x"
        assert await site.ask(busy, b"]") == b"]"


async def test_new_connections_wait_while_all_are_busy():
    async with serving(limit=2) as site:
        busy = [await site.connect() for _ in range(2)]
        for stream in busy:
            await site.ask(stream, b"[")
        waiting = await site.connect()  # the kernel takes it
        async with asyncio.TaskGroup() as group:
            answer = group.create_task(site.ask(waiting))
            await asyncio.sleep(0.05)
            assert not answer.done()
            assert len(site.listener) == 2
            await site.ask(busy[0], b"]")
        assert answer.result() == b"x"
        await gone(busy[0])


@pytest.mark.parametrize("name", ["HEADER_SECONDS", "IDLE_SECONDS", "REQUEST_SECONDS"])
async def test_every_wait_has_an_end(monkeypatch, name):
    monkeypatch.setattr(module, name, 0.02)
    monkeypatch.setattr(module, "_SWEEP_SECONDS", 0.01)
    said = {"HEADER_SECONDS": b"", "IDLE_SECONDS": b"[]", "REQUEST_SECONDS": b"["}[name]
    async with serving() as site:
        stream = await site.connect()
        stream[1].write(said)
        async with asyncio.timeout(10):
            try:
                assert await stream[0].read() in (said, b"")
            except ConnectionError:
                pass
        await site.until(lambda: not len(site.listener))


async def test_handshake_that_is_never_begun_counts_and_ends(monkeypatch):
    monkeypatch.setattr(module, "HEADER_SECONDS", 0.3)
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(LOOPBACK).configure_cert(context)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with serving(limit=4, ssl_context=context) as site:
        silent = [await site.connect() for _ in range(10)]
        await site.until(lambda: len(site.listener) == 4)
        newcomer = await site.connect(ssl=trusting)
        assert await site.ask(newcomer) == b"x"
        for stream in silent:
            await gone(stream)


async def test_handshakes_are_paced_so_that_they_leave_time_for_the_loop(monkeypatch):
    monkeypatch.setattr(module, "_HANDSHAKES_PER_SECOND", 50.0)
    monkeypatch.setattr(module, "_HANDSHAKE_BURST", 5)
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(LOOPBACK).configure_cert(context)
    loop = asyncio.get_running_loop()
    async with serving(limit=100, ssl_context=context) as site:
        began = loop.time()
        streams = [await site.connect() for _ in range(25)]
        await site.until(lambda: len(site.listener) == 25)
        assert loop.time() - began >= 20 / 50.0 - 0.05
        for _, writer in streams:
            writer.close()
        await site.until(lambda: not len(site.listener))


async def test_connection_that_waits_for_room_is_closed_at_the_end(monkeypatch):
    taken = []

    class Noting(Listener):
        async def _next(self, server):
            taken.append(await super()._next(server))
            return taken[-1]

    monkeypatch.setattr(__name__ + ".Listener", Noting)
    async with serving(limit=1) as site:
        assert await site.ask(await site.connect(), b"[") == b"["
        await site.connect()
        await site.until(lambda: len(taken) == 2)
    assert taken[1].fileno() == -1


async def test_without_descriptors_it_pauses_and_goes_on(monkeypatch, caplog):
    monkeypatch.setattr(module, "_PAUSE_SECONDS", 0.02)
    tries = []

    class Exhausted(Listener):
        async def _next(self, server):
            tries.append(1)
            if len(tries) <= 5:
                raise OSError(errno.EMFILE, "Too many open files")
            return await super()._next(server)

    monkeypatch.setattr(__name__ + ".Listener", Exhausted)
    with caplog.at_level(logging.WARNING):
        async with serving() as site:
            assert await site.ask(await site.connect()) == b"x"
    assert len(tries) <= 7
    assert [record.message for record in caplog.records] == ["cannot accept connections"]


@pytest.mark.parametrize(
    ("descriptors", "limit"), [(64, 8), (256, 32), (1024, 128), (1 << 20, 128), (4, 1), (-1, 128)]
)
def test_readers_get_a_share_of_the_descriptors(monkeypatch, descriptors, limit):
    monkeypatch.setattr(
        "ksched.web.listener.resource.getrlimit", lambda which: (descriptors, descriptors)
    )
    assert connection_limit() == limit


async def test_connection_that_is_reset_at_once_does_no_harm():
    async with serving() as site:
        for _ in range(20):
            with socket.create_connection((LOOPBACK, site.port)) as rude:
                rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        assert await site.ask(await site.connect()) == b"x"
