"""Both schedulers on one API server, under two names, deciding the same pod one after the other."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import msgspec

from ksched.api.decoding import decode_pod
from ksched.api.objects import Pod
from ksched.api.resources import NODES, PODS, ApiResource
from ksched.cache.pod_info import PodInfo
from ksched.client.http_transport import HttpTransport
from ksched.client.kubeconfig import load_client_config
from ksched.client.reflector import Reflector
from ksched.client.rest import ApiClient
from ksched.client.retry import REPEATABLE
from ksched.clock import LoopClock
from ksched.configuration import load_config
from ksched.configuration.gated_plugins import enable_gated_plugins
from ksched.errors import KschedError, NotFound
from ksched.scheduling.scheduler import Scheduler
from ksched.scheduling.scheduling_cycle import SchedulingCycle
from ksched.transport import MERGE_PATCH
from lab.control_plane import ControlPlane, scheduler_config
from lab.decider import judge
from lab.gangs import V1ALPHA2
from lab.parity.influences import (
    FIELDS,
    PLUGINS,
    Influences,
    of_others,
    profiles_to_compare,
)
from lab.parity.kube_scheduler_log import ScoreLog, Scores
from lab.parity.manifests import Json
from lab.parity.verdicts import Decision, GangDecision, Outcome

KUBE_SCHEDULER, KSCHED = "arena-kube-scheduler", "arena-ksched"
PROBE_NAMESPACE = "default"
PATIENCE_SECONDS = 60.0

POD_GROUPS = V1ALPHA2.resource
_POLL_SECONDS = 0.001
_FORGET_POLLS = 10_000
_EPOCH = "parity.example/epoch"
_LAST_NODE = "last"
# A pod like the last one would be placed by a hint, and nobody would see the scores.
ONE_BY_ONE = "--feature-gates=OpportunisticBatching=false"

T = TypeVar("T")


class Stuck(KschedError):
    """A scheduler did not decide in time."""


class Pods:
    """Every pod as the server has it now, and a way to wait for what will be."""

    def __init__(self) -> None:
        self.by_key: dict[str, Pod] = {}
        self._changed = asyncio.Event()

    def added(self, obj: Pod) -> None:
        self.by_key[obj.metadata.key] = obj
        self._changed.set()

    def modified(self, old: Pod, new: Pod) -> None:
        self.added(new)

    def deleted(self, obj: Pod) -> None:
        self.by_key.pop(obj.metadata.key, None)
        self._changed.set()

    def synced(self) -> None:
        """The start is like any other change."""

    async def until(self, what: str, look: Callable[[Mapping[str, Pod]], T | None]) -> T:
        """Wait until ``look`` sees something; raises ``Stuck``."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while (seen := look(self.by_key)) is None:
                    self._changed.clear()
                    await self._changed.wait()
                return seen
        except TimeoutError:
            raise Stuck(f"{what}: not within {PATIENCE_SECONDS:.0f} s") from None


