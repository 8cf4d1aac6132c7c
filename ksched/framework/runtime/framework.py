"""The plugins of one profile, sorted by extension point and ready to be called."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from ksched.configuration.declared_args import declared_args
from ksched.configuration.expansion import expand_profile, plugin_args
from ksched.configuration.extension_points import (
    EXTENSION_POINTS,
    FILTER,
    OPTIONAL,
    PRE_FILTER,
    QUEUE_SORT,
    SCORE,
    ExtensionPoint,
)
from ksched.configuration.model import Profile
from ksched.errors import ConfigError
from ksched.framework.cycle_state import CycleState
from ksched.framework.depends_on import FilterDependsOn, ScoreDependsOn
from ksched.framework.handle import Handle, PluginFactory
from ksched.framework.runtime.filter_columns import FilterEntry
from ksched.framework.runtime.guard import Hook
from ksched.framework.runtime.installed_plugins import InstalledPlugin
from ksched.framework.runtime.plugin_contract import find_problems, implementation
from ksched.framework.runtime.registry import Registry
from ksched.framework.runtime.score_columns import ScoreEntry
from ksched.framework.status import Status
from ksched.framework.untrusted_values import safe_error_text, safe_repr

log = logging.getLogger(__name__)

NO_PLUGINS: Final[Mapping[str, Any]] = MappingProxyType({})


class Framework:
    """The hooks of a profile at each extension point, in calling order.

    ``kept`` are plugins that exist already, by name; the others are built.

    kube-scheduler: frameworkImpl, NewFramework.
    """

    def __init__(
        self,
        profile: Profile,
        registry: Registry,
        handle: Handle,
        kept: Mapping[str, Any] = NO_PLUGINS,
    ) -> None:
        self.name = profile.scheduler_name
        self.configuration = profile
        self.plugins = _instantiate(profile, registry, handle, kept)

        def implements(name: str, point: ExtensionPoint) -> bool:
            plugin = self.plugins.get(name)
            return plugin is not None and implementation(plugin, point) is not None

        self.points = expand_profile(profile, registry.keys(), implements)
        self.hooks = {point: self._hooks(point) for point in EXTENSION_POINTS}
        self.queue_sort = self.hooks[QUEUE_SORT][0]
        self.queue_rank = next(iter(self._optional("rank")), None)
        self.filters = [
            self._filter_entry(position, hook) for position, hook in enumerate(self.hooks[FILTER])
        ]
        self.scores = [
            self._score_entry(hook, weighted.weight)
            for hook, weighted in zip(self.hooks[SCORE], self.points[SCORE.key], strict=True)
        ]
        self.unreserve = self._optional("unreserve")[::-1]
        self.pre_flight = {hook.plugin: hook for hook in self._optional("pre_bind_pre_flight")}
        self.groups = self._groups()
        declared: list[FilterDependsOn | ScoreDependsOn] = []
        declared += [entry.depends_on for entry in self.filters]
        declared += [entry.depends_on for entry in self.scores]
        self.reads_claim_names = any(one.is_cached and one.reads_claim_names for one in declared)
        """Whether a plugin with cached results tells pods apart by the names of their claims."""
        self.sweeps = [
            Hook(plugin, plugin.sweep, "Sweep")
            for plugin in self.plugins.values()
            if hasattr(plugin, "sweep")
        ]
        self.add_pod = self._optional("add_pod")
        self.remove_pod = self._optional("remove_pod")

    def plugins_kept_for(self, profile: Profile) -> dict[str, Any]:
        """The plugins that a changed profile has with the same arguments: they keep their state.

        Not those that cache what the filters of other plugins returned.
        """
        return {
            name: plugin
            for name, plugin in self.plugins.items()
            if plugin_args(self.configuration, name) == plugin_args(profile, name)
            and not getattr(plugin, "is_rebuilt_on_reload", False)
        }

    def stopped_by(self, rejecting: Hook, state: CycleState, status: Status) -> Status:
        """Note which PreFilter plugins are not called after a rejection, and return its status."""
        names = [hook.plugin for hook in self.hooks[PRE_FILTER]]
        state.not_asked = frozenset(names[names.index(rejecting.plugin) + 1 :])
        return status

    def _groups(self) -> list[Hook] | None:
        """How plugins with cached results group pods; ``None``: by template."""
        declared: list[FilterDependsOn | ScoreDependsOn] = []
        declared += [entry.depends_on for entry in self.filters if entry.group is None]
        declared += [entry.depends_on for entry in self.scores]
        if any(one.is_cached and one.reads_inter_pod_fields for one in declared):
            return None
        return [entry.group for entry in self.filters if entry.group is not None]

    def _hooks(self, point: ExtensionPoint) -> list[Hook]:
        hooks = []
        for name, _ in self.points[point.key]:
            plugin = self.plugins[name]
            method = implementation(plugin, point)
            assert method is not None
            hooks.append(Hook(plugin, method, point.label))
        return hooks

    def _optional(self, method: str) -> list[Hook]:
        """An optional method of those plugins that have it, in the order of its point."""
        point, label = OPTIONAL[method]
        plugins = [self.plugins[hook.plugin] for hook in self.hooks[point]]
        return [
            Hook(plugin, getattr(plugin, method), label)
            for plugin in plugins
            if hasattr(plugin, method)
        ]

    def _filter_entry(self, position: int, hook: Hook) -> FilterEntry:
        plugin = self.plugins[hook.plugin]
        declared: FilterDependsOn = getattr(plugin, "filter_depends_on", FilterDependsOn())
        return FilterEntry(
            position,
            hook,
            declared,
            hasattr(plugin, "filter_nodes"),
            epoch=Hook(plugin, declared.epoch, FILTER.label) if declared.epoch else None,
            changes=Hook(plugin, declared.changes, FILTER.label) if declared.changes else None,
            group=Hook(plugin, declared.group, FILTER.label) if declared.group else None,
        )

    def _score_entry(self, hook: Hook, weight: int) -> ScoreEntry:
        plugin = self.plugins[hook.plugin]
        declared: ScoreDependsOn = getattr(plugin, "score_depends_on", ScoreDependsOn())
        normalize = getattr(plugin, "normalize", None)
        return ScoreEntry(
            hook,
            weight,
            declared,
            hasattr(plugin, "score_nodes"),
            normalize=Hook(plugin, normalize, SCORE.label) if normalize is not None else None,
            epoch=Hook(plugin, declared.epoch, SCORE.label) if declared.epoch else None,
        )


def enabled_plugins(profile: Profile) -> list[str]:
    """The names of the plugins that are built for a profile, in order."""
    return list(
        dict.fromkeys(
            plugin.name for _, points in profile.plugins.items() for plugin in points.enabled
        )
    )


def _instantiate(
    profile: Profile, registry: Registry, handle: Handle, kept: Mapping[str, Any]
) -> dict[str, Any]:
    plugins: dict[str, Any] = {}
    problems: list[str] = []
    for name in enabled_plugins(profile):
        if name in kept:
            plugins[name] = kept[name]
            continue
        factory = registry.get(name)
        if factory is None:
            continue
        try:
            plugins[name] = build_plugin(name, factory, profile, handle)
        except ConfigError as problem:
            problems += problem.problems
    if problems:
        raise ConfigError(problems)
    return plugins


def build_plugin(name: str, factory: PluginFactory, profile: Profile, handle: Handle) -> Any:
    """A plugin that can be called, or ``ConfigError`` with what is wrong with it.

    Its arguments are those of the profile, decoded if the factory declares ``args_model``.
    """
    followed: list[Callable[[], None]] = []
    try:
        if isinstance(factory, InstalledPlugin):
            factory = factory.load()
        args: Any = plugin_args(profile, name)
        model = getattr(factory, "args_model", None)
        if model is not None:
            args = declared_args(model, profile, name)
        with handle.listers.collecting() as followed:
            plugin = factory(args, handle)
        problems = [f'plugin "{name}": {problem}' for problem in find_problems(name, plugin)]
        if model is None and hasattr(plugin, "args_model"):
            text = f"args_model has no effect on what {safe_repr(factory)} returns, set it there"
            problems.append(f'plugin "{name}": {text}')
    except (ValueError, TypeError, KeyError, ConfigError) as problem:
        # Their texts alone: an exception that this frame keeps would keep this frame.
        texts = problem.problems if isinstance(problem, ConfigError) else (str(problem),)
        problems = [f'initializing plugin "{name}": {text}' for text in texts]
    except (Exception, SystemExit) as problem:
        log.exception("plugin cannot be built", extra={"plugin": name})
        problems = [f'initializing plugin "{name}": {safe_error_text(problem)}']
    if problems:
        for end in followed:
            end()
        raise ConfigError(problems)
    handle.listers.own(plugin, followed)
    return plugin
