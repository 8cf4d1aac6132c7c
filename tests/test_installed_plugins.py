"""Installed is not enabled: what packages offer harms nothing until a profile names it.

Covers ``ksched.commands.plugins`` and ``ksched.scheduling.plugin_inventory``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ksched.cli import execute
from ksched.framework import unschedulable
from ksched.framework.runtime.installed_plugins import offers
from ksched.testing import FakePlugin, cluster, make_pod

Install = Callable[..., None]

CONFIG = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: batch
  plugins: {multiPoint: {enabled: [{name: NAME}]}}
"""

GOOD = """
from ksched.framework import SUCCESS

class Good:
    name = "Good"

    def __init__(self, args, handle):
        self.args = args

    def filter(self, state, pod, node):
        return SUCCESS
"""


def install(folder: Path, package: str, points: str, source: str = "", version: str = "1.0") -> str:
    """What installing a package leaves on the path; its module has the package's name."""
    folder.mkdir(exist_ok=True)
    metadata = folder / f"{package}-{version}.dist-info"
    metadata.mkdir()
    about = f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
    (metadata / "METADATA").write_text(about)
    (metadata / "entry_points.txt").write_text(f"[ksched.plugins]\n{points}\n")
    (folder / f"{package}.py").write_text(source)
    return str(folder)


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs packages for this process and this test."""
    monkeypatch.syspath_prepend(tmp_path)

    def on_path(package: str, points: str, source: str = "", version: str = "1.0") -> None:
        install(tmp_path, package, points, source, version)
        # Another test may have had a package of this name.
        monkeypatch.delitem(sys.modules, package, raising=False)

    return on_path


@pytest.fixture
def config(tmp_path: Path) -> Callable[[str], str]:
    def write(name: str) -> str:
        path = tmp_path / f"{name}.yaml"
        path.write_text(CONFIG.replace("NAME", name))
        return str(path)

    return write


def listed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    """The exit code of ``ksched plugins --json``, and the plugins of packages by name."""
    code = execute(["plugins", "--json", *arguments])
    entries = json.loads(capsys.readouterr().out)
    return code, {one["name"]: one for one in entries if one["package"] != "ksched"}


BROKEN = [
    pytest.param(
        "Broken = broken:make", "import nowhere", "No module named 'nowhere'", id="import fails"
    ),
    pytest.param("Broken = broken:make", "raise SystemExit(1)", "SystemExit", id="import exits"),
    pytest.param("Broken = broken:make", "", "has no attribute 'make'", id="nothing there"),
    pytest.param("Broken = nowhere:make", "", "No module named 'nowhere'", id="no such module"),
    pytest.param("Broken = :::", "", "cannot be imported", id="no target"),
    pytest.param("Broken = broken:make", "make = 3", "not callable", id="no factory"),
    pytest.param(
        "Broken = broken:make",
        "def make(args, handle): raise ValueError('needs a city')",
        "needs a city",
        id="cannot be built",
    ),
    pytest.param(
        "Broken = broken:Make",
        "class Make:\n def __init__(self, args, handle): pass\n def permit(self, *a): pass",
        "its name must be the one it is registered under",
        id="no name",
    ),
]


@pytest.mark.parametrize(("points", "source", "problem"), BROKEN)
def test_broken_plugin_is_named_with_what_is_wrong_with_it(
    points: str,
    source: str,
    problem: str,
    on_path: Install,
    config: Callable[[str], str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    on_path("broken", points, source)
    on_path("good", "Good = good:Good", GOOD)

    code, found = listed(capsys)
    assert code == 0
    assert found["Good"]["problems"] == []
    assert (found["Good"]["extensionPoints"], found["Good"]["profiles"]) == (["filter"], [])
    assert [text for text in found["Broken"]["problems"] if problem in text]
    assert len(found["Broken"]["problems"]) == 1

    code, found = listed(capsys, f"--config={config('Broken')}")
    assert code == 2
    assert found["Broken"]["profiles"] == ["batch"]
    assert [text for text in found["Broken"]["problems"] if problem in text]
    assert len(found["Broken"]["problems"]) == 1

    assert execute(["check-config", config("Good")]) == 0
    assert execute(["check-config", config("Broken")]) == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(("points", "source", "problem"), BROKEN)
async def test_broken_plugin_that_no_profile_names_stops_nothing(
    points: str, source: str, problem: str, on_path: Install
) -> None:
    on_path("broken", points, source)
    async with cluster(nodes=1) as c:
        await c.create(make_pod("web"))
        await c.settle()
        assert c.bound("web") == "n1"
    assert "broken" not in sys.modules, "a package that no profile names was imported"


@pytest.mark.parametrize("lines", ["Broken", "Broken = \n[half"])
def test_entry_points_that_cannot_be_read_are_that_packages_problem(
    lines: str,
    on_path: Install,
    config: Callable[[str], str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    on_path("broken", lines)
    on_path("good", "Good = good:Good", GOOD)
    assert execute(["check-config", config("Good")]) == 0
    code, found = listed(capsys) if not capsys.readouterr().err else (1, {})
    assert code == 0
    assert found["Good"]["problems"] == []
    assert [one for one in found.values() if one["package"] == "broken" and one["problems"]]


def test_two_packages_with_one_name_are_told_apart(
    on_path: Install, config: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    on_path("good", "Good = good:Good", GOOD)
    on_path("better", "Good = better:Good", GOOD, "2.0")
    assert execute(["check-config", config("Good")]) == 2
    assert "offered by several packages: " in capsys.readouterr().err
    execute(["plugins"])
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split()[:3] for line in lines if line.startswith("Good")]
    assert sorted(rows) == [["Good", "better", "2.0"], ["Good", "good", "1.0"]]
    assert sum("also offered by good 1.0" in line for line in lines) == 1
    assert sum("also offered by better 2.0" in line for line in lines) == 1


async def test_plugin_with_an_in_tree_name_is_ignored_and_told(
    on_path: Install, caplog: pytest.LogCaptureFixture
) -> None:
    on_path("evil", "NodeName = evil:make", "raise RuntimeError")
    async with cluster(nodes=1) as c:
        await c.create(make_pod("web"))
        await c.settle()
        assert c.bound("web") == "n1"
    [line] = [vars(one) for one in caplog.records if "its name is taken" in one.message]
    assert (line["plugin"], line["package"]) == ("NodeName", "evil 1.0")


def test_plugin_with_a_kind_of_its_own_is_listed(
    on_path: Install, config: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    source = GOOD.replace("self.args = args", "handle.listers.require(KIND)") + (
        "from ksched.framework import Unstructured, WatchedKind\n"
        "KIND = WatchedKind.custom(\n"
        "    Unstructured, group='x.io', version='v1', plural='things', kind='Thing')\n"
    )
    on_path("good", "Good = good:Good", source)
    code, found = listed(capsys, f"--config={config('Good')}")
    assert (code, found["Good"]["problems"]) == (0, [])
    assert found["Good"]["extensionPoints"] == ["filter"]


def test_plugin_without_an_extension_point_is_told(
    on_path: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    on_path("good", "Good = good:Good", GOOD.replace("def filter", "def choose"))
    _, found = listed(capsys)
    [problem] = found["Good"]["problems"]
    assert problem.startswith("implements no extension point")


def test_point_that_a_plugin_does_not_implement_is_told(
    on_path: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    on_path("good", "Good = good:Good", GOOD)
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG.replace("multiPoint", "score").replace("NAME", "Good"))
    code, found = listed(capsys, f"--config={path}")
    assert code == 2
    [problem] = found["Good"]["problems"]
    assert 'profile "batch": plugin "Good" does not extend ScorePlugin plugin' in problem


def test_package_further_down_the_path_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not the one that would be imported."""
    monkeypatch.syspath_prepend(install(tmp_path / "old", "good", "Old = good:Old"))
    monkeypatch.syspath_prepend(install(tmp_path / "same", "good", "Good = good:Good", GOOD))
    monkeypatch.syspath_prepend(install(tmp_path / "new", "good", "Good = good:Good", GOOD))
    assert [str(one) for one in offers() if one.package == "good"] == ["good 1.0"]
    assert [one.name for one in offers() if one.package == "good"] == ["Good"]


