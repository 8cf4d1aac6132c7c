"""Every example is installed from its folder as a user would, tested and used."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ksched.api.resources import ApiResource
from ksched.errors import ConfigError
from ksched.testing import cluster, make_pod

pytestmark = pytest.mark.real_time
pytest.importorskip("hatchling", reason="packages are built without a network")

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted(path.parent for path in (ROOT / "examples").glob("*/pyproject.toml"))
PAGE = ROOT / "docs" / "writing_plugins.md"


class Installed:
    """A copy of an example, and the folder that pip installed it into."""

    def __init__(self, example: Path, folder: Path) -> None:
        self.source, self.site = folder / example.name, folder / "site"
        shutil.copytree(example, self.source)
        options = ["--no-deps", "--no-index", "--no-build-isolation", "--quiet"]
        self._run("pip", "install", *options, f"--target={self.site}", str(self.source))

    def run(self, *command: str) -> str:
        return self._run(*command, cwd=self.source)

    def _run(self, *command: str, cwd: Path | None = None) -> str:
        paths = os.pathsep.join([str(self.site), str(ROOT)])
        environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
        environment["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
        done = subprocess.run(
            [sys.executable, "-P", "-m", *command],
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module", params=EXAMPLES, ids=lambda path: path.name)
def example(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(request.param, tmp_path_factory.mktemp(request.param.name))


def test_there_are_the_examples_that_the_list_names() -> None:
    listed = re.findall(r"^\| \[(\w+)\]", (ROOT / "examples" / "README.md").read_text(), re.M)
    assert sorted(listed) == [path.name for path in EXAMPLES]
    assert len(listed) >= 4


def test_its_own_tests_pass(example: Installed) -> None:
    plugin = [] if _has_entry_point() else ["-p", "ksched.pytest_plugin"]
    (example.source / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    shown = example.run("pytest", "-q", "-p", "no:asyncio", "-p", "no:cacheprovider", *plugin)
    assert re.search(r"\d passed", shown)


def test_it_is_found_and_enabled(example: Installed) -> None:
    listed = json.loads(example.run("ksched", "plugins", "--config=config.yaml", "--json"))
    [entry] = [one for one in listed if one["package"] != "ksched"]
    assert entry["package"] == f"ksched-example-{example.source.name.replace('_', '-')}"
    assert (entry["profiles"], entry["problems"]) == (["default-scheduler"], [])
    assert entry["extensionPoints"]


def _has_entry_point() -> bool:
    """Whether this environment was installed since ksched is a pytest plugin."""
    from importlib.metadata import entry_points

    return "ksched" in entry_points(group="pytest11").names


def test_the_page_that_leads_there_tells_the_truth(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(code, PAGE.name, "exec"), names)
    from ksched.testing import virtual_time

    virtual_time.run(names["test_a_frozen_node_takes_nothing"](cluster))
    virtual_time.run(_report_pending(names["PendingReport"]))
    args = {"profiles": [{"pluginConfig": [{"name": "LimitedFreeze", "args": {"days": -1}}]}]}
    with pytest.raises(ConfigError, match=r"pluginConfig\[0\].args.days: Invalid value: -1: "):
        virtual_time.run(_start({"LimitedFreeze": names["LimitedFreeze"]}, args))
    [toml] = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert toml in (ROOT / "examples" / "change_freeze" / "pyproject.toml").read_text()


async def _start(plugins: dict[str, Any], config: dict[str, Any]) -> None:
    async with cluster(1, plugins=plugins, config=config):
        pass


async def _report_pending(plugin: Any) -> None:
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    report = {**kind, "metadata": {"name": "pending-pods"}, "data": {}}
    async with cluster(1, plugins={"PendingReport": plugin}) as c:
        await c.create(report)
        await c.create(*(make_pod(f"p{number}").req(cpu="3") for number in range(3)))
        await c.advance(61)
        resource = ApiResource("", "v1", "configmaps", "ConfigMap", True)
        written = json.loads(await c.client.get(resource, "default", "pending-pods"))
        assert written["data"] == {"pending": "2"}
