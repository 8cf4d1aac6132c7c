"""A pytest plugin, found by its entry point: the fixture ``cluster``, on virtual time.

An ``async def`` test that uses the fixture runs on a virtual loop, with or without pytest-asyncio
and whatever its mode. A test marked ``real_time`` is left to the project's own async plugin.

Every pytest run loads this module where ksched is installed, so it imports the rest only when a
test uses it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ksched.testing import Cluster

MARKERS = (
    "cluster(**options): what the fixture `cluster` passes to ksched.testing.cluster, unless the "
    "test overrides it",
    "real_time: an async test with the fixture `cluster` that your own async plugin runs, in real "
    "time",
)


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


@pytest.fixture
def cluster(
    request: pytest.FixtureRequest,
) -> Callable[..., AbstractAsyncContextManager[Cluster]]:
    """``ksched.testing.cluster`` with the options of the test's ``cluster`` marker."""
    from ksched.testing import cluster

    marker = request.node.get_closest_marker("cluster")
    defaults: dict[str, Any] = dict(marker.kwargs) if marker else {}

    def make(nodes: Any = None, **options: Any) -> AbstractAsyncContextManager[Cluster]:
        given = options if nodes is None else {"nodes": nodes, **options}
        return cluster(**{**defaults, **given})

    return make


def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and _is_ours(item):
            # Not at pytest_pyfunc_call: pytest-asyncio has wrapped the coroutine by then.
            item.runtest = partial(_run_on_virtual_time, item)  # type: ignore[method-assign]


def _is_ours(item: pytest.Function) -> bool:
    found = item._fixtureinfo.name2fixturedefs.get("cluster")
    is_our_fixture = found is not None and found[-1].func.__module__ == __name__
    is_virtual = item.get_closest_marker("real_time") is None
    return is_our_fixture and is_virtual and inspect.iscoroutinefunction(item.obj)


def _run_on_virtual_time(item: pytest.Function) -> None:
    from ksched.testing import virtual_time

    arguments = {name: item.funcargs[name] for name in item._fixtureinfo.argnames}
    virtual_time.run(item.obj(**arguments))
