"""Every test runs on virtual time unless it is marked ``real_time`` (sockets, subprocesses)."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import uvloop
from hypothesis import settings

from ksched.testing.virtual_time import VirtualLoop
from lab.assets import Assets, AssetsMissing
from lab.child_process import ChildProcess
from lab.control_plane import ControlPlane, free_ports

# How long an example takes says more about the machine than about the code. A checkout is judged
# by the same examples everywhere; `make explore` looks for new ones.
settings.register_profile("ksched", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("KSCHED_EXAMPLES", "ksched"))


SLOW = (
    "tests/bench/test_events.py",
    "tests/cel/test_hostile_expressions.py",
    "tests/cel/test_in_pieces.py",
    "tests/daemon/test_process.py",
    "tests/devices/test_allocator_twin.py",
    "tests/election/test_hanging_plugins.py",
    "tests/election/test_processes.py",
    "tests/election/test_under_load.py",
    "tests/explain/test_explaining.py",
    "tests/framework/plugins/test_preemption_twins.py",
    "tests/framework/plugins/test_topology_twins.py",
    "tests/framework/plugins/volumes/test_volume_twins.py",
    "tests/framework/runtime/test_core_twins.py",
    "tests/framework/runtime/test_extreme_numbers.py",
    "tests/framework/runtime/test_nominated_rows.py",
    "tests/groups/test_gang_topology.py",
    "tests/groups/test_gangs.py",
    "tests/groups/test_slot_waits.py",
    "tests/hostile/test_bulky_pods.py",
    "tests/hostile/test_dear_claims.py",
    "tests/hostile/test_reference_cycles.py",
    "tests/journal/",
    "tests/lab/test_fuzz.py",
    "tests/queue/test_in_flight.py",
    "tests/recorded/test_preemption.py",
    "tests/scheduling/test_plugin_answers.py",
    "tests/scheduling/test_reload_histories.py",
    "tests/scheduling/test_tenants.py",
    "tests/shadow/test_shadowing.py",
    "tests/simulation/",
    "tests/test_benchmark.py",
    "tests/test_examples.py",
    "tests/test_pytest_plugin.py",
    "tests/testing/conformance/",
    "tests/web/test_slow_clients.py",
    "tests/what_if/test_predicting.py",
)
"""Files and folders that take nine seconds of CPU or more: CI and ``make test-slow`` run them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(SLOW):
            item.add_marker(pytest.mark.slow)


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if item.get_closest_marker("real_time"):
        return {"uvloop": uvloop.new_event_loop}
    return {"virtual": VirtualLoop}


@pytest.fixture(scope="session")
def assets() -> Assets:
    """The real control plane's programs; the test is skipped where they are not installed."""
    try:
        return Assets.find()
    except AssetsMissing as error:
        pytest.skip(str(error))


# Starting one takes four seconds, which is less than anybody needs to find out what another file
# left behind.
@pytest.fixture(scope="module")
def control_plane(
    assets: Assets, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """A real control plane for the tests of one file, which leave no nodes and no pods behind."""
    with ControlPlane.running(tmp_path_factory.mktemp("control-plane"), assets) as plane:
        yield plane


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="record what scripted tests print, for review"
    )


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether scripted tests record their output instead of checking it."""
    return bool(request.config.getoption("--rewrite"))


class GoExtender(ChildProcess):
    """The extender of ``tests/extender_go`` at work; a context manager that ends it."""

    def __init__(self, program: Path, folder: Path, policy: Mapping[str, Any], *flags: str) -> None:
        (port,) = free_ports(1)
        self.address = f"127.0.0.1:{port}"
        self._record = folder / f"requests-{port}"
        own = ("-listen", self.address, "-policy", json.dumps(policy), "-record", self._record)
        super().__init__("extender", (program, *own, *flags), folder / f"extender-{port}.log")
        while True:
            self.must_run(0.01)
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break

    def requests(self, verb: str) -> list[bytes]:
        """The bodies of all requests of a verb, byte for byte, in order of arrival."""
        lines = [json.loads(line) for line in self._record.read_text().splitlines()]
        return [line["body"].encode() for line in lines if line["verb"] == verb]


@pytest.fixture(scope="session")
def go_extender(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., GoExtender]:
    """Starts extenders written in Go: ``with go_extender(policy, "-server", url) as extender``."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("go not found: the extender of tests/extender_go cannot be built")
    folder = tmp_path_factory.mktemp("extender-go")
    program = folder / "extender"
    # It has no dependencies, and a test run downloads nothing.
    offline = {**os.environ, "GOPROXY": "off", "GOTOOLCHAIN": "local", "GOFLAGS": ""}
    source = Path(__file__).parent / "extender_go"
    subprocess.run([go, "build", "-o", program, "."], cwd=source, env=offline, check=True)

    def start(policy: Mapping[str, Any], *flags: str) -> GoExtender:
        return GoExtender(program, folder, policy, *flags)

    return start
