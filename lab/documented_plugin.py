"""The plugin of docs/custom_kinds.md, installed as a package of its own."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

import pytest

PAGE: Final = Path(__file__).parents[1] / "docs" / "custom_kinds.md"


def examples() -> list[str]:
    """The Python examples of the page: the plugin first, then its test."""
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Install the plugin for the programs that are started next; gives what enables it."""
    info = folder / "release_gate-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "release_gate.py").write_text(examples()[0])
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: release_gate\nVersion: 1.0\n")
    points = "[ksched.plugins]\nReleaseGate = release_gate:ReleaseGate\n"
    (info / "entry_points.txt").write_text(points)
    path = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{path}")
    return {"multiPoint": {"enabled": [{"name": "ReleaseGate"}]}}
