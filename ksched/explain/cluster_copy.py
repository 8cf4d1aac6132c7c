"""A copy of a cluster in memory, with the plugins of a configuration to judge pods on it.

The same cache, plugins and scheduling cycle as in the daemon; no queue, and nothing that writes:
plugins get a read-only client, events are dropped, and victims of preemption are noted.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from ksched.api.decoding import decode_items, decode_pod, decoder_of
from ksched.api.objects import Node, Pod
from ksched.api.resources import PODS
from ksched.api.watched_kinds import HasMetadata, WatchedKind, watched_kind
from ksched.cache.cache import SchedulerCache
from ksched.cache.listers import Listers
from ksched.cache.pod_info import PodInfo
from ksched.client.rest import EVERYTHING, PAGE_LIMIT, ApiClient, Selection
from ksched.client.retry import REPEATABLE
from ksched.clock import Clock
from ksched.configuration.expansion import ignore_extender_resources
from ksched.configuration.extension_points import PRE_ENQUEUE
from ksched.configuration.model import SchedulerConfiguration
from ksched.errors import Gone, InvalidObject, NotFound
from ksched.framework.handle import EventRecorder
from ksched.framework.plugins.in_tree import IN_TREE
from ksched.framework.runtime import registry as registries
from ksched.framework.runtime.guard import PluginFailure
from ksched.framework.runtime.permit_calls import PermitCalls
from ksched.framework.runtime.profiles import FrameworkHandle, Profile, build_profiles
from ksched.framework.runtime.waiting_pods import WaitingPods
from ksched.groups.registry import Groups
from ksched.metrics import Metrics
from ksched.queue.activations import Activations
from ksched.queue.nominator import Nominator
from ksched.queue.pending_pods import PendingPods
from ksched.scheduling.assembly import lazy_api_client
from ksched.scheduling.scheduling_cycle import SchedulingCycle
from ksched.unexpected_errors import UnexpectedErrors

T = TypeVar("T", bound=HasMetadata)

NOT_TERMINAL = Selection(field_selector="status.phase!=Succeeded,status.phase!=Failed")


class NotedVictims:
    """Notes who would be evicted for whom; nothing is evicted."""

    def __init__(self) -> None:
        self.by_preemptor: dict[str, tuple[PodInfo, ...]] = {}

    def preempt(
        self,
        pod: PodInfo,
        node_name: str,
        victims: Sequence[PodInfo],
        profile_name: str,
        recorder: EventRecorder,
    ) -> None:
        self.by_preemptor[pod.uid] = tuple(victims)

    def is_preempting(self, uid: str) -> bool:
        return False

    def awaits_victims(self, uid: str) -> bool:
        return False

    def released(self) -> tuple[str, ...]:
        return ()


class NoEvents:
    """Drops events."""

    def event(self, pod: PodInfo, *about: str, related: PodInfo | None = None) -> None:
        """Drop an event."""


class ClusterCopy:
    """Cache, listers, nominations and profiles; ``cycle`` judges pods on them."""

    def __init__(
        self,
        client: ApiClient,
        configuration: SchedulerConfiguration,
        clock: Clock,
        *,
        registry: registries.Registry | None = None,
        rng: random.Random | None = None,
        sees_all_nodes: bool = True,
    ) -> None:
        configuration = ignore_extender_resources(configuration)
        self.configuration = configuration
        self.client, self.clock = client, clock
        self.cache = SchedulerCache(clock.now)
        self.listers = Listers()
        self.nominator = Nominator()
        self.pending = PendingPods()
        self.victims = NotedVictims()
        self.invalid: list[str] = []
        """Objects that could not be used, as sentences."""
        self.waiting = WaitingPods()
        rng, metrics = rng or random.Random(0), Metrics()
        activations = Activations()
        self.groups = self.listers.view(Groups)
        self.groups.wall = clock.wall

        make_api_client = lazy_api_client(client, configuration.client_connection, clock)

        def make_handle(profile_name: str, profiles: Mapping[str, Profile]) -> FrameworkHandle:
            return FrameworkHandle(
                profile_name=profile_name,
                profiles=profiles,
                recorder=NoEvents(),
                clock=clock,
                client=client,
                listers=self.listers,
                cache=self.cache,
                waiting=self.waiting,
                nominator=self.nominator,
                rng=rng,
                metrics=metrics,
                preemptor=self.victims,
                activate=activations.activate,
                pending_pods=self.pending.__iter__,
                make_api_client=make_api_client,
            )

        self.profiles = build_profiles(
            configuration,
            registry=registries.merge(IN_TREE, registries.installed(), registry or {}),
            make_handle=make_handle,
            snapshot=self.cache.snapshot,
            now=clock.now,
            metrics=metrics,
        )
        for profile in self.profiles.values() if sees_all_nodes else ():
            # Every node is explained, not only the first that suffice for a decision.
            profile.percentage_of_nodes_to_score = 100
        if self.groups.is_on:
            self.groups.scheduler_names = frozenset(self.profiles)
            self.cache.listener = self.groups
        self.cycle = SchedulingCycle(
            cache=self.cache,
            profiles=self.profiles,
            nominator=self.nominator,
            waiting=self.waiting,
            permit_calls=PermitCalls(activations.activate),
            rng=rng,
            unexpected_errors=UnexpectedErrors(metrics),
        )

    async def read(self) -> None:
        """List nodes, pods and what the plugins look up; raises ``ApiError``."""
        self.listers.complete()
        for kind, lister in self.listers.required().items():
            for obj in await self._list(kind):
                lister.put(obj)
        nodes: list[Node] = await self._list(watched_kind(Node))
        pods: list[Pod] = await self._list(watched_kind(Pod), NOT_TERMINAL)
        self.put(nodes, pods)

    def put(self, nodes: Iterable[Node], pods: Iterable[Pod]) -> None:
        """Add nodes and pods; one that a scheduler could not use is left out and named."""
        for node in nodes:
            try:
                self.cache.add_node(node)
            except InvalidObject as problem:
                self.invalid.append(str(problem))
        for pod in pods:
            try:
                self.put_pod(self.cache.pod_info(pod))
            except InvalidObject as problem:
                self.invalid.append(str(problem))

    def put_pod(self, pod: PodInfo) -> None:
        """Add a pod to its node, or to the pending ones if a profile schedules it."""
        if pod.node_name:
            self.cache.add_pod(pod)
            return
        is_ours = pod.template.spec.scheduler_name in self.profiles
        if self.groups.is_on:
            self.groups.pending(pod, is_ours=is_ours)
        if is_ours:
            self.pending.put(pod)
            self.nominator.add(pod)

    def remove_pod(self, uid: str) -> None:
        """Remove a pod, wherever it is."""
        if self.groups.is_on:
            self.groups.gone(uid)
        self.cache.remove_pod(uid)
        self.pending.remove(uid)
        self.nominator.delete(uid)

    def gates(self, profile: Profile, pod: PodInfo) -> list[str]:
        """What each PreEnqueue plugin that does not let the pod be tried yet says."""
        gates = []
        for hook in profile.framework.hooks[PRE_ENQUEUE]:
            try:
                status = hook.status(hook.call(pod))
            except PluginFailure as failed:
                status = failed.status
            if not status.is_success:
                gates.append(f"{hook.plugin}: {status.message}")
        return gates

    async def read_pod(self, namespace: str, name: str) -> Pod:
        """Read one pod, finished ones too; raises ``ApiError``."""
        return decode_pod(await self.client.get(PODS, namespace, name))

    async def _list(self, kind: WatchedKind[T], selection: Selection = EVERYTHING) -> list[T]:
        decode = decoder_of(kind)
        found: list[T] = []
        limit, token = PAGE_LIMIT, ""
        while True:
            try:
                page = await self.client.list_page(
                    kind.resource, selection, limit=limit, continue_token=token, retry=REPEATABLE
                )
            except Gone:
                if not limit:
                    raise
                # The continue token expired; a single response cannot.
                limit, token = 0, ""
                found.clear()
                continue
            except NotFound:
                if kind.must_be_served:
                    raise
                return []
            objects, problems = decode_items(decode, page.items)
            found += objects
            self.invalid += map(str, problems)
            token = page.metadata.continue_token
            if not token:
                return found
