"""The schedulers that take turns, each under its own user and with the same configuration."""

from __future__ import annotations

import argparse
import compileall
from collections.abc import Callable
from pathlib import Path

import ksched
from lab.child_process import ChildProcess
from lab.control_plane import ControlPlane

KUBE_SCHEDULER = "kube-scheduler"
KSCHED = "ksched"
CONFIG = Path(__file__).parent.parent / "config"
RBAC = CONFIG / "rbac.yaml"
SOURCES = Path(ksched.__file__).parent

Start = Callable[..., ChildProcess]
"""Starts a scheduler; ``config`` may replace top-level keys of its configuration."""


def add_schedulers(parser: argparse.ArgumentParser) -> None:
    """Let the user choose the schedulers that are measured."""
    known = (KUBE_SCHEDULER, KSCHED)
    parser.add_argument("--schedulers", nargs="*", choices=known, default=list(known))


def starters(plane: ControlPlane, names: list[str]) -> dict[str, Start]:
    """A function for every name that starts this scheduler."""
    if KSCHED in names:
        # As in the image; a start that compiles its modules takes twice as long.
        compileall.compile_dir(SOURCES, quiet=1)
        plane.kubectl("apply", "-f", str(RBAC))
    known: dict[str, Start] = {KUBE_SCHEDULER: plane.kube_scheduler, KSCHED: plane.ksched}
    return {name: known[name] for name in names}
