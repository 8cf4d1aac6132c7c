"""Contents of configuration files, as tests and trials write them."""

from __future__ import annotations

from typing import Any


def profile(**more: Any) -> dict[str, Any]:
    """A configuration with the default profile, and what ``more`` says about it."""
    return {"profiles": [{"schedulerName": "default-scheduler", **more}]}


def without(*plugins: str) -> dict[str, Any]:
    """A configuration without some plugins, at no extension point."""
    disabled = [{"name": name} for name in plugins]
    return profile(plugins={"multiPoint": {"disabled": disabled}})


def with_args(plugin: str, **args: Any) -> dict[str, Any]:
    """A configuration with arguments of one plugin."""
    return profile(pluginConfig=[{"name": plugin, "args": args}])
