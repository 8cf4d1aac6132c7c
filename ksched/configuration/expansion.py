"""A profile's plugins as one list per extension point, with weights and arguments.

Runs when the registered plugins are known: ``multiPoint`` is spread over the points that each
plugin implements (pkg/scheduler/framework/runtime/framework.go: expandMultiPointPlugins, v1.36).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ksched.configuration.extension_points import (
    BIND,
    EXTENSION_POINTS,
    PERMIT,
    PLACEMENT_GENERATE,
    PRE_ENQUEUE,
    PRE_FILTER,
    QUEUE_SORT,
    SCORE,
    ExtensionPoint,
)
from ksched.configuration.merging import is_missing
from ksched.configuration.model import Profile, SchedulerConfiguration
from ksched.configuration.plugin_args import ARGS, NodeResourcesFitArgs, PluginArgs
from ksched.configuration.plugins import ALL, MULTI_POINT, Plugins, PluginSet
from ksched.errors import ConfigError

MAX_NODE_SCORE: Final = 100
_MAX_TOTAL_SCORE: Final = 2**63 - 1
# kube-scheduler fills these last (getExtensionPoints), which orders the problems.
_LAST: Final = (PERMIT, PRE_ENQUEUE, QUEUE_SORT)

Implements = Callable[[str, ExtensionPoint], bool]
"""Whether the plugin of this name implements the extension point."""


class PluginWeight(NamedTuple):
    """A plugin in calling order; ``weight`` is 0 at points that do not score."""

    name: str
    weight: int


def plugin_args(profile: Profile, name: str) -> PluginArgs | dict[str, Any] | None:
    """Return the arguments of a plugin: configured, else its defaults, else None.

    Out-of-tree plugins get the file's content, undecoded.
    """
    for config in profile.plugin_config:
        if config.name == name:
            return config.args
    return ARGS[name]() if name in ARGS else None


def ignore_extender_resources(configuration: SchedulerConfiguration) -> SchedulerConfiguration:
    """Make NodeResourcesFit ignore what extenders manage with ``ignoredByScheduler``.

    As in kube-scheduler, the extenders' names replace the profile's own ``ignoredResources``.
    """
    ignored = tuple(
        resource.name
        for extender in configuration.extenders
        for resource in extender.managed_resources
        if resource.ignored_by_scheduler
    )
    if not ignored:
        return configuration
    profiles = tuple(
        profile.with_args(NodeResourcesFitArgs, {"ignored_resources": ignored})
        for profile in configuration.profiles
    )
    return configuration.model_copy(update={"profiles": profiles})


def expand_profile(
    profile: Profile, available: Collection[str], implements: Implements
) -> dict[str, list[PluginWeight]]:
    """Return the plugins of every extension point in calling order, keyed by camelCase name.

    ``available`` are the names of the registered plugins. A plugin of kube-scheduler's default list
    that is not among them is omitted from ``multiPoint``, so that a configuration written by
    kube-scheduler can be used; any other name must exist. Raises ``ConfigError`` with all problems.

    kube-scheduler: expandMultiPointPlugins, updatePluginList, pluginsNeeded.
    """
    problems: list[str] = []
    multi_point = _available_multi_point(profile.plugins, available, problems)
    expanded: dict[str, list[PluginWeight]] = {}
    for point in sorted(EXTENSION_POINTS, key=_LAST.__contains__):
        own = profile.plugins.at(point.key)
        names = _specific(point, own, available, implements, problems)
        if not any(plugin.name == ALL for plugin in own.disabled):
            names = _expand_point(point, own, names, multi_point, implements, problems)
        weights = _weights(profile.plugins, point.key) if point.has_weights else {}
        expanded[point.key] = [PluginWeight(name, weights.get(name, 0)) for name in names]
    problems += _broken_counts(profile.scheduler_name, expanded)
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return expanded


def _available_multi_point(
    plugins: Plugins, available: Collection[str], problems: list[str]
) -> list[str]:
    names = []
    for plugin in plugins.multi_point.enabled:
        if plugin.name in available:
            names.append(plugin.name)
        elif is_missing(MULTI_POINT, plugin.name, available):
            problems.append(f'{PRE_FILTER.interface} "{plugin.name}" does not exist')
    return names


def _specific(
    point: ExtensionPoint,
    own: PluginSet,
    available: Collection[str],
    implements: Implements,
    problems: list[str],
) -> list[str]:
    """Names enabled at the point itself."""
    names: list[str] = []
    interface = point.interface
    for plugin in own.enabled:
        if is_missing(point.key, plugin.name, available):
            problems.append(f'{interface} "{plugin.name}" does not exist')
        elif not implements(plugin.name, point):
            problems.append(f'plugin "{plugin.name}" does not extend {interface} plugin')
        elif plugin.name in names:
            problems.append(f'plugin "{plugin.name}" already registered as "{interface}"')
        else:
            names.append(plugin.name)
    return names


def _expand_point(
    point: ExtensionPoint,
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
        f'plugin "{name}" already registered as "{point.interface}"'
        for name, count in Counter(expanded).items()
        if count > 1
    ]
    return [*overrides, *expanded, *(name for name in specific if name not in overrides)]


def _weights(plugins: Plugins, point: str) -> Mapping[str, int]:
    """The point's own weights win over multiPoint's, the first entry of a name over later ones.

    kube-scheduler: getValidScoreWeights.
    """
    weights: dict[str, int] = {}
    for plugin in (*plugins.at(point).enabled, *plugins.multi_point.enabled):
        weights.setdefault(plugin.name, plugin.weight or 1)
    return weights


def _broken_counts(
    scheduler_name: str, expanded: Mapping[str, Sequence[PluginWeight]]
) -> list[str]:
    profile = f'profile with scheduler name "{scheduler_name}"'
    problems = []
    sorts = len(expanded[QUEUE_SORT.key])
    if sorts != 1:
        problems.append(f"only one queue sort plugin required for {profile}, but got {sorts}")
    if not expanded[BIND.key]:
        problems.append(f"at least one bind plugin is needed for {profile}")
    if len(expanded[PLACEMENT_GENERATE.key]) > 1:
        problems.append(f"at most one placement generate plugin is allowed for {profile}")
    if sum(plugin.weight for plugin in expanded[SCORE.key]) * MAX_NODE_SCORE > _MAX_TOTAL_SCORE:
        problems.append("total score of Score plugins could overflow")
    return problems


def queue_sort_problems(
    configuration: SchedulerConfiguration,
    expanded: Mapping[str, Mapping[str, Sequence[PluginWeight]]],
) -> list[str]:
    """Return problems of profiles whose queue sort differs from the first: there is one queue."""
    problems = []
    first_sort, first_args = "", None
    for profile in configuration.profiles:
        name = profile.scheduler_name
        sort = expanded[name][QUEUE_SORT.key][0].name
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
