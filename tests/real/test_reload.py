"""Files that are good and bad, under load, against a real API server.

Covers ``lab.reload``.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from lab.assets import Assets

pytestmark = pytest.mark.real


def test_files_change_under_load(assets: Assets) -> None:
    options = "--files 10 --rate 60 --quiet-seconds 1 --seed 3"
    done = subprocess.run(
        [sys.executable, "-m", "lab.reload", *options.split()],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "files applied" in done.stdout
    assert "files refused" in done.stdout
