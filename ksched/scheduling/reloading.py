"""Another configuration for a running scheduler, swapped in between two attempts.

::

    check ── build ── compare ── start plugins ── gap ── swap ── stop plugins
      └────────┴── refused: nothing has changed ──┘

The candidate is built beside the profiles that decide: a profile that did not change is kept as it
is, a plugin whose arguments did not change is kept with its state, and everything cached from
plugins belongs to a profile, so that none of it outlives its configuration. The swap is one
synchronous step while no attempt runs: a pod is decided wholly by one configuration or the other.
Pods that were placed before are bound by the plugins that placed them, which are stopped after the
last one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
from msgspec import Struct

from ksched.cache.cache import SchedulerCache
from ksched.cache.listers import Listers
from ksched.cache.pod_info import PodTemplate
from ksched.clock import Clock, stopwatch
from ksched.configuration.expansion import ignore_extender_resources
from ksched.configuration.model import SchedulerConfiguration
from ksched.errors import ConfigError
from ksched.framework.runtime.guard import PluginFailure
from ksched.framework.runtime.permit_calls import PermitCalls
from ksched.framework.runtime.plugin_tasks import PluginLives
from ksched.framework.runtime.profiles import NO_PROFILES, Profile
from ksched.framework.time_slices import TimeSlice
from ksched.metrics import Metrics
from ksched.queue.pending_pods import PendingPods
from ksched.queue.scheduling_queue import SchedulingQueue
from ksched.scheduling.assembly import BuildProfiles, MakeTables, QueueTables, plugins_with_handles
from ksched.scheduling.group_cycle import GroupCycle
from ksched.scheduling.reload_comparison import Comparison, Kind, judge
from ksched.scheduling.reload_limits import needs_restart, other_queue_sort
from ksched.scheduling.scheduling_cycle import SchedulingCycle

log = logging.getLogger(__name__)

MAX_KINDS = 200
COMPARE_SECONDS = 2.0
"""For all pods together."""
KIND_SECONDS = 0.05
"""For both verdicts on one pod, if an async plugin takes part: other pods wait meanwhile."""
BREATH_SECONDS = 0.002
"""Between two pods, for attempts."""
GAP_SECONDS = 0.001
STOP_SECONDS = 1.0
"""How often to look whether the last pod of an old profile is bound."""


class Reload(Struct, frozen=True):
    """What a reload did."""

    is_applied: bool
    """False if the configuration was the same."""
    comparison: Comparison | None = None
    rebuilt: tuple[str, ...] = ()
    """Plugins that are new or have other arguments, as ``profile/plugin``."""


class Reloading:
    """Replaces the profiles of one scheduler; ``profiles`` is the dictionary that decides."""

    def __init__(
        self,
        *,
        configuration: SchedulerConfiguration,
        profiles: dict[str, Profile],
        build: BuildProfiles,
        tables: MakeTables,
        lives: PluginLives,
        permit_calls: PermitCalls,
        queue: SchedulingQueue,
        pending: PendingPods,
        cache: SchedulerCache,
        listers: Listers,
        cycle: SchedulingCycle,
        group_cycle: GroupCycle,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self.configuration = configuration
        self.listeners: list[Callable[[], None]] = []
        """Called at the moment of the swap."""
        self._profiles = profiles
        self._build = build
        self._tables = tables
        self._lives = lives
        self._permit_calls = permit_calls
        self._queue = queue
        self._pending = pending
        self._cache = cache
        self._listers = listers
        self._cycle = cycle
        self._group_cycle = group_cycle
        self._clock = clock
        self._paused = metrics.config_reload_pause.of()
        self._retired: list[Profile] = []
        """Replaced, but pods that they placed are not bound yet."""
        self._has_retired = asyncio.Event()
        self._lock = asyncio.Lock()

    async def reload(self, configuration: SchedulerConfiguration) -> Reload:
        """Let another configuration decide from the next attempt on.

        Raises ``ConfigError`` with everything that is wrong with it; then nothing has changed.
        """
        configuration = ignore_extender_resources(configuration)
        async with self._lock:
            if configuration == self.configuration:
                return Reload(is_applied=False)
            if problems := needs_restart(self.configuration, configuration):
                raise ConfigError(problems)
            old = dict(self._profiles)
            candidate: Mapping[str, Profile] = NO_PROFILES
            try:
                candidate = self._build(configuration, self._profiles)
                if problems := other_queue_sort(self._profiles, candidate):
                    raise ConfigError(problems)
                tables = self._tables(candidate)
                comparison = await self._compare(candidate)
                await self._swap(configuration, candidate, tables)
            finally:
                with anyio.CancelScope(shield=True):
                    await self._stop_unused()
                    self._release(candidate.values())
                    await self._forget_facts((*old.values(), *candidate.values()))
            return Reload(True, comparison, tuple(_rebuilt(old, candidate)))

    async def run(self) -> None:
        """Stop plugins when the last pod that they placed is bound, until cancelled."""
        while True:
            await self._has_retired.wait()
            while self._retired:
                await self._clock.sleep(STOP_SECONDS)
                async with self._lock:
                    await self._stop_unused()
            self._has_retired.clear()

    # -- comparison -----------------------------------------------------------------------------

    async def _compare(self, candidate: Mapping[str, Profile]) -> Comparison:
        kinds = await self._kinds()
        comparison = Comparison(pending=sum(kind.pods for kind in kinds))
        end = self._clock.now() + COMPARE_SECONDS
        is_first = True
        for kind in kinds[:MAX_KINDS]:
            name = kind.pod.template.spec.scheduler_name
            before, after = self._profiles[name], candidate[name]
            if before is after:
                comparison.compared += kind.pods
                continue
            if self._clock.now() > end:
                break
            if not is_first:
                await self._clock.sleep(BREATH_SECONDS)
            is_first = False
            async with self._between_attempts():
                await self._cycle.update_snapshot()
                if not len(self._cache.snapshot):
                    break
                with anyio.move_on_after(KIND_SECONDS) as deadline:
                    verdict = await judge(self._cycle, before, kind.pod)
                    other = await judge(self._cycle, after, kind.pod)
            if not deadline.cancelled_caught:
                comparison.add(kind, verdict, other)
        return comparison

    async def _kinds(self) -> list[Kind]:
        """Pending pods by template, in order of arrival."""
        kinds: dict[PodTemplate, Kind] = {}
        turn = TimeSlice(self._clock.now)
        for pod in list(self._pending):
            if self._cache.get_pod(pod.uid) is None:
                kind = kinds.get(pod.template)
                if kind is None:
                    kind = kinds[pod.template] = Kind(pod)
                kind.pods += 1
            if turn.is_over:
                await turn.give_way()
        return list(kinds.values())

    @asynccontextmanager
    async def _between_attempts(self) -> AsyncIterator[None]:
        """While the block runs, no attempt does, and nothing else that needs a standing snapshot.

        An attempt that waits for an async plugin or an extender is waited for.
        """
        self._queue.pause()
        try:
            while self._cycle.is_running:
                await self._clock.sleep(GAP_SECONDS)
            self._cycle.is_running, began = True, stopwatch()
            try:
                yield
            finally:
                self._cycle.is_running = False
                self._paused.observe(stopwatch() - began)
        finally:
            self._queue.resume()

    # -- swap -----------------------------------------------------------------------------------

    async def _swap(
        self,
        configuration: SchedulerConfiguration,
        candidate: Mapping[str, Profile],
        tables: QueueTables,
    ) -> None:
        plugins = list(plugins_with_handles(candidate))
        is_done = False
        while not is_done:
            while self._lives.is_starting:
                await self._clock.sleep(GAP_SECONDS)
            try:
                await self._lives.start_more(plugins)
            except PluginFailure as failed:
                raise ConfigError([failed.status.message]) from failed
            async with self._between_attempts():
                # This replica may have become the leader meanwhile.
                if not self._lives.unstarted(plugins):
                    self._lives.replace(plugins)
                    self._install(configuration, candidate, tables)
                    is_done = True

    def _install(
        self,
        configuration: SchedulerConfiguration,
        candidate: Mapping[str, Profile],
        tables: QueueTables,
    ) -> None:
        """Everything that decides changes here, without an await."""
        for name, profile in candidate.items():
            before = self._profiles[name]
            if profile is not before:
                profile.next_start_node_index = before.next_start_node_index
                self._retired.append(before)
        self._profiles.update(candidate)
        self.configuration = configuration
        self._group_cycle.filters_changed()
        self._queue.reconfigure(
            pre_enqueue=tables.pre_enqueue,
            hints=tables.hints,
            pod_initial_backoff_seconds=configuration.pod_initial_backoff_seconds,
            pod_max_backoff_seconds=configuration.pod_max_backoff_seconds,
        )
        for listener in self.listeners:
            try:
                listener()
            except Exception:
                log.exception("the configuration has changed, but not everywhere")

    # -- afterwards -----------------------------------------------------------------------------

    async def _stop_unused(self) -> None:
        retired = self._retired
        self._retired = [profile for profile in retired if profile.open_bindings]
        if self._retired:
            self._has_retired.set()
        used = [plugin for profile in self._retired for plugin in _plugins(profile)]
        await self._lives.stop_others(used)
        self._permit_calls.forget_idle()
        self._release(retired)

    def _release(self, profiles: Iterable[Profile]) -> None:
        """Let go of profiles that neither decide nor bind, and of what their plugins follow."""
        kept = [*self._profiles.values(), *self._retired]
        plugins = [plugin for profile in kept for plugin in _plugins(profile)]
        used = set(map(id, plugins))
        for profile in profiles:
            if profile not in kept:
                profile.release(used)
        self._listers.end_others(plugins)

    async def _forget_facts(self, profiles: Iterable[Profile]) -> None:
        """Drop what templates, which may live long, know of those that do not decide any more."""
        present = {id(plugin) for one in self._profiles.values() for plugin in _plugins(one)}
        gone: set[int] = set()
        for profile in profiles:
            if self._profiles[profile.name] is not profile:
                gone.update(map(id, profile.pipeline.fact_keys()))
            for plugin in _plugins(profile):
                if id(plugin) not in present:
                    parts = getattr(plugin, "__dict__", {}).values()
                    gone.update(map(id, (plugin, *parts)))
        turn = TimeSlice(self._clock.now)
        for template in self._cache.templates() if gone else ():
            facts = template.facts
            for key in [key for key in facts if id(key) in gone]:
                del facts[key]
            if turn.is_over:
                await turn.give_way()


def _plugins(profile: Profile) -> Iterable[Any]:
    return profile.framework.plugins.values()


def _rebuilt(old: Mapping[str, Profile], new: Mapping[str, Profile]) -> Iterable[str]:
    for name, profile in new.items():
        before = old[name].framework.plugins
        for plugin, instance in profile.framework.plugins.items():
            if before.get(plugin) is not instance:
                yield f"{name}/{plugin}"
