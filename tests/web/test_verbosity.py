"""The verbosity of the log, changed through the port."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import aiohttp
import pytest

from ksched.configuration.model import SchedulerConfiguration
from ksched.metrics import Metrics
from ksched.testing.harness import cluster
from ksched.web.verbosity import VERBOSITY
from ksched.web.web_server import WebServer

pytestmark = pytest.mark.real_time
LOOPBACK = "127.0.0.1"


class Site:
    def __init__(self):
        self.verbosities = []
        self.url = ""

    async def send(self, text="", method="PUT", **headers):
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, self.url + VERBOSITY, data=text, headers=headers) as answer,
        ):
            return answer.status, await answer.text()


@asynccontextmanager
async def serving(config=None, *, is_absent=False):
    site = Site()
    async with cluster(**({"config": config} if config else {})) as c:
        server = WebServer(
            c.scheduler,
            Metrics(),
            live={},
            ready={},
            access=None,
            set_verbosity=None if is_absent else site.verbosities.append,
        )
        async with server.listening(LOOPBACK, 0) as site.url:
            yield site


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", 'parsing "": invalid syntax'),
        ("four", 'parsing "four": invalid syntax'),
        ("4\n", r'parsing "4\n": invalid syntax'),
        ("4_0", 'parsing "4_0": invalid syntax'),
        ("٤", "invalid syntax"),
        ("2147483648", 'parsing "2147483648": value out of range'),
    ],
)
async def test_anything_but_a_number_changes_nothing(text, why):
    async with serving() as site:
        status, told = await site.send(text)
        assert status == 400
        assert told.startswith(f"failed set klog.logging.verbosity {text}: strconv.ParseInt: ")
        assert told.endswith(f"{why}\n")
        assert not site.verbosities


async def test_long_bodies_are_refused_before_they_are_read():
    async with serving() as site:
        told = (400, "error reading request body: more than 64 bytes\n")
        assert await site.send("1" * 100_000) == told
        assert not site.verbosities


async def test_broken_bodies_are_refused_and_no_error_of_ours(caplog):
    async with serving() as site:
        port = int(site.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        head = f"PUT {VERBOSITY} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(f"{head}1\r\n4\r\nzz\r\n".encode())
        answer = await reader.read(200)
        writer.transport.abort()
        assert answer.split()[1] == b"400"
        assert not site.verbosities
        assert not caplog.records


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_other_methods_change_nothing(method):
    async with serving() as site:
        assert await site.send("4", method) == (406, "unsupported http method\n")
        assert not site.verbosities


async def test_a_page_in_a_browser_changes_nothing():
    async with serving() as site:
        assert (await site.send("4", Origin="https://evil.example"))[0] == 403
        assert not site.verbosities


async def test_without_profiling_or_a_log_there_is_no_such_path():
    async with serving(SchedulerConfiguration(enable_profiling=False)) as site:
        assert (await site.send("4"))[0] == 404
        assert not site.verbosities
    async with serving(is_absent=True) as site:
        assert (await site.send("4"))[0] == 404


async def test_a_number_is_the_verbosity_from_now_on():
    async with serving() as site:
        for text in ("4", "0", "-1", "+2"):
            told = (200, f"successfully set klog.logging.verbosity to {text}\n")
            assert await site.send(text) == told
        assert site.verbosities == [4, 0, -1, 2]
