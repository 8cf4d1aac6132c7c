"""Merges a profile's enabled and disabled lists with the default plugins (mergePlugins)."""

from __future__ import annotations

from collections.abc import Collection

from ksched.configuration.defaults import DEFAULT_PLUGIN_NAMES, DEFAULT_PLUGINS
from ksched.configuration.plugin_args import ARGS, PluginArgs
from ksched.configuration.plugins import ALL, MULTI_POINT, Plugin, Plugins, PluginSet


def merge_plugins(custom: Plugins) -> Plugins:
    """Apply the user's enabled and disabled lists to the default plugins, point by point.

    Merging a merged configuration changes nothing, so that a configuration that was written out and
    loaded again means the same.
    """
    return Plugins.model_validate(
        {
            point: _merge(DEFAULT_PLUGINS.at(point), custom_set)
            for point, custom_set in custom.items()
        }
    )


def _merge(default: PluginSet, custom: PluginSet) -> PluginSet:
    disabled = {plugin.name for plugin in (*custom.disabled, *default.disabled)}
    # Of several entries with one name the last replaces the default; the others stay in the list
    # and are reported as duplicates when the profile is expanded.
    last = {plugin.name: index for index, plugin in enumerate(custom.enabled)}
    enabled: list[Plugin] = []
    replaced: set[int] = set()
    for plugin in () if ALL in disabled else default.enabled:
        index = last.get(plugin.name)
        if plugin.name in disabled:
            continue
        if index is None:
            enabled.append(plugin)
        else:
            replaced.add(index)
            enabled.append(custom.enabled[index])
    enabled += [plugin for i, plugin in enumerate(custom.enabled) if i not in replaced]
    # Preserved for the expansion, which omits these multiPoint plugins from this point.
    return PluginSet(enabled=tuple(enabled), disabled=(*custom.disabled, *default.disabled))


def default_args(plugins: Plugins, configured: Collection[str]) -> dict[str, PluginArgs]:
    """Return default arguments, by name, of enabled plugins without configured ones."""
    enabled = {plugin.name for _, plugin_set in plugins.items() for plugin in plugin_set.enabled}
    return {name: ARGS[name]() for name in sorted(enabled & ARGS.keys() - set(configured))}


def is_missing(point: str, name: str, available: Collection[str]) -> bool:
    """Whether a plugin enabled at a point, or at ``multiPoint``, has to exist and does not."""
    if name in available:
        return False
    return point != MULTI_POINT or name not in DEFAULT_PLUGIN_NAMES
