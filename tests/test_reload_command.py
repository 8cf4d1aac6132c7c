"""``ksched reload`` against a running scheduler.

Covers ``ksched.commands.reload`` and ``ksched.commands.scheduler_client``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from ksched.cli import execute
from ksched.metrics import Metrics
from ksched.testing import cluster
from ksched.web.web_server import WebServer

pytestmark = pytest.mark.real_time

OUTCOME = {
    "result": "applied",
    "trigger": "request",
    "at": "2026-01-01T00:00:00Z",
    "file": "/etc/ksched/config.yaml",
    "configurationHash": "0123456789ab",
    "problems": [],
    "comparison": {
        "pending": 9,
        "compared": 8,
        "fitNow": 3,
        "fitNoLonger": 2,
        "otherNode": 1,
        "otherReason": 0,
        "examples": ["default/web and 2 like it: no node (tainted), then n1"],
    },
    "rebuiltPlugins": ["default-scheduler/NodeResourcesFit"],
}
TEXT = """\
applied: /etc/ksched/config.yaml, hash 0123456789ab
plugins built anew: default-scheduler/NodeResourcesFit
of 9 pending pods 8 were compared: 3 fit now, 2 fit no longer, 1 get another node, \
0 have another reason
  default/web and 2 like it: no node (tainted), then n1
"""


class Reloads:
    def __init__(self, outcome: dict[str, Any]) -> None:
        self.outcome, self.requests = outcome, 0

    def view(self) -> dict[str, Any]:
        return {"configurationHash": self.outcome["configurationHash"]}

    async def requested(self) -> dict[str, Any]:
        self.requests += 1
        return self.outcome


@asynccontextmanager
async def site(reloads: Reloads | None) -> AsyncIterator[str]:
    async with cluster(1) as c:
        server = WebServer(c.scheduler, Metrics(), live={}, ready={}, access=None, reloads=reloads)
        async with server.listening("127.0.0.1", 0) as url:
            yield url


async def ksched(*arguments: str) -> int:
    return await asyncio.to_thread(execute, ["reload", *arguments])


async def test_what_became_of_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    reloads = Reloads(OUTCOME)
    async with site(reloads) as url:
        assert await ksched("--server", url) == 0
        assert capsys.readouterr().out == TEXT
        assert await ksched("--server", url, "-o", "json") == 0
        assert json.loads(capsys.readouterr().out) == OUTCOME
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{url}/reload") as answer:
                assert answer.status == 405, "reading must not load anything"
            async with session.get(f"{url}/configz") as answer:
                assert (await answer.json())["reload"] == {"configurationHash": "0123456789ab"}
    assert reloads.requests == 2


async def test_a_refused_file_fails(capsys: pytest.CaptureFixture[str]) -> None:
    problems = ["profiles[0]: wrong", "parallelism cannot change"]
    refused = {**OUTCOME, "result": "refused", "problems": problems, "comparison": None}
    async with site(Reloads(refused)) as url:
        assert await ksched("--server", url) == 1
        told = capsys.readouterr().err
        assert "refused, nothing changed: /etc/ksched/config.yaml" in told
        assert all(f"error: {problem}" in told for problem in problems)


async def test_without_a_file_there_is_nothing_to_load(capsys: pytest.CaptureFixture[str]) -> None:
    async with site(None) as url:
        assert await ksched("--server", url) == 1
        assert "started without --config" in capsys.readouterr().err


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:10259"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
async def test_a_page_in_a_browser_loads_nothing(headers: dict[str, str]) -> None:
    reloads = Reloads(OUTCOME)
    async with site(reloads) as url, aiohttp.ClientSession() as session:
        async with session.post(f"{url}/reload", headers=headers, data="x=1") as answer:
            assert answer.status == 403
        assert reloads.requests == 0
        async with session.post(f"{url}/reload", headers={"Sec-Fetch-Site": "none"}) as answer:
            assert answer.status == 200
