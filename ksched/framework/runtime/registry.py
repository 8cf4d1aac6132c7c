"""Plugins by name: in-tree, from installed packages, from the embedding program."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points

from ksched.errors import ConfigError
from ksched.framework.handle import PluginFactory
from ksched.framework.plugins.in_tree import IN_TREE

Registry = Mapping[str, PluginFactory]

ENTRY_POINT_GROUP = "ksched.plugins"


def merge(*registries: Registry) -> dict[str, PluginFactory]:
    """Combine registries; two factories of one name are refused, whoever came first."""
    merged: dict[str, PluginFactory] = {}
    for registry in registries:
        for name, factory in registry.items():
            if not isinstance(name, str):
                raise ConfigError([f"a plugin's name must be text, got {name!r:.100}"])
            if name in merged:
                raise ConfigError([f'a plugin named "{name}" already exists'])
            merged[name] = factory
    return merged


def available() -> frozenset[str]:
    """Names that a configuration file may use: in-tree plugins and those of installed packages.

    Loads none of them.
    """
    return frozenset([*IN_TREE, *(point.name for point in entry_points(group=ENTRY_POINT_GROUP))])


def installed() -> dict[str, PluginFactory]:
    """Factories that installed packages offer under the entry-point group ``ksched.plugins``."""
    found: dict[str, PluginFactory] = {}
    for point in entry_points(group=ENTRY_POINT_GROUP):
        try:
            found[point.name] = point.load()
        except Exception as problem:
            text = f'plugin "{point.name}" ({point.value}): cannot be loaded: {problem}'
            raise ConfigError([text]) from problem
    return found
