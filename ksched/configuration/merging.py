"""How a profile's plugins and the default plugins make one list per extension point.

Two steps, as upstream. ``merge_plugins`` runs when a profile is built: defaults live in
``multiPoint``, and the user's ``disabled`` and ``enabled`` lists change them there.
``expand_profile`` runs when the plugins are known: it spreads ``multiPoint`` over the points that
each plugin implements (pkg/scheduler/framework/runtime/framework.go: expandMultiPointPlugins,
v1.36).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ksched.configuration.defaults import DEFAULT_PLUGIN_NAMES, DEFAULT_PLUGINS
from ksched.configuration.plugin_args import ARGS, NodeResourcesFitArgs, PluginArgs
from ksched.configuration.plugins import (
    ALL,
    EXTENSION_POINTS,
    Plugin,
    Plugins,
    PluginSet,
    interface_name,
)
from ksched.errors import ConfigError

if TYPE_CHECKING:
    from ksched.configuration.model import Profile, SchedulerConfiguration

MULTI_POINT: Final = "multiPoint"
MAX_NODE_SCORE: Final = 100
_MAX_TOTAL_SCORE: Final = 2**63 - 1
_WEIGHTED_POINTS: Final = ("score", "placementScore")

Implements = Callable[[str, str], bool]
"""Does the plugin of this name implement the extension point of this camelCase name?"""


class PluginWeight(NamedTuple):
    """A plugin in calling order; ``weight`` is 0 at points that do not score."""

    name: str
    weight: int


# -- defaults -----------------------------------------------------------------------------------


def merge_plugins(custom: Plugins) -> Plugins:
    """Apply the user's enabled and disabled lists to the default plugins, point by point.

    Merging a merged configuration changes nothing, so a configuration that was written out and is
    read again means the same.
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
    # and are refused as duplicates when the profile is expanded.
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
    # Kept, so that the expansion knows which multiPoint plugins to leave out of this point.
    return PluginSet(enabled=tuple(enabled), disabled=(*custom.disabled, *default.disabled))


def default_args(plugins: Plugins, configured: Collection[str]) -> dict[str, PluginArgs]:
    """Default arguments, by name, of every enabled plugin that takes some and was given none."""
    enabled = {plugin.name for _, plugin_set in plugins.items() for plugin in plugin_set.enabled}
    return {name: ARGS[name]() for name in sorted(enabled & ARGS.keys() - set(configured))}


def plugin_args(profile: Profile, name: str) -> PluginArgs | dict[str, Any] | None:
    """The arguments of a plugin: configured, else its defaults, else None.

    Out-of-tree plugins get what the file says, undecoded.
    """
    for config in profile.plugin_config:
        if config.name == name:
            return config.args
    return ARGS[name]() if name in ARGS else None


def ignore_extender_resources(configuration: SchedulerConfiguration) -> SchedulerConfiguration:
    """Make NodeResourcesFit ignore what extenders manage with ``ignoredByScheduler``.

    As upstream, the extenders' names replace the profile's own ``ignoredResources``.
    """
    ignored = tuple(
        resource.name
        for extender in configuration.extenders
        for resource in extender.managed_resources
        if resource.ignored_by_scheduler
    )
    if not ignored:
        return configuration
    profiles = []
    for profile in configuration.profiles:
        configs = tuple(
            config.model_copy(
                update={"args": config.args.model_copy(update={"ignored_resources": ignored})}
            )
            if isinstance(config.args, NodeResourcesFitArgs)
            else config
            for config in profile.plugin_config
        )
        profiles.append(profile.model_copy(update={"plugin_config": configs}))
    return configuration.model_copy(update={"profiles": tuple(profiles)})


# -- expansion ----------------------------------------------------------------------------------


def expand_profile(
    profile: Profile, available: Collection[str], implements: Implements
) -> dict[str, list[PluginWeight]]:
    """The plugins of every extension point in calling order, keyed by the point's camelCase name.

    ``available`` are the names of the registered plugins. A plugin of upstream's default list that
    is not among them is left out of ``multiPoint``, so that a configuration written out by
    kube-scheduler can be used; any other name must exist. Raises ``ConfigError`` with all problems.
    """
    problems: list[str] = []
    multi_point = _available_multi_point(profile.plugins, available, problems)
    expanded: dict[str, list[PluginWeight]] = {}
    for point in EXTENSION_POINTS:
        own = profile.plugins.at(point)
        names = _specific(point, own, available, implements, problems)
        if not any(plugin.name == ALL for plugin in own.disabled):
            names = _expand_point(point, own, names, multi_point, implements, problems)
        weights = _weights(profile.plugins, point) if point in _WEIGHTED_POINTS else {}
        expanded[point] = [PluginWeight(name, weights.get(name, 0)) for name in names]
    problems += _broken_counts(profile.scheduler_name, expanded)
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return expanded


