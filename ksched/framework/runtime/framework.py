"""The plugins of one profile, sorted by extension point and ready to be called."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ksched.configuration.merging import PluginWeight, expand_profile, plugin_args
from ksched.configuration.model import Profile
from ksched.errors import ConfigError
from ksched.framework.foreign import shown, told
from ksched.framework.handle import Handle
from ksched.framework.runtime.filter_columns import FilterEntry
from ksched.framework.runtime.guard import DEFAULT_PERMIT_CONCURRENCY, DEFAULT_TIMEOUT_SECONDS, Hook
from ksched.framework.runtime.registry import Registry
from ksched.framework.runtime.score_columns import ScoreEntry
from ksched.framework.verdicts import Scope

log = logging.getLogger(__name__)

METHODS: Mapping[str, tuple[str, ...]] = {
    "preEnqueue": ("pre_enqueue",),
    "queueSort": ("sort_key",),
    "preFilter": ("pre_filter",),
    "filter": ("filter_nodes", "filter"),
    "postFilter": ("post_filter",),
    "preScore": ("pre_score",),
    "score": ("score_nodes", "score"),
    "reserve": ("reserve",),
    "permit": ("permit",),
    "preBind": ("pre_bind",),
    "bind": ("bind",),
    "postBind": ("post_bind",),
}
"""The methods that make a plugin implement an extension point; the first one present counts."""

SYNCHRONOUS = (
    "events_to_register",
    "pre_enqueue",
    "sort_key",
    "rank",
    "add_pod",
    "remove_pod",
    "filter_nodes",
    "filter_changes",
    "filter_epoch",
    "filter_group",
    "filter",
    "pre_score",
    "score_nodes",
    "score",
    "score_epoch",
    "normalize",
    "unreserve",
)
"""Methods that may not be ``async def``: nothing waits for their answer."""


ALL_METHODS = frozenset(
    (*SYNCHRONOUS, *(name for names in METHODS.values() for name in names), "pre_bind_pre_flight")
)


def _nothing() -> None:
    """Stands for a method that a plugin does not have."""


def implementation(plugin: Any, point: str) -> Callable[..., Any] | None:
    for name in METHODS.get(point, ()):
        method: Callable[..., Any] | None = getattr(plugin, name, None)
        if method is not None:
            return method
    return None


class Framework:
    """What a profile runs at each extension point, in calling order."""

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
        """How plugins with kept answers sort pods of one shape; ``None``: by template."""
        kept = [entry.name for entry in self.filters if entry.is_cached and not entry.changes]
        kept += [entry.name for entry in self.scores if entry.is_cached]
        by_template = {name for name in kept if self._reads_relations(name)}
        groups = []
        for name in [entry.name for entry in self.filters if entry.changes]:
            plugin = self.plugins[name]
            if hasattr(plugin, "filter_group"):
                groups.append(Hook(plugin, plugin.filter_group, "Filter"))
            elif self._reads_relations(name):
                by_template.add(name)
        return None if by_template else groups

    def _reads_relations(self, name: str) -> bool:
        return bool(getattr(self.plugins[name], "reads_inter_pod_fields", True))

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
        is_columnar = hasattr(plugin, "filter_nodes")
        scope = getattr(plugin, "filter_scope", Scope.POD) if is_columnar else Scope.POD
        epoch = getattr(plugin, "filter_epoch", None)
        changes = getattr(plugin, "filter_changes", None)
        return FilterEntry(
            rank,
            Hook(plugin, method, "Filter"),
            scope,
            is_columnar,
            Hook(plugin, epoch, "Filter") if epoch is not None else None,
            Hook(plugin, changes, "Filter") if changes is not None else None,
        )

    def _score_entry(self, weighted: PluginWeight) -> ScoreEntry:
        plugin = self.plugins[weighted.name]
        method = implementation(plugin, "score")
        assert method is not None
        is_columnar = hasattr(plugin, "score_nodes")
        normalize = getattr(plugin, "normalize", None)
        epoch = getattr(plugin, "score_epoch", None)
        return ScoreEntry(
            Hook(plugin, method, "Score"),
            weighted.weight,
            getattr(plugin, "score_scope", Scope.POD) if is_columnar else Scope.POD,
            is_columnar,
            Hook(plugin, normalize, "Score") if normalize is not None else None,
            Hook(plugin, epoch, "Score") if epoch is not None else None,
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
            plugin = plugins[name] = factory(plugin_args(profile, name), handle)
            problems += [f'plugin "{name}": {problem}' for problem in _find_problems(name, plugin)]
        except (ValueError, TypeError, KeyError, ConfigError) as problem:
            problems.append(f'initializing plugin "{name}": {problem}')
        except Exception as problem:
            log.exception("plugin cannot be built", extra={"plugin": name})
            problems.append(f'initializing plugin "{name}": {told(problem)}')
    if problems:
        raise ConfigError(problems)
    return plugins


def _find_problems(name: str, plugin: Any) -> Iterator[str]:
    """What would make a plugin fail with the first pod, said before there is one."""
    own = getattr(plugin, "name", None)
    if not (isinstance(own, str) and own == name):
        yield f"its name must be the one it is registered under, got {shown(own)}"
    if hasattr(plugin, "reserve") and not hasattr(plugin, "unreserve"):
        yield "reserve needs an unreserve that takes it back"
    for method in ALL_METHODS:
        if not callable(getattr(plugin, method, _nothing)):
            yield f"{method} must be a method, got {shown(getattr(plugin, method))}"
    for attribute in ("filter_scope", "score_scope"):
        scope = getattr(plugin, attribute, Scope.POD)
        if not isinstance(scope, Scope):
            yield f"{attribute} must be a Scope, got {shown(scope)}"
    for method in SYNCHRONOUS:
        if inspect.iscoroutinefunction(getattr(plugin, method, None)):
            yield f"{method} must not be async"
    for attribute in ("timeout_seconds", "permit_wait_seconds"):
        seconds = getattr(plugin, attribute, DEFAULT_TIMEOUT_SECONDS)
        if not (isinstance(seconds, int | float) and seconds > 0):
            yield f"{attribute} must be a positive number, got {seconds!r}"
    bound = getattr(plugin, "permit_concurrency", DEFAULT_PERMIT_CONCURRENCY)
    if not (isinstance(bound, int) and bound > 0):
        yield f"permit_concurrency must be a positive whole number, got {bound!r}"
