"""How each scheduler is started, under its own user and with the same configuration."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from ksched.testing.child_process import ChildProcess
from ksched.testing.control_plane import ControlPlane, scheduler_config

KUBE_SCHEDULER = "kube-scheduler"
KSCHED = "ksched"
RBAC = Path(__file__).parent.parent / "config" / "rbac.yaml"

Start = Callable[[], ChildProcess]


def starters(plane: ControlPlane, names: list[str]) -> dict[str, Start]:
    """A function for every name that starts this scheduler."""
    if KSCHED in names:
        plane.kubectl("apply", "-f", str(RBAC))
    known: dict[str, Start] = {
        KUBE_SCHEDULER: plane.kube_scheduler,
        KSCHED: lambda: _start_ksched(plane),
    }
    return {name: known[name] for name in names}


def _start_ksched(plane: ControlPlane) -> ChildProcess:
    kubeconfig = plane.kubeconfig("ksched")
    config = plane.folder / "ksched.config.yaml"
    config.write_text(json.dumps(scheduler_config(kubeconfig), indent=2))
    program = Path(sys.executable).with_name("ksched")
    flags = ("--config", config, "--kubeconfig", kubeconfig, "--secure-port=0")
    return ChildProcess("ksched", (program, "run", *flags), plane.folder / "ksched.log")
