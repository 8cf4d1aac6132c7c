"""What docs/embedding.md shows works as it stands there.

Covers ksched.client.connecting as well, which a program knows as ``ksched.connect``.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from ksched.api.resources import PODS
from ksched.apiserver.api_server import ApiServer
from ksched.apiserver.http_listener import listening, write_kubeconfig
from ksched.apiserver.in_process import InProcessTransport
from ksched.apiserver.serving import create_nodes
from ksched.client.rest import ApiClient
from ksched.clock import LoopClock
from ksched.configuration.model import SchedulerConfiguration
from ksched.errors import ConfigError
from ksched.scheduling.scheduler import Scheduler
from ksched.testing import PermitGate, PodBuilder, cluster, make_node, make_pod
from ksched.testing.virtual_time import VirtualClock

PAGE = Path(__file__).parents[1] / "docs" / "embedding.md"


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """The names that the page's examples define, read from top to bottom."""
    names: dict[str, Any] = {"__name__": "embedding_page"}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(code, PAGE.name, "exec"), names)
    return names


class InMemory:
    """An API server that a test may fill."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.transport = InProcessTransport(server, "system:kube-scheduler")
        self._client = ApiClient(InProcessTransport(server, "test"), VirtualClock())

    async def add(self, *pods: str) -> None:
        for pod in pods:
            await self.create(make_pod(pod))

    async def create(self, pod: PodBuilder) -> None:
        await self._client.create(PODS, "default", msgspec.json.encode(pod.to_dict()))

    async def bound(self, pod: str) -> str | None:
        got = msgspec.json.decode(await self._client.get(PODS, "default", pod))
        node_name: str | None = got["spec"].get("nodeName")
        return node_name


async def in_memory(nodes: int = 2) -> InMemory:
    server = ApiServer(VirtualClock())
    await create_nodes(InProcessTransport(server, "test"), VirtualClock(), nodes)
    return InMemory(server)


@pytest.mark.real_time
async def test_a_program_connects_schedules_and_stops(
    page: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = ApiServer(LoopClock())
    await create_nodes(InProcessTransport(server, "test"), LoopClock(), 3)
    memory = InMemory(server)
    async with listening(server) as url, asyncio.TaskGroup() as tasks:
        write_kubeconfig(tmp_path / "kubeconfig", url, "system:kube-scheduler")
        serving = tasks.create_task(page["serve"](str(tmp_path / "kubeconfig")))
        await memory.add("web")
        while await memory.bound("web") is None:
            assert not serving.done()
            await asyncio.sleep(0.02)
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving
    assert capsys.readouterr().out == "3 nodes\n"


async def test_a_kubeconfig_that_is_not_there_is_named(page: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="/nowhere/kubeconfig"):
        await page["serve"]("/nowhere/kubeconfig")


async def test_a_cluster_in_memory_is_empty(page: dict[str, Any]) -> None:
    async with Scheduler(page["in_memory"]()) as scheduler:
        assert scheduler.cache.statistics().nodes == 0


def test_configuration_comes_from_a_file_or_from_models(
    page: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\n"
        "kind: KubeSchedulerConfiguration\n"
        "podMaxBackoffSeconds: 30\n"
        "profiles:\n"
        "- schedulerName: batch\n"
        "  plugins: {multiPoint: {enabled: [{name: Zoned}]}}\n"
        "  pluginConfig: [{name: Zoned, args: {zone: a}}]\n"
    )
    assert page["from_file"](str(path)) == page["from_models"]()


async def test_a_plugin_of_the_program_decides(page: dict[str, Any]) -> None:
    zones = [make_node(zone).label({"topology.kubernetes.io/zone": zone}) for zone in "ab"]
    async with (
        cluster(nodes=zones, start=False) as c,
        page["batch_scheduler"](InProcessTransport(c.server, "batch")),
    ):
        await c.create(*(make_pod(f"p{number}").scheduler("batch") for number in range(3)))
        await c.settle()
        assert {c.bound(f"p{number}") for number in range(3)} == {"a"}


async def test_decisions_are_read_as_they_come(
    page: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    memory = await in_memory()
    async with asyncio.TaskGroup() as tasks:
        reporting = tasks.create_task(page["report"](memory.transport))
        await asyncio.sleep(1)
        await memory.add("a", "b", "c")
        await memory.create(make_pod("big").req(cpu="100"))
    assert sum(reporting.result().values()) == 3
    assert "default/big: 0/2 nodes are available" in capsys.readouterr().out


async def test_metrics_are_a_collector(page: dict[str, Any]) -> None:
    memory, registry = await in_memory(), CollectorRegistry()
    async with page["observed"](memory.transport, registry):
        await memory.add("web")
        await asyncio.sleep(1)
        text = generate_latest(registry).decode()
    assert (
        'scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"} 1'
        in text
    )


async def test_several_schedulers_share_a_loop(page: dict[str, Any]) -> None:
    first, second = await in_memory(), await in_memory()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(page["two_clusters"](first.transport, second.transport))
        await first.add("a")
        await second.add("b")
        await asyncio.sleep(1)
        assert await first.bound("a")
        assert await second.bound("b")


# -- leader election -----------------------------------------------------------------------------


class Replica:
    """The page's replica in a task, and the schedulers that it made one after the other."""

    def __init__(
        self, page: dict[str, Any], memory: InMemory, name: str, tasks: asyncio.TaskGroup
    ) -> None:
        self.schedulers: list[Scheduler] = []
        self.transport = InProcessTransport(memory.server, name)
        configuration = SchedulerConfiguration()
        work = page["replica"](
            self.transport, self.transport, configuration, VirtualClock(), self.schedulers.append
        )
        self.task = tasks.create_task(work)

    def placed(self) -> int:
        return sum(len(scheduler.decisions) for scheduler in self.schedulers)