def is_missing(point: str, name: str, available: Collection[str]) -> bool:
    """Whether a plugin enabled at a point, or at ``multiPoint``, has to exist and does not."""
    if name in available:
        return False
    return point != MULTI_POINT or name not in DEFAULT_PLUGIN_NAMES


def _available_multi_point(
    plugins: Plugins, available: Collection[str], problems: list[str]
) -> list[str]:
    names = []
    for plugin in plugins.multi_point.enabled:
        if plugin.name in available:
            names.append(plugin.name)
        elif is_missing(MULTI_POINT, plugin.name, available):
            interface = interface_name(EXTENSION_POINTS[0])
            problems.append(f'{interface} "{plugin.name}" does not exist')
    return names


def _specific(
    point: str,
    own: PluginSet,
    available: Collection[str],
    implements: Implements,
    problems: list[str],
) -> list[str]:
    """Names enabled at the point itself."""
    names: list[str] = []
    interface = interface_name(point)
    for plugin in own.enabled:
        if is_missing(point, plugin.name, available):
            problems.append(f'{interface} "{plugin.name}" does not exist')
        elif not implements(plugin.name, point):
            problems.append(f'plugin "{plugin.name}" does not extend {interface} plugin')
        elif plugin.name in names:
            problems.append(f'plugin "{plugin.name}" already registered as "{interface}"')
        else:
            names.append(plugin.name)
    return names


def _expand_point(
    point: str,
    own: PluginSet,
    specific: Sequence[str],
    multi_point: Sequence[str],
    implements: Implements,
    problems: list[str],
) -> list[str]:
    """Specific plugins that override multiPoint, then multiPoint, then the other specific ones."""
    disabled = {plugin.name for plugin in own.disabled}
    wanted = [name for name in multi_point if name not in disabled and implements(name, point)]
    overrides = [name for name in specific if name in wanted]
    expanded = [name for name in wanted if name not in specific]
    problems += [
        f'plugin "{name}" already registered as "{interface_name(point)}"'
        for name, count in Counter(expanded).items()
        if count > 1
    ]
    return [*overrides, *expanded, *(name for name in specific if name not in overrides)]


def _weights(plugins: Plugins, point: str) -> Mapping[str, int]:
    """The point's own weights win over multiPoint's, the first entry of a name over later ones."""
    weights: dict[str, int] = {}
    for plugin in (*plugins.at(point).enabled, *plugins.multi_point.enabled):
        weights.setdefault(plugin.name, plugin.weight or 1)
    return weights


def _broken_counts(
    scheduler_name: str, expanded: Mapping[str, Sequence[PluginWeight]]
) -> list[str]:
    profile = f'profile with scheduler name "{scheduler_name}"'
    problems = []
    sorts = len(expanded["queueSort"])
    if sorts != 1:
        problems.append(f"only one queue sort plugin required for {profile}, but got {sorts}")
    if not expanded["bind"]:
        problems.append(f"at least one bind plugin is needed for {profile}")
    if len(expanded["placementGenerate"]) > 1:
        problems.append(f"at most one placement generate plugin is allowed for {profile}")
    if sum(plugin.weight for plugin in expanded["score"]) * MAX_NODE_SCORE > _MAX_TOTAL_SCORE:
        problems.append("total score of Score plugins could overflow")
    return problems


def queue_sort_problems(
    configuration: SchedulerConfiguration,
    expanded: Mapping[str, Mapping[str, Sequence[PluginWeight]]],
) -> list[str]:
    """Profiles, by name, that do not sort the queue as the first does: there is one queue."""
    problems = []
    first_sort, first_args = "", None
    for profile in configuration.profiles:
        name = profile.scheduler_name
        sort = expanded[name]["queueSort"][0].name
        args = plugin_args(profile, sort)
        if not first_sort:
            first_sort, first_args = sort, args
        elif sort != first_sort:
            problems.append(
                f'different queue sort plugins for profile "{name}": "{sort}", '
                f'first: "{first_sort}"'
            )
        elif args != first_args:
            problems.append(f'different queue sort plugin args for profile "{name}"')
    return problems
