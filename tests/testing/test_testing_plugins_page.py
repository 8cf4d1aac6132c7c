"""What docs/testing_plugins.md shows works as it stands there."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "testing_plugins.md"


def examples() -> dict[str, Any]:
    """The names that the page's examples define, read from top to bottom."""
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(code, PAGE.name, "exec"), names)
    return names


# Those with fixtures are run by pytest itself, in tests/test_pytest_plugin.py.
TESTS = {
    name: test
    for name, test in examples().items()
    if name.startswith("test_") and not inspect.signature(test).parameters
}


@pytest.mark.parametrize("test", TESTS.values(), ids=TESTS.keys())
def test_the_page_tells_the_truth(test: Callable[[], None]) -> None:
    test()


def test_the_page_shows_all_three_levels() -> None:
    names = examples()
    assert hasattr(names["Quiet"], "filter")
    assert hasattr(names["Headroom"], "filter_nodes")
    assert names["Gang"].permit.__code__.co_flags & 0x80  # a coroutine function
    assert len(TESTS) >= 9
