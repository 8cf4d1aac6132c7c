"""``ksched groups`` against a running scheduler.

Covers ``ksched.commands.groups``.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from ksched.cli import execute
from ksched.metrics import Metrics
from ksched.testing import Cluster, PermitGate, cluster, make_node, make_pod
from ksched.web.listener import ContextSource
from ksched.web.web_server import WebServer
from lab.gangs import Gang, configured

pytestmark = pytest.mark.real_time

TABLE = """\
GROUP           STATE       ON NODES  MIN  OTHER MEMBERS  WAITS FOR
default/eval    placed      2         2    -              -
default/late    incomplete  0         2    1 available    1 of 2 pods exist
team-a/train-7  short       0         3    3 available    0 of 3 fit; short of 3 × 4 cpu
"""

DETAILS = """\
default/eval: placed
  waits for  nothing
  minimum    2
  marked by  annotations

POD             ROLE  STATE  NODE
default/eval-0  -     bound  n1
default/eval-1  -     bound  n1
"""


@asynccontextmanager
async def site(
    nodes: int = 1,
    access: Any = None,
    tls: ContextSource | None = None,
    plugins: Sequence[Any] = (),
) -> AsyncIterator[tuple[Cluster, str]]:
    async with cluster(nodes, config=configured("annotations"), plugins=plugins) as c:
        server = WebServer(c.scheduler, Metrics(), live={}, ready={}, access=access)
        async with server.listening("127.0.0.1", 0, tls) as url:
            yield c, url


async def ksched(*arguments: str) -> int:
    return await asyncio.to_thread(execute, ["groups", *arguments])


async def test_groups_in_a_table_and_one_with_its_pods(capsys: pytest.CaptureFixture[str]) -> None:
    async with site() as (c, url):
        assert await ksched("--server", url) == 0
        assert capsys.readouterr().out == "no pod groups\n"
        train = Gang("annotations", "train-7", 3, cpu="4", namespace="team-a")
        late = Gang("annotations", "late", 2)
        await c.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}})
        await c.create(*Gang("annotations", "eval", 2).pods(), *train.pods(), late.pod(0))
        await c.settle()
        assert await ksched("--server", url) == 0
        assert capsys.readouterr().out == TABLE
        assert await ksched("--server", url, "-n", "team-a", "-o", "json") == 0
        [group] = json.loads(capsys.readouterr().out)
        assert (group["group"], group["state"]) == ("team-a/train-7", "short")
        assert await ksched("--server", url, "eval") == 0
        assert capsys.readouterr().out == DETAILS


HOLDERS = """\
default/x: broken
  waits for  4 of 6 are on nodes; the others wait: 0 of 2 fit; short of 2 × 1 cpu
  minimum    6
  marked by  annotations
  held by    default/y: 4 pods whose group lacks members, on 2 nodes
             pod default/held: 1 pod at Permit (Gate), on 1 node
  in a cycle default/x, default/y

"""


async def test_who_holds_room_and_who_waits_for_whom(capsys: pytest.CaptureFixture[str]) -> None:
    gate = PermitGate("Gate")
    async with site(3, plugins=[gate]) as (c, url):
        gangs = [Gang("annotations", name, 6) for name in "xy"]
        for gang in gangs:
            await c.create(*gang.pods())
            await c.settle()
            gate.allow(*gate.held())
            await c.settle()
        await c.delete_node("n3")
        for name in [name for gang in gangs for name in gang.names if c.bound(name) == "n3"]:
            await c.delete(name, grace_seconds=0)
        await c.add_nodes([make_node("n4").capacity(cpu="1")])
        await c.create(make_pod("held").req(cpu="1"))
        await c.settle()
        for gang in gangs:
            await c.create(*(gang.pod(f"again-{number}") for number in range(2)))
        await c.settle()
        assert await ksched("--server", url) == 0
        table = capsys.readouterr().out
        assert table.endswith("\n\nwait for each other's room: default/x, default/y\n")
        assert await ksched("--server", url, "x") == 0
        assert capsys.readouterr().out.startswith(HOLDERS)
        assert await ksched("--server", url, "x", "-o", "json") == 0
        [group] = json.loads(capsys.readouterr().out)
        assert group["cycle"] == ["default/x", "default/y"]
        assert group["holders"] == [
            {
                "group": "default/y",
                "holding": "lacks members",
                "pods": 4,
                "nodes": 2,
                "plugins": [],
            },
            {
                "pod": "default/held",
                "holding": "at Permit",
                "pods": 1,
                "nodes": 1,
                "plugins": ["Gate"],
            },
        ]


async def test_a_group_or_a_scheduler_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    async with site() as (_, url):
        assert await ksched("--server", url, "-n", "team-a", "x") == 1
        error = capsys.readouterr().err
        assert error == f"error: {url}: pod group team-a/x: not known to this scheduler\n"
    assert await ksched("--server", url) == 1
    assert "Connection refused; is it a ksched?" in capsys.readouterr().err
    assert await ksched("--server", "localhost:1") == 2
    assert "wanted a URL like https://127.0.0.1:10259" in capsys.readouterr().err


async def test_plain_http_and_a_certificate_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    async with site() as (_, url):
        assert await ksched("--server", url.replace("http:", "https:")) == 1
        assert (
            "with --insecure-loopback it is reached with --server http" in capsys.readouterr().err
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    async with site(tls=lambda address: context) as (_, url):
        assert await ksched("--server", url) == 1
        assert "for its own one --insecure-skip-tls-verify" in capsys.readouterr().err
        assert await ksched("--server", url, "--insecure-skip-tls-verify") == 0
        assert capsys.readouterr().out == "no pod groups\n"
        trusted = ("--insecure-skip-tls-verify", "--certificate-authority=x")
        assert await ksched("--server", url, *trusted) == 2
        assert "give one of them" in capsys.readouterr().err


class Door:
    """Notes the credentials of every request and lets it in."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def refusal(self, method: str, path: str, credentials: Any) -> None:
        self.seen.append(credentials.authorization)


async def test_the_token_is_sent(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")
    door = Door()
    async with site(access=door) as (_, url):
        assert await ksched("--server", url, "--token-file", str(tmp_path / "token")) == 0
        assert await ksched("--server", url, "--token-file", str(tmp_path / "none")) == 2
    assert door.seen == ["Bearer abc"]
