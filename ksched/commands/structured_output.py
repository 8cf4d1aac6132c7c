"""Reports for programs: JSON and YAML."""

from __future__ import annotations

from typing import Any


def structured(report: Any, output: str) -> str:
    """A struct as ``json`` or ``yaml``."""
    import msgspec

    if output == "yaml":
        return msgspec.yaml.encode(report).decode().rstrip()
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()
