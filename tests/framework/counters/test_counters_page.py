"""What docs/counters.md shows works as it stands there: a plugin outside the tree with counters."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "counters.md"


def examples() -> dict[str, Any]:
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(code, PAGE.name, "exec"), names)
    return names


TESTS = {name: test for name, test in examples().items() if name.startswith("test_")}


@pytest.mark.parametrize("test", TESTS.values(), ids=TESTS.keys())
def test_the_page_tells_the_truth(test: Callable[[], None]) -> None:
    test()


def test_the_plugin_of_the_page_needs_nothing_but_the_framework() -> None:
    code = PAGE.read_text()
    assert "ksched.cache" not in code
    assert TESTS
