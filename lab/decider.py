"""One decision on a given cluster, without a queue, an API server or an event loop of its own.

For comparing verdicts: with a reference, with recordings, or before and after a change.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

import msgspec
import numpy as np
from msgspec import Struct

from ksched.api.objects import Node, Pod
from ksched.cache.cache import SchedulerCache
from ksched.cache.listers import Listers
from ksched.cache.pod_info import PodInfo
from ksched.clock import Clock
from ksched.configuration.model import SchedulerConfiguration
from ksched.framework.cycle_state import CycleState
from ksched.framework.diagnosis import Diagnosis
from ksched.framework.handle import EventRecorder, PodClient
from ksched.framework.plugins.in_tree import IN_TREE
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.framework.runtime.guard import PluginFailure
from ksched.framework.runtime.permit_calls import PermitCalls
from ksched.framework.runtime.pipeline import Pipeline
from ksched.framework.runtime.profiles import (
    FrameworkHandle,
    MakePipeline,
    Profile,
    build_profiles,
)
from ksched.framework.runtime.registry import Registry, merge
from ksched.framework.runtime.waiting_pods import WaitingPods
from ksched.metrics import Metrics
from ksched.queue.activations import Activations
from ksched.queue.nominator import Nominator
from ksched.scheduling.scheduling_cycle import SchedulingCycle
from ksched.testing.virtual_time import VirtualClock
from ksched.unexpected_errors import UnexpectedErrors


class Verdict(Struct, frozen=True):
    """What was decided for a pod.

    ``scores`` has, per feasible node and scoring plugin, the normalised and weighted score; it is
    empty when fewer than two nodes were feasible. A pod that fits nowhere may be ``nominated`` to a
    node from which ``victims`` (by ``namespace/name``) would be evicted; ``None`` leaves the
    nomination it has.
    """

    feasible: frozenset[str]
    message: str = ""
    scores: dict[str, dict[str, int]] = {}
    nominated: str | None = None
    victims: frozenset[str] = frozenset()

    @property
    def totals(self) -> dict[str, int]:
        return {node: sum(by_plugin.values()) for node, by_plugin in self.scores.items()}

    @property
    def best(self) -> frozenset[str]:
        """Nodes that may be chosen."""
        if not self.scores:
            return self.feasible
        totals = self.totals
        highest = max(totals.values())
        return frozenset(node for node, total in totals.items() if total == highest)


class Decider:
    """The plugins of one profile over a cluster that the test writes.

    The cluster may change between decisions (``cache``); what is kept between them is kept as in
    the daemon.
    """

    def __init__(
        self,
        configuration: SchedulerConfiguration | None = None,
        *,
        registry: Registry | None = None,
        clock: Clock | None = None,
        seed: int = 0,
        client: PodClient | None = None,
        make_pipeline: MakePipeline = Pipeline,
    ) -> None:
        self.clock = clock or VirtualClock()
        self.client = client or _NoClient()
        self.cache = SchedulerCache(lambda: 0.0)
        self.listers = Listers()
        self.nominator = Nominator()
        self.preemptions = Preemptions()
        waiting, rng, metrics = WaitingPods(), random.Random(seed), Metrics()
        activations = Activations()

        def make_handle(profile_name: str, profiles: Mapping[str, Profile]) -> FrameworkHandle:
            return FrameworkHandle(
                profile_name=profile_name,
                profiles=profiles,
                recorder=_NoRecorder(),
                clock=self.clock,
                client=self.client,
                listers=self.listers,
                cache=self.cache,
                waiting=waiting,
                nominator=self.nominator,
                rng=rng,
                metrics=metrics,
                preemptor=self.preemptions,
                activate=activations.activate,
                pending_pods=tuple,
                make_api_client=_NoClient,
            )

        self.profiles = build_profiles(
            configuration or SchedulerConfiguration(),
            registry=merge(IN_TREE, registry or {}),
            make_handle=make_handle,
            snapshot=self.cache.snapshot,
            now=self.clock.now,
            metrics=metrics,
            make_pipeline=make_pipeline,
        )
        self.cycle = SchedulingCycle(
            cache=self.cache,
            profiles=self.profiles,
            nominator=self.nominator,
            waiting=waiting,
            permit_calls=PermitCalls(activations.activate),
            rng=rng,
            unexpected_errors=UnexpectedErrors(metrics),
        )

    def set_cluster(self, nodes: Iterable[Node], pods: Iterable[Pod] = ()) -> None:
        for node in nodes:
            self.cache.add_node(node)
        for pod in pods:
            self.cache.add_pod(self.cache.pod_info(pod))

    async def decide(self, pod: Pod) -> Verdict:
        """Judge a pod without placing it."""
        info = self.cache.pod_info(pod)
        profile = self.profiles[info.template.spec.scheduler_name]
        self.preemptions.chosen.clear()
        verdict = await judge(self.cycle, self.cache, profile, info)
        victims = frozenset(self.preemptions.chosen.get(info.uid, ()))
        return msgspec.structs.replace(verdict, victims=victims)


async def judge(
    cycle: SchedulingCycle,
    cache: SchedulerCache,
    profile: Profile,
    pod: PodInfo,
    state: CycleState | None = None,
) -> Verdict:
    """Judge a pod on the cluster of a cache, without placing it."""
    cache.update_snapshot()
    state = CycleState() if state is None else state
    try:
        fit = await cycle.find_nodes(profile, state, pod)
    except PluginFailure as failed:
        return Verdict(frozenset(), failed.status.message)
    if isinstance(fit, Diagnosis):
        rejected = await cycle.run_post_filter(profile, state, QueuedPodInfo(pod, 0.0), fit)
        return Verdict(frozenset(), rejected.message, nominated=rejected.nominated_node_name)
    infos = cache.snapshot.table.infos
    names = [infos[row].name for row in fit.rows]
    if len(names) == 1:
        return Verdict(frozenset(names))
    rows, totals = await profile.pipeline.prioritize_nodes(state, pod, fit)
    by_plugin = await profile.pipeline.scores_by_plugin(state, pod, fit)
    # A node is chosen by the totals and explained by the plugins: they must say the same.
    found = totals[fit.rows] if rows is None else totals
    assert found.tolist() == sum(by_plugin.values(), np.zeros(len(names), np.int64)).tolist()
    assert rows is not None or (np.delete(totals, fit.rows) == -1).all()
    scores = {
        name: {plugin: int(column[i]) for plugin, column in by_plugin.items()}
        for i, name in enumerate(names)
    }
    return Verdict(frozenset(names), scores=scores)


class Preemptions:
    """Notes who would be evicted for whom; nobody is."""

    def __init__(self) -> None:
        self.chosen: dict[str, list[str]] = {}
        """Keys of the victims by UID of the pod they make room for."""

    def preempt(
        self,
        pod: PodInfo,
        node_name: str,
        victims: Sequence[PodInfo],
        profile_name: str,
        recorder: EventRecorder,
    ) -> None:
        self.chosen[pod.uid] = [victim.key for victim in victims]

    def is_preempting(self, uid: str) -> bool:
        return False

    def awaits_victims(self, uid: str) -> bool:
        return False

    def released(self) -> tuple[str, ...]:
        return ()


class _NoClient:
    async def bind(self, namespace: str, name: str, uid: str, node_name: str) -> NoReturn:
        raise NotImplementedError("a decider does not bind")

    async def read_volume(self, name: str) -> NoReturn:
        raise NotImplementedError("a decider does not bind")

    async def update_volume(self, name: str, body: bytes) -> NoReturn:
        raise NotImplementedError("a decider does not bind")

    async def read_claim(self, namespace: str, name: str) -> NoReturn:
        raise NotImplementedError("a decider does not bind")

    async def update_claim(self, namespace: str, name: str, body: bytes) -> NoReturn:
        raise NotImplementedError("a decider does not bind")

    async def patch_pod_status(self, namespace: str, name: str, body: bytes) -> NoReturn:
        raise NotImplementedError("a decider does not bind")

    async def read_resource_claim(self, namespace: str, name: str) -> NoReturn:
        raise NotImplementedError("a decider does not bind")

    async def create_resource_claim(self, namespace: str, body: bytes) -> NoReturn:
        raise NotImplementedError("a decider does not bind")

    async def update_resource_claim(
        self, namespace: str, name: str, body: bytes, *, subresource: str = ""
    ) -> NoReturn:
        raise NotImplementedError("a decider does not bind")

    async def patch_resource_claim_status(self, namespace: str, name: str, body: bytes) -> NoReturn:
        raise NotImplementedError("a decider does not bind")

    async def delete_resource_claim(self, namespace: str, name: str) -> NoReturn:
        raise NotImplementedError("a decider does not bind")


class _NoRecorder:
    def event(self, pod: PodInfo, *about: str, related: PodInfo | None = None) -> None:
        pass
