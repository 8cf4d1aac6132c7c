from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.process_usage import usage

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


def test_own_usage_grows_with_work() -> None:
    before = usage(os.getpid())
    target = time.process_time() + 0.05
    while time.process_time() < target:
        pass
    after = usage(os.getpid())

    assert 0.03 <= after.cpu_seconds - before.cpu_seconds < 5
    assert 2**20 < after.rss_bytes < 2**36


def test_descendants_are_counted() -> None:
    command = "import sys; print(len(' ' * 50_000_000), flush=True); sys.stdin.read()"
    with subprocess.Popen(
        ["sh", "-c", f'{sys.executable} -c "{command}"; true'],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as shell:
        assert shell.stdout is not None
        shell.stdout.readline()
        with_child = usage(shell.pid).rss_bytes
        shell.communicate()

    # The shell alone is a megabyte or two, a Python interpreter some more.
    assert with_child > 6 * 2**20


def test_process_that_is_gone_has_used_nothing() -> None:
    with subprocess.Popen(["true"]) as done:
        done.wait()

    assert usage(done.pid) == (0.0, 0)
