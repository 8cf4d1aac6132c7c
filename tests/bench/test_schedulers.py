"""How the schedulers that take turns are started."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import ksched.cli
from bench.schedulers import KSCHED, starters


class Plane:
    """A control plane that takes every manifest."""

    def kubectl(self, *arguments):
        return ""

    def kube_scheduler(self):
        raise AssertionError

    def ksched(self):
        raise AssertionError


def test_no_start_that_is_measured_compiles_modules():
    compiled = Path(importlib.util.cache_from_source(ksched.cli.__file__))
    compiled.unlink(missing_ok=True)
    plane: Any = Plane()
    starters(plane, [KSCHED])
    assert compiled.exists()
