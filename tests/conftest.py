"""Every test runs on virtual time unless it is marked ``real_time`` (sockets, subprocesses)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

from ksched.testing.virtual_time import VirtualLoop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if item.get_closest_marker("real_time"):
        return {"uvloop": uvloop.new_event_loop}
    return {"virtual": VirtualLoop}
