"""docs/devices.md: its manifests are scheduled, and its test is run as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from ksched.testing import cluster

PAGE = (Path(__file__).parents[1] / "docs" / "devices.md").read_text()
BLOCKS = dict(reversed(re.findall(r"```(yaml|python)\n(.*?)```", PAGE, re.DOTALL)))
"""The first of each language."""


async def test_the_page_s_test_passes_with_its_manifests() -> None:
    names: dict[str, Any] = {
        "cluster": cluster,
        "manifests": list(yaml.safe_load_all(BLOCKS["yaml"])),
    }
    exec(BLOCKS["python"], names)
    await names["test_training_gets_two_devices"]()