async def test_one_replica_schedules_and_the_other_takes_over(page: dict[str, Any]) -> None:
    memory = await in_memory()
    async with asyncio.TaskGroup() as tasks:
        first = Replica(page, memory, "first", tasks)
        await asyncio.sleep(3)
        second = Replica(page, memory, "second", tasks)
        await asyncio.sleep(3)
        await memory.add("a")
        await asyncio.sleep(3)
        assert (first.placed(), second.placed()) == (1, 0)
        first.schedulers[-1].drain()
        await first.task
        await asyncio.sleep(3)
        await memory.add("b")
        await asyncio.sleep(3)
        assert await memory.bound("b")
        assert (first.placed(), second.placed()) == (1, 1)
        second.schedulers[-1].drain()


async def test_a_replica_that_lost_its_lease_is_a_candidate_again(page: dict[str, Any]) -> None:
    memory = await in_memory()
    async with asyncio.TaskGroup() as tasks:
        only = Replica(page, memory, "only", tasks)
        await asyncio.sleep(3)
        loop: Any = asyncio.get_running_loop()
        loop.keep_busy(60)  # a frozen process
        await asyncio.sleep(30)
        assert len(only.schedulers) == 2
        await memory.add("a")
        await asyncio.sleep(3)
        assert await memory.bound("a")
        only.schedulers[-1].drain()


# -- the end -------------------------------------------------------------------------------------


async def test_a_gentle_stop_waits_for_held_pods_as_long_as_asked(page: dict[str, Any]) -> None:
    gate = PermitGate(timeout_seconds=600)
    async with cluster(nodes=1, plugins=[gate]) as c:
        await c.create(make_pod("soon"), make_pod("never"))
        await c.settle()
        began = c.clock.now()
        asyncio.get_running_loop().call_later(4, gate.allow, "default/soon")
        await page["stop_gently"](c.scheduler)
    assert c.clock.now() - began == 5.0
    assert (c.bound("soon"), c.bound("never")) == ("n1", None)


async def test_a_gentle_stop_ends_with_the_last_held_pod(page: dict[str, Any]) -> None:
    gate = PermitGate(timeout_seconds=600)
    async with cluster(nodes=1, plugins=[gate]) as c:
        await c.create(make_pod("soon"))
        await c.settle()
        began = c.clock.now()
        asyncio.get_running_loop().call_later(1, gate.allow, "default/soon")
        await page["stop_gently"](c.scheduler)
    assert c.clock.now() - began == 1.0
    assert c.bound("soon") == "n1"
