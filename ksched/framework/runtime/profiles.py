"""The profiles of one scheduler process: a set of plugins for each ``spec.schedulerName``."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ksched.cache.listings import Listings
from ksched.cache.pod_info import PodInfo
from ksched.cache.snapshot import Snapshot
from ksched.clock import Clock
from ksched.configuration.model import SchedulerConfiguration
from ksched.errors import ConfigError
from ksched.framework.handle import EventRecorder, Handle, PodClient
from ksched.framework.runtime.framework import Framework
from ksched.framework.runtime.pipeline import Pipeline
from ksched.framework.runtime.profile_metrics import ProfileMetrics
from ksched.framework.runtime.registry import Registry
from ksched.framework.runtime.waiting_pods import WaitingPod, WaitingPods
from ksched.metrics import Metrics


class FrameworkHandle:
    """What the plugins of one profile may reach (see ``ksched.framework.Handle``)."""

    def __init__(
        self,
        profile_name: str,
        clock: Clock,
        client: PodClient,
        recorder: EventRecorder,
        listings: Listings,
        snapshot: Snapshot,
        waiting: WaitingPods,
        activate: Callable[[Iterable[PodInfo]], None],
        nominated_pods_for_node: Callable[[str], list[PodInfo]],
    ) -> None:
        self.profile_name = profile_name
        self.clock = clock
        self.client = client
        self.recorder = recorder
        self.listings = listings
        self.snapshot = snapshot
        self.activate = activate
        self.nominated_pods_for_node = nominated_pods_for_node
        self._waiting = waiting

    def get_waiting_pod(self, uid: str) -> WaitingPod | None:
        return self._waiting.get(uid)

    def waiting_pods(self) -> Iterable[WaitingPod]:
        return iter(self._waiting)

    def reject_waiting_pod(self, uid: str, message: str) -> bool:
        waiting = self._waiting.get(uid)
        if waiting is not None:
            waiting.reject("", message)
        return waiting is not None


class Profile:
    """A framework and the pipeline that runs it over the shared snapshot."""

    def __init__(self, framework: Framework, pipeline: Pipeline, percentage: int) -> None:
        self.name = framework.name
        self.framework = framework
        self.pipeline = pipeline
        self.metrics = pipeline.metrics
        self.percentage_of_nodes_to_score = percentage
        self.next_start_node_index = 0


def build_profiles(
    configuration: SchedulerConfiguration,
    registry: Registry,
    snapshot: Snapshot,
    clock: Clock,
    make_handle: Callable[[str], Handle],
    metrics: Metrics | None = None,
) -> dict[str, Profile]:
    """Build every configured profile, or raise ``ConfigError`` with the problems of all."""
    metrics = metrics or Metrics()
    profiles: dict[str, Profile] = {}
    problems: list[str] = []
    for one in configuration.profiles:
        try:
            framework = Framework(one, registry, make_handle(one.scheduler_name))
        except ConfigError as error:
            problems += [f'profile "{one.scheduler_name}": {text}' for text in error.problems]
            continue
        own = one.percentage_of_nodes_to_score
        percentage = configuration.percentage_of_nodes_to_score if own is None else own
        own_metrics = ProfileMetrics(metrics, one.scheduler_name)
        pipeline = Pipeline(framework, snapshot, clock.now, own_metrics)
        profiles[framework.name] = Profile(framework, pipeline, percentage)
    if problems:
        raise ConfigError(problems)
    return profiles
