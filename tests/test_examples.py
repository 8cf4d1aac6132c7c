"""Every example is installed from its folder as a user would, tested and used."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self
from urllib.request import Request, urlopen

import pytest
import yaml

from ksched.api.resources import ApiResource
from ksched.errors import ConfigError
from ksched.testing import cluster, make_pod
from lab.control_plane import free_ports

pytestmark = pytest.mark.real_time
pytest.importorskip("hatchling", reason="packages are built without a network")

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted(path.parent for path in (ROOT / "examples").glob("*/pyproject.toml"))
PAGE = ROOT / "docs" / "writing_plugins.md"


class Installed:
    """A copy of an example, and the folder that pip installed it into."""

    def __init__(self, example: Path, folder: Path) -> None:
        self.source, self.site = folder / example.name, folder / "site"
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(self.site), str(ROOT)]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
        shutil.copytree(example, self.source)
        options = ["--no-deps", "--no-index", "--no-build-isolation", "--quiet"]
        self._run("pip", "install", *options, f"--target={self.site}", str(self.source))

    def run(self, *command: str) -> str:
        return self._run(*command, cwd=self.source)

    def _run(self, *command: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            [sys.executable, "-P", "-m", *command],
            cwd=cwd,
            env=self.environment,
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


class InACluster:
    """An example in ``ksched run``, beside ``ksched apiserver``; both end with the block."""

    def __init__(self, example: Installed, folder: Path) -> None:
        self._example = example
        self._kubeconfig = folder / "kubeconfig"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._url = ""

    def __enter__(self) -> Self:
        self._start("apiserver", "--port=0", "--nodes=6", f"--kubeconfig-out={self._kubeconfig}")
        self.wait_until(self._kubeconfig.exists)
        server = yaml.safe_load(self._kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        self._url = server
        return self

    def start_scheduler(self) -> None:
        self._start("run", "--config=config.yaml", "--secure-port=0")

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.terminate()
            process.wait(30)

    def _start(self, *command: str) -> None:
        self.start_process("-P", "-m", "ksched", *command)

    def start_process(self, *arguments: str) -> None:
        environment = {**self._example.environment, "KUBECONFIG": str(self._kubeconfig)}
        program = [sys.executable, *arguments]
        self._processes.append(subprocess.Popen(program, cwd=self._example.source, env=environment))

    def send(self, method: str, path: str, body: Any = None) -> Any:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        data = None if body is None else json.dumps(body).encode()
        request = Request(self._url + path, data, {"Content-Type": kind}, method=method)
        with urlopen(request, timeout=30) as response:
            return json.load(response)

    def wait_until(self, holds: Callable[[], bool]) -> None:
        for _ in range(600):
            if holds():
                return
            assert all(process.poll() is None for process in self._processes)
            time.sleep(0.1)
        raise AssertionError("not within a minute")

    def bound(self) -> int:
        pods = self.send("GET", "/api/v1/namespaces/default/pods")["items"]
        return sum(bool(pod["spec"].get("nodeName")) for pod in pods)


def test_a_change_of_a_custom_resource_wakes_the_pods_of_its_plugin(tmp_path: Path) -> None:
    """zone_quota in a process of its own: three zones, quotas of one and of two pods."""
    example = Installed(ROOT / "examples" / "zone_quota", tmp_path)
    definition, quota = (
        yaml.safe_load((example.source / name).read_text())
        for name in ("definition.yaml", "quota.yaml")
    )
    quotas = "/apis/example.com/v1/namespaces/default/zonequotas"
    with InACluster(example, tmp_path) as c:
        c.send("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        c.send("POST", quotas, quota)
        c.start_scheduler()
        for number in range(6):
            pod = make_pod(f"web{number}").label(app="web").to_dict()
            c.send("POST", "/api/v1/namespaces/default/pods", pod)
        c.wait_until(lambda: c.bound() == 3)
        c.send("PATCH", f"{quotas}/web", {"spec": {"maxPods": 2}})
        c.wait_until(lambda: c.bound() == 6)


def test_ask_permit_goes_the_way_that_its_readme_shows(tmp_path: Path) -> None:
    example = Installed(ROOT / "examples" / "ask_permit", tmp_path)
    [port] = free_ports(1)
    config = example.source / "config.yaml"
    assert ":8099/" in config.read_text()
    config.write_text(config.read_text().replace(":8099/", f":{port}/"))
    serve = f"import service; service.web.run_app(service.application(), port={port}, print=None)"
    with InACluster(example, tmp_path) as c:
        c.start_process("-c", serve)
        c.start_scheduler()
        for name in ("bad-one", *(f"web-{number}" for number in range(20))):
            c.send("POST", "/api/v1/namespaces/default/pods", make_pod(name).to_dict())
        c.wait_until(lambda: c.bound() == 20)
        path = "/api/v1/namespaces/default/pods/bad-one"
        c.wait_until(lambda: "denied: its name is bad" in json.dumps(c.send("GET", path)))
        assert c.bound() == 20


def test_it_keeps_the_contract(example: Installed) -> None:
    listed = json.loads(example.run("ksched", "plugins", "--config=config.yaml", "--json"))
    [entry] = [one for one in listed if one["package"] != "ksched"]
    options = ["--args=config.yaml", "--nodes=12", "-o", "json"]
    report = json.loads(example.run("ksched", "check-plugin", entry["target"], *options))
    assert (report["plugin"], report["clean"]) == (entry["name"], True)
    assert any(check["cases"] > 1 for check in report["checks"])


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
