"""Every test runs on virtual time unless it is marked ``real_time`` (sockets, subprocesses)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping

import pytest
import uvloop

from ksched.testing.assets import Assets, AssetsMissing
from ksched.testing.control_plane import ControlPlane
from ksched.testing.virtual_time import VirtualLoop


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


@pytest.fixture(scope="session")
def control_plane(
    assets: Assets, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """One real control plane for the whole run; tests leave no nodes and no pods behind."""
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
