"""Commands configure the logs of their process, which here is not their own."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from ksched.daemon import logs


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    root = logging.getLogger()
    touched = (root, logging.getLogger(logs.PACKAGE), logging.getLogger(logs.DAEMON))
    levels = [logger.level for logger in touched]
    handlers = root.handlers[:]
    yield
    root.handlers[:] = handlers
    for logger, level in zip(touched, levels, strict=True):
        logger.setLevel(level)
