"""An installed package with a plugin that hangs on the pods called ``victim``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

_PLUGIN: Final = """
import time

from ksched.framework import SUCCESS


def hang(pod):
    while pod.name == "victim":
        pass


def dawdle(pod):
    if pod.name == "victim":
        time.sleep(1.3)


class Base:
    name = "Hangs"

    def __init__(self, args, handle):
        pass


class Filter(Base):
    def filter(self, state, pod, node):
        hang(pod)
        return SUCCESS


class AsyncPreFilter(Base):
    async def pre_filter(self, state, pod, snapshot):
        hang(pod)
        return SUCCESS


class PreBind(Base):
    def pre_bind(self, state, pod, node_name):
        hang(pod)
        return SUCCESS


class PreEnqueue(Base):
    def pre_enqueue(self, pod):
        hang(pod)
        return SUCCESS


class Dawdle(Base):
    def filter(self, state, pod, node):
        dawdle(pod)
        return SUCCESS
"""
_CLASSES: Final = {
    "filter": ("Filter", "filter"),
    "async_pre_filter": ("AsyncPreFilter", "preFilter"),
    "pre_bind": ("PreBind", "preBind"),
    "pre_enqueue": ("PreEnqueue", "preEnqueue"),
    "dawdle": ("Dawdle", "filter"),
}


def install(folder: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Install the plugin for the programs that are started next; gives what enables it."""
    packages = folder / "packages"
    info = packages / "hangs-1.0.dist-info"
    info.mkdir(parents=True)
    kind, point = _CLASSES[how]
    (packages / "hangs.py").write_text(_PLUGIN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hangs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[ksched.plugins]\nHangs = hangs:{kind}\n")
    path = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", f"{packages}{os.pathsep}{path}")
    return {point: {"enabled": [{"name": "Hangs"}]}}
