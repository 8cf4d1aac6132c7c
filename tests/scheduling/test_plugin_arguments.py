"""A plugin's declared arguments on their way through a scheduler and the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from ksched.cli import execute
from ksched.errors import ConfigError
from ksched.framework import SUCCESS
from ksched.testing import cluster, make_pod

PLUGIN = """
from pydantic import BaseModel

from ksched.framework import SUCCESS


class Args(BaseModel):
    url: str
    retries: int = 2


class Asks:
    name = "Asks"
    args_model = Args

    def __init__(self, args, handle):
        self.url = args.url

    def filter(self, state, pod, node):
        return SUCCESS
"""


class Args(BaseModel):
    greeting: str = "hello"


class Greets:
    name = "Greets"
    args_model = Args

    def __init__(self, args: Any, handle: Any) -> None:
        self.args = args
        made.append(self)

    def filter(self, state: Any, pod: Any, node: Any) -> Any:
        return SUCCESS


made: list[Greets] = []


@pytest.fixture(autouse=True)
def _empty() -> None:
    made.clear()


async def test_the_plugin_is_given_its_model() -> None:
    config = {"profiles": [{"pluginConfig": [{"name": "Greets", "args": {"greeting": "hi"}}]}]}
    async with cluster(1, config=config, plugins={"Greets": Greets}) as c:
        await c.create(make_pod("web"))
        await c.settle()
        assert c.bound("web") == "n1"
    assert [plugin.args for plugin in made] == [Args(greeting="hi")]


async def test_without_an_entry_it_has_the_defaults() -> None:
    async with cluster(1, plugins={"Greets": Greets}):
        assert [plugin.args for plugin in made] == [Args()]


async def test_a_factory_that_hides_the_model_is_told_so() -> None:
    def make(args: Any, handle: Any) -> Greets:
        return Greets(args, handle)

    with pytest.raises(ConfigError, match='plugin "Greets": args_model has no effect'):
        async with cluster(1, plugins={"Greets": make}):
            pass


@pytest.fixture
def config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package, and a configuration with two mistakes in its arguments."""
    package = tmp_path / "asks-1.dist-info"
    package.mkdir()
    (tmp_path / "asks_plugin_with_args.py").write_text(PLUGIN)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: asks\nVersion: 1\n")
    points = "[ksched.plugins]\nAsks = asks_plugin_with_args:Asks\n"
    (package / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "config.yaml"
    path.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\n"
        "kind: KubeSchedulerConfiguration\n"
        "profiles:\n"
        "- plugins: {multiPoint: {enabled: [{name: Asks}]}}\n"
        "  pluginConfig: [{name: Asks, args: {retries: often}}]\n"
    )
    return path


WRONG = (
    'initializing plugin "Asks": pluginConfig[0].args.url: Required value',
    'initializing plugin "Asks": pluginConfig[0].args.retries: Invalid value: "often": '
    "Input should be a valid integer, unable to parse string as an integer",
)


def test_check_config_tells_every_problem(
    config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["check-config", str(config_file)]) == 2
    shown = capsys.readouterr().err
    for problem in WRONG:
        assert f'profile "default-scheduler": {problem}' in shown


def test_ksched_plugins_tells_them_too(
    config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["plugins", f"--config={config_file}"]) == 2
    shown = capsys.readouterr().out
    for problem in WRONG:
        assert shown.count(problem) == 1
