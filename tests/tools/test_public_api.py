"""Names that others depend on do not change unnoticed."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from tools.public_api import PAGE, lines_of, listing, public_names


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="signatures are printed as by Python 3.11")
def test_the_listing_is_up_to_date() -> None:
    assert PAGE.read_text() == listing(), "run python tools/public_api.py, and read the diff"


def test_members_and_signatures_are_listed() -> None:
    class Plugin:
        limit: int = 3

        def __init__(self, name: str) -> None:
            self.name = name

        @property
        def size(self) -> int:
            return 1

        async def permit(self, pod: str, *, seconds: float = 1.0) -> bool:
            return True

        def _hidden(self) -> None: ...

    assert list(lines_of("m.Plugin", Plugin)) == [
        "class m.Plugin",
        "m.Plugin.__init__(self, name: str) -> None",
        "m.Plugin.limit",
        "async m.Plugin.permit(self, pod: str, *, seconds: float = 1.0) -> bool",
        "m.Plugin.size",
    ]


def test_without_all_what_a_module_defines_is_public() -> None:
    module = ModuleType("m")
    exec("from math import sqrt\ndef visible(): ...\ndef _hidden(): ...", vars(module))
    assert public_names(module) == ["visible"]
