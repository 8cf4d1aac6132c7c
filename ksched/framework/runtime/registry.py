"""Plugins by name: in-tree, from installed packages, from the embedding program."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from ksched.errors import ConfigError
from ksched.framework.handle import PluginFactory
from ksched.framework.plugins.in_tree import IN_TREE
from ksched.framework.runtime.installed_plugins import InstalledPlugin, Offer, offers

log = logging.getLogger(__name__)

Registry = Mapping[str, PluginFactory]


def merge(*registries: Registry) -> dict[str, PluginFactory]:
    """Combine registries; two factories of one name are an error, whatever their order.

    Installed plugins yield: to in-tree plugins, and to those that a program passes.
    """
    merged: dict[str, PluginFactory] = {}
    for registry in registries:
        for name, factory in registry.items():
            if not isinstance(name, str):
                raise ConfigError([f"a plugin's name must be text, got {name!r:.100}"])
            known = merged.get(name)
            if known is not None and isinstance(factory, InstalledPlugin):
                packages = ", ".join(str(offer) for offer in factory.offers)
                fields = {"plugin": name, "package": packages}
                log.warning("installed plugin is ignored, its name is taken", extra=fields)
                continue
            if known is not None and not isinstance(known, InstalledPlugin):
                raise ConfigError([f'a plugin named "{name}" already exists'])
            merged[name] = factory
    return merged


def installed() -> dict[str, InstalledPlugin]:
    """Return all plugins of installed packages by name; imports none of them."""
    by_name: dict[str, tuple[Offer, ...]] = {}
    for offer in offers():
        if offer.name:
            by_name[offer.name] = (*by_name.get(offer.name, ()), offer)
    return {name: InstalledPlugin(found) for name, found in by_name.items()}


def available() -> frozenset[str]:
    """Names that a configuration file may use: in-tree plugins and those of installed packages.

    Loads none of them.
    """
    return frozenset([*IN_TREE, *installed()])


def import_plugins(registry: Registry, names: Iterable[str]) -> None:
    """Import the packages of these plugins, which may take long; whoever builds one tells why not.

    To be called in a thread.
    """
    for name in names:
        factory = registry.get(name)
        if isinstance(factory, InstalledPlugin):
            try:
                factory.load()
            except ConfigError:
                continue
