"""The names that ``ksched`` itself exports."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ksched
from ksched.scheduling.scheduler import Scheduler


def test_the_scheduler_is_exported() -> None:
    assert ksched.Scheduler is Scheduler


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'ksched' has no attribute 'Schedular'"):
        _ = ksched.Schedular


def test_the_version_is_known_without_loading_the_scheduler() -> None:
    code = "import sys, ksched; ksched.__version__; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_scheduler_in_process_needs_no_http() -> None:
    code = (
        "import sys, ksched, ksched.testing.builders; ksched.Scheduler;"
        "sys.exit('httptools' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_unknown_name_of_the_test_support_is_an_attribute_error() -> None:
    import ksched.testing

    assert sorted(ksched.testing.__all__) == sorted(ksched.testing._HOMES)
    with pytest.raises(AttributeError, match=r"'ksched\.testing' has no attribute 'clutser'"):
        _ = ksched.testing.clutser
