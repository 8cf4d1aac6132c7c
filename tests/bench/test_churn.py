"""What changes beside the pods of a soak, on the embedded API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from bench.churn import RELOAD_SECONDS, Churn, Claims, Daemon
from bench.load_generator import LoadGenerator
from bench.perf import pod_of
from bench.workloads import node
from ksched.apiserver.api_server import ApiServer
from ksched.apiserver.in_process import InProcessTransport
from ksched.clock import LoopClock
from ksched.daemon.reloads import APPLIED, REFUSED
from ksched.testing.virtual_time import run
from lab.child_process import ChildFailed, ChildProcess
from lab.control_plane import ControlPlane


class Replica:
    """Judges its file as a daemon does, four seconds after it changed."""

    def __init__(self, file: Path, *, is_blind: bool = False) -> None:
        self._file, self._is_blind = file, is_blind
        file.write_text(json.dumps({"profiles": [{}]}))
        self._changed_at, self._seen = 0.0, file.read_text()

    async def last_reload(self) -> Mapping[str, Any] | None:
        now = asyncio.get_running_loop().time()
        if self._file.read_text() != self._seen:
            self._seen, self._changed_at = self._file.read_text(), now
        if not self._changed_at or now < self._changed_at + 4:
            return None
        (profile,) = json.loads(self._seen)["profiles"]
        is_good = profile.keys() <= {"schedulerName", "plugins"} or self._is_blind
        return {"result": APPLIED if is_good else REFUSED, "at": self._changed_at}

    def daemon(self) -> Daemon:
        return Daemon(cast(ChildProcess, self), self._file, self.last_reload)

    def failure(self, problem: str) -> ChildFailed:
        return ChildFailed("ksched", problem, "")


def load_generator() -> LoadGenerator:
    return LoadGenerator(InProcessTransport(ApiServer(LoopClock())))


def churn(load: LoadGenerator) -> Churn:
    return Churn(cast(ControlPlane, None), load)


async def for_seconds(seconds: float, *running: Any) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.gather(*running)


def test_nodes_change_and_are_replaced_but_not_the_first() -> None:
    async def live() -> None:
        load = load_generator()
        await load.create_nodes(5)
        changing = churn(load)
        first = await load.get("/api/v1/nodes/node-00000")
        uids = {(await load.get(f"/api/v1/nodes/{name}"))["metadata"]["uid"] for name in names}
        await for_seconds(60.5, changing.nodes(1, 5))
        assert await load.get("/api/v1/nodes/node-00000") == first
        assert sum(changing.happened.values()) == 60
        assert len(changing.happened) == 5
        assert await load.node_names() == names
        now = {(await load.get(f"/api/v1/nodes/{name}"))["metadata"]["uid"] for name in names}
        assert uids - now

    names = [node(index)["metadata"]["name"] for index in range(5)]
    run(live())


def test_good_and_bad_files_come_in_turn(tmp_path: Path) -> None:
    async def live() -> None:
        changing = churn(load_generator())
        daemon = Replica(tmp_path / "config.yaml").daemon()
        await for_seconds(100, changing.configurations(10, daemon))
        assert changing.happened == {"configuration applied": 3, "configuration refused": 3}

    run(live())


def test_a_bad_file_that_is_applied_ends_the_soak(tmp_path: Path) -> None:
    async def live() -> None:
        daemon = Replica(tmp_path / "config.yaml", is_blind=True).daemon()
        with pytest.raises(ChildFailed, match="configuration 1: applied, wanted refused"):
            await churn(load_generator()).configurations(10, daemon)

    run(live())


def test_a_file_that_nobody_notices_ends_the_soak(tmp_path: Path) -> None:
    async def silent() -> None:
        return None

    async def live() -> None:
        replica = Replica(tmp_path / "config.yaml")
        daemon = Daemon(cast(ChildProcess, replica), tmp_path / "config.yaml", silent)
        with pytest.raises(ChildFailed, match=f"not noticed within {RELOAD_SECONDS:.0f} s"):
            await churn(load_generator()).configurations(10, daemon)

    run(live())


def test_a_claim_goes_with_its_volume() -> None:
    async def live() -> None:
        load = load_generator()
        claims, body = Claims(load), pod_of("p-0", {})
        await claims.add_to(body, 0)
        await load.create_pod(body)
        assert body["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "claim-0"}
        await claims.remove(0)
        assert not await load.names("/api/v1/persistentvolumes")
        assert not await load.names("/api/v1/namespaces/default/persistentvolumeclaims")

    run(live())
