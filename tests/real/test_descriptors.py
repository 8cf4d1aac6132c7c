"""Readers that open connections and say nothing, beside a scheduler on a real API server."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.workloads import node, pod
from lab.child_process import ChildProcess
from lab.control_plane import ControlPlane, free_ports

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
PATIENCE_SECONDS = 60.0


def test_pods_are_bound_beside_half_open_connections(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    plane = control_plane
    for index in range(3):
        assert plane.request("POST", NODES, node(index)).status == 201
    (port,) = free_ports(1)
    program = Path(sys.executable).with_name("ksched")
    command = ["sh", "-c", 'ulimit -n 1024; exec "$@"', "sh", str(program), "run"]
    command += ["--kubeconfig", str(plane.kubeconfig()), f"--secure-port={port}", "-v=2"]
    command += ["--insecure-loopback"]
    with ChildProcess("ksched", command, tmp_path / "ksched.log") as ksched, ExitStack() as open_:

        def until(condition: Callable[[], bool]) -> None:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not condition():
                assert time.monotonic() < deadline, ksched.log()[-3000:]
                ksched.must_run(0.05)

        until(lambda: '"scheduling"' in ksched.log())
        for _ in range(1100):
            open_.enter_context(socket.create_connection(("127.0.0.1", port)))
        for number in range(50):
            assert plane.request("POST", PODS, pod(number, "basic")).status == 201

        def all_bound() -> bool:
            items = plane.request("GET", PODS).body["items"]
            return len([item for item in items if item["spec"].get("nodeName")]) == 50

        until(all_bound)
        assert "Too many open files" not in ksched.log()
    for path in (PODS, NODES):
        assert plane.request("DELETE", f"{path}?gracePeriodSeconds=0").status == 200
