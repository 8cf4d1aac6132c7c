"""The profiles of one scheduler process: a set of plugins for each ``spec.schedulerName``."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias

from ksched.api.objects import Node
from ksched.cache.cache import SchedulerCache
from ksched.cache.dry_run_table import DryRunTable
from ksched.cache.listers import Listers
from ksched.cache.node_info import NodeInfo
from ksched.cache.pod_info import PodInfo
from ksched.cache.snapshot import Snapshot
from ksched.clock import Clock
from ksched.configuration import model
from ksched.configuration.extension_points import EXTENSION_POINTS, PRE_ENQUEUE, QUEUE_SORT
from ksched.configuration.model import SchedulerConfiguration
from ksched.errors import ConfigError
from ksched.framework.cycle_state import CycleState
from ksched.framework.handle import EventRecorder, Nominated, PluginTasks, PodClient
from ksched.framework.runtime.dry_run_filters import DryRunFilters, ResourceFilters
from ksched.framework.runtime.framework import NO_PLUGINS, Framework
from ksched.framework.runtime.guard import PluginFailure
from ksched.framework.runtime.pipeline import Pipeline
from ksched.framework.runtime.plugin_contract import DECLARATIONS
from ksched.framework.runtime.profile_metrics import ProfileMetrics
from ksched.framework.runtime.registry import Registry
from ksched.framework.runtime.waiting_pods import WaitingPod, WaitingPods
from ksched.framework.status import SUCCESS, Status
from ksched.framework.untrusted_values import is_text, safe_repr
from ksched.framework.victims import SupportsPreemption, Victims
from ksched.metrics import Metrics
from ksched.queue.nominator import Nominator

MakePipeline: TypeAlias = Callable[
    [Framework, Snapshot, Callable[[], float], ProfileMetrics], Pipeline
]


class Preemptor(Protocol):
    """Evicts the victims that a PostFilter plugin selected."""

    def preempt(
        self,
        pod: PodInfo,
        node_name: str,
        victims: Sequence[PodInfo],
        profile_name: str,
        recorder: EventRecorder,
    ) -> None: ...

    def is_preempting(self, uid: str) -> bool: ...

    def awaits_victims(self, uid: str) -> bool: ...

    def released(self) -> Collection[str]: ...


class FrameworkHandle:
    """The services of one profile's plugins (see ``ksched.framework.Handle``).

    ``profiles`` are those built so far, and later those that a reload put in their place. A profile
    is added after its plugins are built: what depends on all plugins is not available while their
    constructors run.
    """

    def __init__(
        self,
        *,
        profile_name: str,
        profiles: Mapping[str, Profile],
        recorder: EventRecorder,
        clock: Clock,
        client: PodClient,
        listers: Listers,
        cache: SchedulerCache,
        waiting: WaitingPods,
        nominator: Nominator,
        rng: random.Random,
        metrics: Metrics,
        preemptor: Preemptor,
        activate: Callable[[Iterable[PodInfo]], None],
        pending_pods: Callable[[], Iterable[PodInfo]],
        make_api_client: Callable[[], Any],
        extenders: SupportsPreemption | None = None,
    ) -> None:
        self.profile_name = profile_name
        self.recorder = recorder
        self.clock = clock
        self.client = client
        self.listers = listers
        self.snapshot = cache.snapshot
        self.rng = rng
        self.metrics = metrics
        self.activate = activate
        self.pending_pods = pending_pods
        self.nominated_pods_for_node = nominator.nominated_pods_for_node
        self.is_preempting = preemptor.is_preempting
        self.awaits_victims = preemptor.awaits_victims
        self.released_preemptors = preemptor.released
        self._profiles = profiles
        self._cache = cache
        self._waiting = waiting
        self._nominator = nominator
        self._preemptor = preemptor
        self._extenders = extenders
        self._make_api_client = make_api_client
        self._tasks: PluginTasks | None = None

    @property
    def api_client(self) -> Any:
        return self._make_api_client()

    @property
    def tasks(self) -> PluginTasks:
        if self._tasks is None:
            raise RuntimeError("tasks are started with the handle that start() is given")
        return self._tasks

    def with_tasks(self, tasks: PluginTasks) -> FrameworkHandle:
        """The handle for the ``start`` of one plugin."""
        own = copy.copy(self)
        own._tasks = tasks
        return own

    def node(self, name: str) -> Node | None:
        info = self._cache.get_node(name)
        return None if info is None else info.node

    def has_pod(self, uid: str) -> bool:
        return self._cache.get_pod(uid) is not None

    def get_waiting_pod(self, uid: str) -> WaitingPod | None:
        waiting = self._waiting.get(uid)
        return waiting if waiting is not None and waiting.pending_plugins else None

    def waiting_pods(self) -> Iterable[WaitingPod]:
        """kube-scheduler: IterateOverWaitingPods."""
        return (waiting for waiting in self._waiting if waiting.pending_plugins)

    def reject_waiting_pod(self, uid: str, message: str) -> bool:
        waiting = self._waiting.get(uid)
        if waiting is not None:
            waiting.reject("", message)
        return waiting is not None

    def nominated_node_name(self, pod: PodInfo) -> str:
        return self._nominator.node_of(pod.uid) or pod.pod.status.nominated_node_name

    # -- dry runs -------------------------------------------------------------------------------

    @property
    def _dry_run(self) -> DryRunFilters:
        return self._profiles[self.profile_name].pipeline.dry_run

    def run_filters_with_nominated_pods(
        self, state: CycleState, pod: PodInfo, node: NodeInfo
    ) -> Status:
        expected = self._nominator.expected_on(node.name, pod)
        nominated = () if expected is None else expected.pods
        try:
            return self._dry_run.filter_with_nominated(state, pod, node, nominated)
        except PluginFailure as failed:
            return failed.status

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status:
        try:
            self._dry_run.add_pod(state, pod, added, node)
        except PluginFailure as failed:
            return failed.status
        return SUCCESS

    def remove_pod(
        self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo
    ) -> Status:
        try:
            self._dry_run.remove_pod(state, pod, removed, node)
        except PluginFailure as failed:
            return failed.status
        return SUCCESS

    def resource_filters(
        self, state: CycleState, pod: PodInfo, nodes: DryRunTable
    ) -> ResourceFilters:
        return self._dry_run.resource_filters(state, pod, nodes, self._nominator.expected_with(pod))

    def rejects_by_amounts_alone(self, state: CycleState, pod: PodInfo) -> bool:
        return self._profiles[self.profile_name].pipeline.rejects_by_amounts_alone(state, pod)

    def nominations(self, pod: PodInfo) -> Nominated:
        return self._nominator.expected_with(pod)

    async def process_preemption(
        self, pod: PodInfo, victims: Mapping[str, Victims]
    ) -> Mapping[str, Victims]:
        if self._extenders is None:
            return victims
        return await self._extenders.process_preemption(pod, victims, self.snapshot)

    def preempt(self, pod: PodInfo, node_name: str, victims: Sequence[PodInfo]) -> None:
        if not all(isinstance(one, PodInfo) for one in (pod, *victims)) or not is_text(node_name):
            got = f"{safe_repr(pod)}, {safe_repr(node_name)}, {safe_repr(victims)}"
            raise TypeError(f"preempt: got {got}, wanted a pod, a node's name and pods")
        self._preemptor.preempt(pod, node_name, victims, self.profile_name, self.recorder)


class Profile:
    """A framework and the pipeline that runs it over the shared snapshot."""

    def __init__(
        self, framework: Framework, pipeline: Pipeline, percentage: int, handle: FrameworkHandle
    ) -> None:
        self.name = framework.name
        self.handle = handle
        self.framework = framework
        self.pipeline = pipeline
        self.metrics = pipeline.metrics
        self.percentage_of_nodes_to_score = percentage
        self.next_start_node_index = 0
        self.open_bindings = 0
        """Pods that were placed by this profile and are not bound yet, nor given up."""

    def is_of(self, configuration: model.Profile, percentage: int) -> bool:
        """Whether this is what a configuration would be built to."""
        is_same = self.framework.configuration == configuration
        return is_same and self.percentage_of_nodes_to_score == percentage

    def release(self, used: Collection[int] = ()) -> None:
        """Leave no reference cycle behind: this profile decides nothing any more.

        The objects of a daemon's start are not seen by the garbage collector. ``used`` are the ids
        of plugins that other profiles have.
        """
        self.metrics.executions.clear()
        for hooks in self.framework.hooks.values():
            for hook in hooks:
                hook.observe_wait = None
        for plugin in self.framework.plugins.values():
            # One from elsewhere may be an object that is enabled again later.
            if id(plugin) not in used and type(plugin).__module__.startswith(IN_TREE):
                # Declared with methods of the plugin.
                for name in DECLARATIONS:
                    getattr(plugin, "__dict__", {}).pop(name, None)


IN_TREE: Final = "ksched.framework.plugins."
NO_PROFILES: Final[Mapping[str, Profile]] = MappingProxyType({})


class MakeHandle(Protocol):
    """Builds the handle of a profile's plugins; ``profiles`` are those built so far."""

    def __call__(self, profile_name: str, profiles: Mapping[str, Profile]) -> FrameworkHandle: ...