async def test_cluster_may_replace_an_installed_plugin(on_path: Install) -> None:
    on_path("good", "Good = good:Good", "raise RuntimeError('not to be imported')")
    own = FakePlugin("Good", filter=unschedulable("mine"))
    async with cluster(nodes=1, plugins=[own]) as c:
        await c.create(make_pod("web"))
        await c.settle()
        assert "mine" in c.message("web")
    assert "good" not in sys.modules


@pytest.mark.real_time
def test_the_command_lists_what_is_installed(tmp_path: Path) -> None:
    """In a process of its own; whoever reads may leave early."""
    install(tmp_path, "good", "Good = good:Good", GOOD)
    install(tmp_path, "broken", "Broken = broken:make", "import nowhere")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "ksched", "plugins"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    rows = {line.split()[0]: line.split() for line in lines if not line.startswith(" ")}
    assert rows["PLUGIN"] == ["PLUGIN", "PACKAGE", "ENABLED", "IN", "EXTENSION", "POINTS"]
    assert rows["Good"] == ["Good", "good", "1.0", "-", "filter"]
    assert rows["NodeName"][3:] == ["default-scheduler", "preFilter,", "filter"]
    assert rows["Broken"] == ["Broken", "broken", "1.0", "-", "-"]
    assert sum("No module named 'nowhere'" in line for line in lines) == 1

    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as reader:
        assert reader.stdout is not None
        reader.stdout.close()
        assert reader.stderr is not None
        assert reader.stderr.read() == b""
    assert reader.returncode == 0
