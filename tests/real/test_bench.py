from __future__ import annotations

import subprocess
import sys

import pytest

from lab.assets import Assets

pytestmark = pytest.mark.real


def output_of(module: str, options: str, seconds: float) -> str:
    done = subprocess.run(
        [sys.executable, "-m", module, *options.split()],
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_benchmark_prints_a_table_for_kube_scheduler(assets: Assets) -> None:
    options = "--schedulers kube-scheduler --nodes 20 --pods 30 --workloads spread --seconds 0"
    printed = output_of("bench", options, 100)
    header, _, spread, binds, events = printed.splitlines()[-5:]
    assert header.split()[:4] == ["workload", "scheduler", "bound", "pods/s"]
    assert spread.split()[:3] == ["spread", "kube-scheduler", "30/30"]
    assert float(binds.split()[-1]) > 0
    assert float(events.split()[-1]) > 0


def test_pods_held_at_permit_are_bound_beside_each_other(assets: Assets) -> None:
    options = "--nodes 20 --burst 30 --crowd 40 --duration 1 --rate 10 --rounds 1 --timeout 30"
    printed = output_of("bench.permit", options, 150)
    # One after the other they would take a minute.
    assert ", 30 bound " in printed
    assert "SIGTERM to exit with code 0" in printed


def test_gangs_that_evict_are_bound(assets: Assets) -> None:
    options = "--schedulers ksched --cases evict-10x10 --timeout 60"
    printed = output_of("bench.gangs", options, 200)
    lines = [line.split() for line in printed.splitlines()]
    [ours] = [line for line in lines if "ksched" in line]
    assert ours[:4] == ["evict", "10x10", "ksched", "100/100"]