def build_profiles(
    configuration: SchedulerConfiguration,
    *,
    registry: Registry,
    make_handle: MakeHandle,
    snapshot: Snapshot,
    now: Callable[[], float],
    metrics: Metrics,
    make_pipeline: MakePipeline = Pipeline,
    previous: Mapping[str, Profile] = NO_PROFILES,
) -> dict[str, Profile]:
    """Build every configured profile, or raise ``ConfigError`` with the problems of all.

    ``previous`` are those of the configuration before. An equal profile is the same object; a
    changed one has new caches, the same handle, and those plugins that did not change.

    kube-scheduler: profile.NewMap.
    """
    profiles: dict[str, Profile] = {}
    problems: list[str] = []
    for one in configuration.profiles:
        own = one.percentage_of_nodes_to_score
        percentage = configuration.percentage_of_nodes_to_score if own is None else own
        before = previous.get(one.scheduler_name)
        if before is not None and before.is_of(one, percentage):
            profiles[one.scheduler_name] = before
            continue
        handle = before.handle if before else make_handle(one.scheduler_name, profiles)
        kept = before.framework.plugins_kept_for(one) if before else NO_PLUGINS
        try:
            framework = Framework(one, registry, handle, kept)
        except ConfigError as error:
            problems += [f'profile "{one.scheduler_name}": {text}' for text in error.problems]
            continue
        profile_metrics = ProfileMetrics(metrics, one.scheduler_name)
        _measure(framework, profile_metrics)
        pipeline = make_pipeline(framework, snapshot, now, profile_metrics)
        profiles[framework.name] = Profile(framework, pipeline, percentage, handle)
    if problems:
        used = {id(one) for each in previous.values() for one in each.framework.plugins.values()}
        for profile in profiles.values():
            if previous.get(profile.name) is not profile:
                profile.release(used)
        raise ConfigError(problems)
    return profiles


def _measure(framework: Framework, metrics: ProfileMetrics) -> None:
    """Measure calls of plugins, and the async ones that block the cycle."""
    for point in EXTENSION_POINTS:
        for hook in framework.hooks[point]:
            if point not in (PRE_ENQUEUE, QUEUE_SORT):
                metrics.executions.add(hook, point.label)
            if point.blocks_cycle:
                hook.observe_wait = partial(metrics.cycle_blocked, hook.plugin, point)
