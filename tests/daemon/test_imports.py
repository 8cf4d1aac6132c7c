"""What ``ksched`` loads before it does anything: every module is time and memory at the start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ksched.apiserver.http_listener import write_kubeconfig

START = """
import sys
import ksched.daemon.process
from ksched.cli import build_parser
from ksched.client.kubeconfig import load_client_config
from ksched.clock import LoopClock
from ksched.framework.runtime.registry import available
from ksched.metrics import Metrics

build_parser(["run"])
load_client_config(LoopClock(), kubeconfig=sys.argv[1])
available()
Metrics()
print(*sys.modules)
"""

HELP = """
import sys
import ksched.cli

try:
    ksched.cli.main(["--help"])
except SystemExit:
    print(*sys.modules)
"""

THREADS = """
import os
import sys
from ksched.cli import execute

execute(["run", "--config", "/no/such/file"])
assert "numpy" in sys.modules
print(len(os.listdir("/proc/self/task")))
"""

NOT_NEEDED = {
    "aiohttp": "serves the port, which --secure-port=0 closes",
    "cryptography": "makes a serving certificate where none is given",
    "kubernetes_asyncio": "is for plugins that use handle.api_client",
    "ksched.apiserver": "is for trials and tests",
    "ksched.cel.lexer": "is for the selectors of devices",
    "ksched.commands.explain": "is another command",
    "ksched.testing": "is for trials and tests",
    "prometheus_client": "formats the metrics of a scrape",
    "rich": "is for the terminal",
    "urllib.request": "is for other commands",
}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    kubeconfig: Path = tmp_path_factory.mktemp("imports") / "kubeconfig"
    write_kubeconfig(kubeconfig, "http://127.0.0.1:1")
    return _printed(START, str(kubeconfig)).split()


def _printed(program: str, *arguments: str) -> str:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("package", NOT_NEEDED)
def test_nothing_is_loaded_that_may_not_be_needed(loaded: list[str], package: str) -> None:
    found = [
        one for one in loaded if one == package or one.startswith((f"{package}.", f"{package}_"))
    ]
    assert not found, f"{package} {NOT_NEEDED[package]}"


def test_number_of_modules(loaded: list[str]) -> None:
    assert len(loaded) < 850


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts threads in /proc")
def test_no_module_starts_threads() -> None:
    assert _printed(THREADS).strip() == "1"


def test_help_loads_no_command() -> None:
    loaded = _printed(HELP).splitlines()[-1].split()
    ours = {one for one in loaded if one.partition(".")[0] == "ksched"}
    assert ours == {"ksched", "ksched.cli", "ksched.errors", "ksched.redaction"}
    assert not {"asyncio", "logging", "numpy", "pydantic"} & set(loaded)
