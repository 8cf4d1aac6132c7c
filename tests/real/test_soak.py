from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from lab.assets import Assets

pytestmark = pytest.mark.real


def test_a_short_soak_writes_down_what_it_saw(assets: Assets, tmp_path: Path) -> None:
    options = f"--minutes 0.4 --nodes 20 --every 2 --attack-seconds 3 --out {tmp_path}"
    done = subprocess.run(
        [sys.executable, "-m", "bench.soak", *options.split()],
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )

    # Half a minute is too short to say whether anything rises.
    assert done.returncode in (0, 1), done.stderr
    rows = list(csv.DictReader((tmp_path / "soak.csv").read_text().splitlines()))
    assert len(rows) >= 10
    assert float(rows[-1]["bound"]) > 200
    assert float(rows[-1]["tasks"]) > 10
    assert float(rows[-1]["descriptors"]) > 5
    assert "<polyline" in (tmp_path / "soak.html").read_text()
    assert "rss_mb" in done.stdout