class Arena:
    """What ``running`` gives: the cluster as its administrator, and ``decide``."""

    def __init__(
        self, client: ApiClient, pods: Pods, scheduler: Scheduler, score_log: ScoreLog
    ) -> None:
        self._client, self._pods = client, pods
        self._scheduler, self._score_log = scheduler, score_log
        # The scheduler's own would turn its dice.
        self._cycle = SchedulingCycle(
            cache=scheduler.cache,
            profiles=scheduler.profiles,
            nominator=scheduler.nominator,
            waiting=scheduler.waiting,
            permit_calls=scheduler.permit_calls,
            rng=random.Random(0),
            unexpected_errors=scheduler.unexpected_errors,
            extenders=scheduler.extenders,
        )
        self._influences = Influences(self._cycle, scheduler.cache, scheduler.profiles, PLUGINS)
        self._epoch = 0

    @classmethod
    @asynccontextmanager
    async def running(cls, plane: ControlPlane, gates: Sequence[str] = ()) -> AsyncIterator[Arena]:
        """Start both schedulers on a control plane whose ksched user may do its work.

        Both have these feature gates on.
        """
        clock = LoopClock()
        admin, own = (
            HttpTransport(load_client_config(clock, kubeconfig=str(plane.kubeconfig(user))), clock)
            for user in ("admin", "ksched")
        )
        client, pods = ApiClient(admin, clock), Pods()
        reflector = Reflector(client, PODS, decode_pod, pods, clock)
        settings = scheduler_config(plane.kubeconfig("ksched"), KSCHED)
        settings["profiles"] += profiles_to_compare(PLUGINS)
        is_on = dict.fromkeys(gates, True)
        configuration = enable_gated_plugins(load_config(json.dumps(settings)), is_on)
        scheduler = Scheduler(own, configuration, clock=clock, seed=0)
        flags = [",".join([ONE_BY_ONE, *(f"{gate}=true" for gate in gates)])]
        theirs = plane.kube_scheduler(
            KUBE_SCHEDULER, scheduler_name=KUBE_SCHEDULER, verbosity=10, flags=flags
        )
        try:
            with theirs as process:
                async with asyncio.TaskGroup() as tasks, scheduler:
                    watching = tasks.create_task(reflector.run())
                    await reflector.wait_synced()
                    arena = cls(client, pods, scheduler, ScoreLog(process.log_path))
                    last = {"metadata": {"name": _LAST_NODE}, "spec": {"taints": [_NOT_HERE]}}
                    capacity = {"pods": "110"}
                    status = {"allocatable": capacity, "capacity": capacity}
                    await arena.create(NODES, {**last, "status": status})
                    try:
                        yield arena
                    finally:
                        await arena.delete(NODES, "", _LAST_NODE)
                        watching.cancel()
        finally:
            await own.aclose()
            await admin.aclose()

    # -- the cluster ----------------------------------------------------------------------------

    async def create(self, resource: ApiResource, obj: Json) -> Json:
        namespace = obj["metadata"].get("namespace", "")
        body = await self._client.create(resource, namespace, msgspec.json.encode(obj))
        created: Json = msgspec.json.decode(body)
        return created

    async def update(self, resource: ApiResource, obj: Json, subresource: str = "") -> None:
        """Replace an object, whatever it was."""
        metadata = obj["metadata"]
        namespace, name, body = metadata.get("namespace", ""), metadata["name"], msgspec.json.encode
        await self._client.update(resource, namespace, name, body(obj), subresource=subresource)

    async def patch(
        self, resource: ApiResource, namespace: str, name: str, patch: Json, subresource: str = ""
    ) -> None:
        body = msgspec.json.encode(patch)
        await self._client.patch(
            resource, namespace, name, body, subresource=subresource, content_type=MERGE_PATCH
        )

    async def delete(
        self, resource: ApiResource, namespace: str, name: str, grace_seconds: int = 0
    ) -> None:
        path = f"{resource.path(namespace, name)}?gracePeriodSeconds={grace_seconds}"
        try:
            await self._client.request("DELETE", path, retry=REPEATABLE)
        except NotFound:
            return

    async def settle(self, node_names: Iterable[str]) -> None:
        """Wait until both schedulers have seen every node as it is now.

        Watches of one kind are in order: whoever knows the last change of the last node knows all
        before it. A pod that only this change lets in tells. Other kinds have no such probe and
        get a moment.
        """
        self._epoch += 1
        label = {_EPOCH: str(self._epoch)}
        await asyncio.sleep(0.1)
        for name in node_names:
            # kube-scheduler counts the nodes that have an image anew for nodes that changed only.
            await self.patch(NODES, "", name, {"metadata": {"annotations": label}})
        await self.patch(NODES, "", _LAST_NODE, {"metadata": {"labels": label}})
        probes = []
        for name in (KUBE_SCHEDULER, KSCHED):
            probe = {
                "metadata": {"name": f"probe-of-{name}", "namespace": PROBE_NAMESPACE},
                "spec": {
                    "schedulerName": name,
                    "nodeSelector": label,
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [{"name": "c", "image": "probe"}],
                },
            }
            probes.append(await self.create(PODS, probe))
        for probe in probes:
            look = partial(_node, pod=probe)
            await self._pods.until(f"{_key(probe)} has a node", look)
        for probe in probes:
            await self._remove(probe)

    # -- decisions ------------------------------------------------------------------------------

    async def decide(self, pod: Json) -> Decision:
        """Have both schedulers decide a pod, kube-scheduler first; it is gone afterwards."""
        decided, theirs = await self._decided_by(KUBE_SCHEDULER, pod)
        scores, _ = self._score_log.take(_key(decided))
        await self._remove(decided)
        decided, ours = await self._decided_by(KSCHED, pod)
        await self._remove(decided)
        await self._until_forgotten(decided)
        our_scores = await self._scores(decided) if ours.node else {}
        influences = await self._influences.on(decided, FIELDS)
        return Decision(
            msgspec.structs.replace(theirs, scores=scores),
            msgspec.structs.replace(ours, scores=our_scores),
            frozenset(influences | of_others(decided, influences)),
        )

    async def decide_gang(self, group: Json, members: Sequence[Json]) -> GangDecision:
        """Have both schedulers decide a gang, kube-scheduler first; it is gone afterwards."""
        pods, theirs = await self._gang_decided_by(KUBE_SCHEDULER, group, members)
        logged = [self._score_log.take(_key(one))[0] for one in pods]
        theirs = [
            msgspec.structs.replace(one, scores=scores)
            for one, scores in zip(theirs, logged, strict=True)
        ]
        await self._remove_gang(group, pods)
        pods, ours = await self._gang_decided_by(KSCHED, group, members)
        await self._remove_gang(group, pods)
        return GangDecision(theirs, ours)

    async def _gang_decided_by(
        self, scheduler_name: str, group: Json, members: Sequence[Json]
    ) -> tuple[list[Json], list[Outcome]]:
        await self.create(POD_GROUPS, group)
        bodies = [
            {**one, "spec": {**one["spec"], "schedulerName": scheduler_name}} for one in members
        ]
        pods = await asyncio.gather(*(self.create(PODS, body) for body in bodies))
        what = f"{scheduler_name} decides {_key(group)}"
        outcomes = [
            await self._pods.until(what, partial(_outcome_in_gang, pod=pod)) for pod in pods
        ]
        return pods, outcomes

    async def _remove_gang(self, group: Json, pods: Sequence[Json]) -> None:
        await asyncio.gather(*map(self._remove, pods))
        await asyncio.gather(*map(self._until_forgotten, pods))
        await self.delete(POD_GROUPS, group["metadata"]["namespace"], group["metadata"]["name"])

    async def scores_in_turn(self, pod: Json, nodes: Sequence[str]) -> list[Outcome]:
        """What ksched thinks of the nodes for pods like this, each with those before on ``nodes``.

        One more than there are nodes; without a node if there is none.
        """
        profile, cache = self._scheduler.profiles[KSCHED], self._scheduler.cache
        listener, cache.listener = cache.listener, None
        placed: list[PodInfo] = []
        found = []
        try:
            for number in range(len(nodes) + 1):
                metadata = {**pod["metadata"], "uid": f"turn-{number}", "name": f"turn-{number}"}
                info = cache.pod_info(
                    decode_pod(msgspec.json.encode({**pod, "metadata": metadata}))
                )
                verdict = await judge(self._cycle, cache, profile, info)
                found.append(Outcome(min(verdict.feasible, default=""), scores=verdict.scores))
                if number < len(nodes):
                    placed.append(info.on_node(nodes[number]))
                    cache.assume_pod(placed[-1])
        finally:
            for one in reversed(placed):
                cache.forget_pod(one)
            cache.listener = listener
        return found

    async def _decided_by(self, scheduler_name: str, pod: Json) -> tuple[Json, Outcome]:
        spec = {**pod["spec"], "schedulerName": scheduler_name}
        created = await self.create(PODS, {**pod, "spec": spec})
        what = f"{scheduler_name} decides {_key(created)}"
        return created, await self._pods.until(what, lambda pods: _outcome(pods, created))

    async def _remove(self, pod: Json) -> None:
        metadata = pod["metadata"]
        await self.delete(PODS, metadata["namespace"], metadata["name"])
        await self._pods.until(
            f"{_key(pod)} is gone", lambda pods: None if _key(pod) in pods else True
        )

    async def _until_forgotten(self, pod: Json) -> None:
        uid, cache = pod["metadata"]["uid"], self._scheduler.cache
        for _ in range(_FORGET_POLLS):
            if cache.get_pod(uid) is None:
                return
            await asyncio.sleep(_POLL_SECONDS)
        raise Stuck(f"ksched forgets {_key(pod)}: it was deleted and is still in the cache")

    async def _scores(self, pod: Json) -> Scores:
        """What ksched thinks of the nodes for a pod that is gone again."""
        profile, cache = self._scheduler.profiles[KSCHED], self._scheduler.cache
        info = cache.pod_info(decode_pod(msgspec.json.encode(pod)))
        verdict = await judge(self._cycle, cache, profile, info)
        return verdict.scores


def _key(pod: Json) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _current(pods: Mapping[str, Pod], pod: Json) -> Pod | None:
    found = pods.get(_key(pod))
    return found if found is not None and found.metadata.uid == pod["metadata"]["uid"] else None


def _node(pods: Mapping[str, Pod], pod: Json) -> str | None:
    found = _current(pods, pod)
    return (found.spec.node_name or None) if found else None


def _outcome(pods: Mapping[str, Pod], pod: Json) -> Outcome | None:
    found = _current(pods, pod)
    if found is None:
        return None
    if found.spec.node_name:
        return Outcome(node=found.spec.node_name)
    for condition in found.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return Outcome(message=condition.message)
    return None


def _outcome_in_gang(pods: Mapping[str, Pod], pod: Json) -> Outcome | None:
    """The same for a pod that may wait for others to be created."""
    found = _current(pods, pod)
    reasons = [one.reason for one in found.status.conditions] if found else []
    return None if "SchedulingGated" in reasons else _outcome(pods, pod)


_NOT_HERE: dict[str, Any] = {"key": "parity.example/last", "effect": "NoSchedule"}
