from __future__ import annotations

import subprocess
import sys

import pytest

from lab.assets import Assets

pytestmark = pytest.mark.real


def test_benchmark_prints_a_table_for_kube_scheduler(assets: Assets) -> None:
    options = "--schedulers kube-scheduler --nodes 20 --pods 30 --workloads spread --seconds 0"
    done = subprocess.run(
        [sys.executable, "-m", "bench", *options.split()],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )

    assert done.returncode == 0, done.stderr
    header, _, spread, binds, events = done.stdout.splitlines()[-5:]
    assert header.split()[:4] == ["workload", "scheduler", "bound", "pods/s"]
    assert spread.split()[:3] == ["spread", "kube-scheduler", "30/30"]
    assert float(binds.split()[-1]) > 0
    assert float(events.split()[-1]) > 0
