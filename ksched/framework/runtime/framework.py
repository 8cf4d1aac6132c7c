"""The plugins of one profile, sorted by extension point and ready to be called."""

from __future__ import annotations

import logging
from typing import Any

from ksched.configuration.expansion import PluginWeight, expand_profile, plugin_args
from ksched.configuration.model import Profile
from ksched.errors import ConfigError
from ksched.framework.depends_on import FilterDependsOn, ScoreDependsOn
from ksched.framework.handle import Handle, PluginFactory
from ksched.framework.runtime.filter_columns import FilterEntry
from ksched.framework.runtime.guard import Hook
from ksched.framework.runtime.plugin_contract import find_problems, implementation
from ksched.framework.runtime.registry import Registry
from ksched.framework.runtime.score_columns import ScoreEntry
from ksched.framework.untrusted_values import safe_error_text

log = logging.getLogger(__name__)


class Framework:
    """The hooks of a profile at each extension point, in calling order.

    kube-scheduler: frameworkImpl, NewFramework.
    """

    def __init__(self, profile: Profile, registry: Registry, handle: Handle) -> None:
        self.name = profile.scheduler_name
        self.plugins = _instantiate(profile, registry, handle)

        def implements(name: str, point: str) -> bool:
            plugin = self.plugins.get(name)
            return plugin is not None and implementation(plugin, point) is not None

        self.points = expand_profile(profile, registry.keys(), implements)
        self.pre_enqueue = self._hooks("preEnqueue", "PreEnqueue")
        self.queue_sort = self._hooks("queueSort", "QueueSort")[0]
        ranking = self.plugins[self.queue_sort.plugin]
        self.queue_rank = (
            Hook(ranking, ranking.rank, "QueueSort") if hasattr(ranking, "rank") else None
        )
        self.pre_filter = self._hooks("preFilter", "PreFilter")
        self.filters = [
            self._filter_entry(rank, self.plugins[name])
            for rank, (name, _) in enumerate(self.points["filter"])
        ]
        self.post_filter = self._hooks("postFilter", "PostFilter")
        self.pre_score = self._hooks("preScore", "PreScore")
        self.scores = [self._score_entry(weighted) for weighted in self.points["score"]]
        self.reserve = self._hooks("reserve", "Reserve")
        self.unreserve = [
            Hook(self.plugins[name], self.plugins[name].unreserve, "Unreserve")
            for name, _ in reversed(self.points["reserve"])
        ]
        self.permit = self._hooks("permit", "Permit")
        self.pre_bind = self._hooks("preBind", "PreBind")
        self.pre_flight = {
            hook.plugin: Hook(plugin, plugin.pre_bind_pre_flight, "PreBindPreFlight")
            for hook in self.pre_bind
            if hasattr(plugin := self.plugins[hook.plugin], "pre_bind_pre_flight")
        }
        self.bind = self._hooks("bind", "Bind")
        self.post_bind = self._hooks("postBind", "PostBind")
        self.groups = self._groups()
        self.sweeps = [
            Hook(plugin, plugin.sweep, "Sweep")
            for plugin in self.plugins.values()
            if hasattr(plugin, "sweep")
        ]
        self.add_pod = self._extensions("add_pod", "PreFilterExtensionAddPod")
        self.remove_pod = self._extensions("remove_pod", "PreFilterExtensionRemovePod")

    def _groups(self) -> list[Hook] | None:
        """How plugins with cached results group pods; ``None``: by template."""
        declared: list[FilterDependsOn | ScoreDependsOn] = []
        declared += [entry.depends_on for entry in self.filters if entry.group is None]
        declared += [entry.depends_on for entry in self.scores]
        if any(one.is_cached and one.reads_inter_pod_fields for one in declared):
            return None
        return [entry.group for entry in self.filters if entry.group is not None]

    def _hooks(self, point: str, label: str) -> list[Hook]:
        hooks = []
        for name, _ in self.points[point]:
            plugin = self.plugins[name]
            method = implementation(plugin, point)
            assert method is not None
            hooks.append(Hook(plugin, method, label))
        return hooks

    def _extensions(self, method: str, label: str) -> list[Hook]:
        plugins = [self.plugins[name] for name, _ in self.points["preFilter"]]
        return [
            Hook(plugin, getattr(plugin, method), label)
            for plugin in plugins
            if hasattr(plugin, method)
        ]

    def _filter_entry(self, rank: int, plugin: Any) -> FilterEntry:
        method = implementation(plugin, "filter")
        assert method is not None
        declared: FilterDependsOn = getattr(plugin, "filter_depends_on", FilterDependsOn())
        return FilterEntry(
            rank,
            Hook(plugin, method, "Filter"),
            declared,
            hasattr(plugin, "filter_nodes"),
            epoch=Hook(plugin, declared.epoch, "Filter") if declared.epoch else None,
            changes=Hook(plugin, declared.changes, "Filter") if declared.changes else None,
            group=Hook(plugin, declared.group, "Filter") if declared.group else None,
        )

    def _score_entry(self, weighted: PluginWeight) -> ScoreEntry:
        plugin = self.plugins[weighted.name]
        method = implementation(plugin, "score")
        assert method is not None
        declared: ScoreDependsOn = getattr(plugin, "score_depends_on", ScoreDependsOn())
        normalize = getattr(plugin, "normalize", None)
        return ScoreEntry(
            Hook(plugin, method, "Score"),
            weighted.weight,
            declared,
            hasattr(plugin, "score_nodes"),
            normalize=Hook(plugin, normalize, "Score") if normalize is not None else None,
            epoch=Hook(plugin, declared.epoch, "Score") if declared.epoch else None,
        )


def _instantiate(profile: Profile, registry: Registry, handle: Handle) -> dict[str, Any]:
    names = dict.fromkeys(
        plugin.name for _, points in profile.plugins.items() for plugin in points.enabled
    )
    plugins: dict[str, Any] = {}
    problems: list[str] = []
    for name in names:
        factory = registry.get(name)
        if factory is None:
            continue
        try:
            plugins[name] = build_plugin(name, factory, plugin_args(profile, name), handle)
        except ConfigError as problem:
            problems += problem.problems
    if problems:
        raise ConfigError(problems)
    return plugins


def build_plugin(name: str, factory: PluginFactory, args: Any, handle: Handle) -> Any:
    """Build a plugin and check its contract; ``ConfigError`` lists the problems."""
    try:
        plugin = factory(args, handle)
        problems = [f'plugin "{name}": {problem}' for problem in find_problems(name, plugin)]
    except (ValueError, TypeError, KeyError, ConfigError) as problem:
        problems = [f'initializing plugin "{name}": {problem}']
    except Exception as problem:
        log.exception("plugin cannot be built", extra={"plugin": name})
        problems = [f'initializing plugin "{name}": {safe_error_text(problem)}']
    if problems:
        raise ConfigError(problems)
    return plugin
