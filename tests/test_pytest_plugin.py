"""The pytest plugin in a pytest of its own, as the project of a plugin author has it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.real_time

ROOT = Path(__file__).parents[1]
Run = Callable[..., subprocess.CompletedProcess[str]]

HEAD = """
import asyncio
import pytest
from ksched.testing import make_pod
from ksched.testing.virtual_time import VirtualLoop
"""

ON_VIRTUAL_TIME = """
async def test_it(cluster):
    assert isinstance(asyncio.get_running_loop(), VirtualLoop)
    async with cluster(nodes=1) as c:
        await c.create(make_pod("web"))
        await c.advance(3600)
        assert c.bound("web") == "n1"
"""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs pytest on a file with this content, in a folder where the entry points are installed."""
    metadata = tmp_path / "installed" / "ksched_entry_points-1.0.dist-info"
    metadata.mkdir(parents=True)
    about = "Metadata-Version: 2.1\nName: ksched-entry-points\nVersion: 1.0\n"
    (metadata / "METADATA").write_text(about)
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    points = "\n".join(f"{name} = {value}" for name, value in declared["pytest11"].items())
    (metadata / "entry_points.txt").write_text(f"[pytest11]\n{points}\n")

    def run(content: str, *arguments: str, ini: str = "") -> subprocess.CompletedProcess[str]:
        project = tmp_path / "project"
        project.mkdir(exist_ok=True)
        (project / "test_project.py").write_text(HEAD + content)
        if "no:asyncio" not in arguments:
            ini += "\nasyncio_default_fixture_loop_scope = function"
        (project / "pytest.ini").write_text(f"[pytest]\nfilterwarnings = error\n{ini}\n")
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
        paths = f"{metadata.parent}{os.pathsep}{ROOT}"
        environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
        for name in [name for name in environment if name.startswith("PYTEST_")]:
            del environment[name]
        return subprocess.run(
            command, cwd=project, env=environment, capture_output=True, text=True, check=False
        )

    return run


def outcome(done: subprocess.CompletedProcess[str]) -> str:
    return re.sub(r" in [\d.]+s.*", "", done.stdout.splitlines()[-1]).strip("= ")


@pytest.mark.parametrize(
    ("arguments", "ini"),
    [
        pytest.param(["-p", "no:asyncio"], "", id="without pytest-asyncio"),
        pytest.param([], "asyncio_mode = strict", id="strict mode"),
        pytest.param([], "asyncio_mode = auto", id="auto mode"),
    ],
)
def test_an_async_test_with_a_cluster_is_on_virtual_time(
    arguments: list[str], ini: str, run: Run
) -> None:
    done = run(ON_VIRTUAL_TIME, "--strict-markers", *arguments, ini=ini)
    assert outcome(done) == "1 passed", done.stdout


def test_markers_give_options_that_a_test_may_replace(run: Run) -> None:
    done = run(
        """
pytestmark = pytest.mark.cluster(nodes=2, seed=7)

class TestClass:
    @pytest.mark.parametrize("more", [1, 3])
    async def test_method(self, cluster, more, tmp_path):
        async with cluster() as c:
            assert len(c.nodes()) == 2
            await c.add_nodes(more)
            assert len(c.nodes()) == 2 + more

    @pytest.mark.cluster(nodes=5)
    async def test_nearest(self, cluster):
        async with cluster() as five, cluster(1) as one:
            assert (len(five.nodes()), len(one.nodes())) == (5, 1)
""",
        "--strict-markers",
    )
    assert outcome(done) == "3 passed", done.stdout


def test_what_fails_is_reported(run: Run) -> None:
    done = run(
        """
async def test_wrong(cluster):
    async with cluster(nodes=1) as c:
        assert len(c.nodes()) == 2

async def test_stuck(cluster):
    async with cluster(nodes=1, start=False):
        await asyncio.Event().wait()

def test_synchronous(cluster):
    assert callable(cluster)
"""
    )
    assert outcome(done) == "2 failed, 1 passed", done.stdout
    assert "assert 1 == 2" in done.stdout
    assert "deadlock: every task waits and no timer is set" in done.stdout


def test_real_time_and_foreign_fixtures_are_left_alone(run: Run) -> None:
    done = run(
        """
@pytest.mark.real_time
async def test_real(cluster):
    assert not isinstance(asyncio.get_running_loop(), VirtualLoop)
    async with cluster(nodes=1) as c:
        assert len(c.nodes()) == 1

class TestForeign:
    @pytest.fixture
    def cluster(self):
        return "mine"

    async def test_own(self, cluster):
        assert cluster == "mine"
        assert not isinstance(asyncio.get_running_loop(), VirtualLoop)
""",
        "--strict-markers",
        ini="asyncio_mode = auto",
    )
    assert outcome(done) == "2 passed", done.stdout


def test_a_run_without_clusters_does_not_load_the_scheduler(run: Run) -> None:
    """It would cost every pytest run of the environment half a second."""
    done = run(
        """
import subprocess, sys

def test_it(pytestconfig):
    assert pytestconfig.pluginmanager.has_plugin("ksched")
    code = "import ksched.pytest_plugin, sys; print('numpy' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code]) == b"False\\n"
"""
    )
    assert outcome(done) == "1 passed", done.stdout


def test_the_page_shows_it(run: Run) -> None:
    page = (ROOT / "docs" / "testing_plugins.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    [number] = [number for number, block in enumerate(blocks) if "(cluster):" in block]
    done = run("\n".join(blocks[: number + 1]), "-k", "test_quiet_in_a_cluster")
    assert outcome(done).startswith("1 passed"), done.stdout
