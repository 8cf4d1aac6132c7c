"""A simulated kubelet of many nodes: it starts bound pods, ends them and finishes deletions.

A pod bound to a node that does not exist waits for the node, as it would in a real cluster. A pod
with the annotation ``ksched.dev/run-seconds`` succeeds after that time; others run until deleted.
"""

from __future__ import annotations

import asyncio
import heapq
from itertools import count
from typing import NamedTuple

import msgspec

from ksched.apiserver.object_cache import ObjectCache, key_of
from ksched.apiserver.served_resources import JsonObject
from ksched.clock import Clock, rfc3339
from ksched.errors import Unavailable
from ksched.transport import STRATEGIC_MERGE_PATCH, Transport

RUN_SECONDS_ANNOTATION = "ksched.dev/run-seconds"

_START, _FINISH, _REMOVE = "start", "finish", "remove"
_RETRY_SECONDS = 1.0
_PODS_BOUND = "/api/v1/pods?fieldSelector=spec.nodeName!="


class _Due(NamedTuple):
    at: float
    order: int
    action: str
    key: str
    uid: str


class Kubelet:
    """Plays the kubelet of every node, or ``only`` of some; ``run`` it inside a task group.

    Starting takes ``start_seconds``, stopping ``stop_seconds`` or as long as a preStop hook sleeps,
    within the pod's grace period.
    """

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        *,
        start_seconds: float = 0.5,
        stop_seconds: float = 0.5,
        only: frozenset[str] | None = None,
    ) -> None:
        self._transport, self._clock = transport, clock
        self._start_seconds, self._stop_seconds = start_seconds, stop_seconds
        self._only = only
        self._pods = ObjectCache(transport, clock, _PODS_BOUND, self._on_pod)
        self._nodes = ObjectCache(transport, clock, "/api/v1/nodes", self._on_node)
        self._due: list[_Due] = []
        self._planned: set[tuple[str, str]] = set()
        self._homeless: dict[str, list[_Due]] = {}
        self._wake = asyncio.Event()
        self._order, self._addresses = count(), count(1)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._nodes.run(), name="kubelet: nodes")
            tasks.create_task(self._pods.run(), name="kubelet: pods")
            tasks.create_task(self._act(), name="kubelet: work")

    def _on_node(self, node: JsonObject, present: bool) -> None:
        if present:
            for due in self._homeless.pop(node["metadata"]["name"], []):
                heapq.heappush(self._due, due)
            self._wake.set()

    def _on_pod(self, pod: JsonObject, present: bool) -> None:
        if self._only is not None and pod["spec"]["nodeName"] not in self._only:
            return
        metadata, uid = pod["metadata"], pod["metadata"]["uid"]
        if not present:
            self._planned -= {(uid, action) for action in (_START, _FINISH, _REMOVE)}
            return
        phase = pod["status"].get("phase")
        if metadata.get("deletionTimestamp"):
            grace = metadata.get("deletionGracePeriodSeconds") or 0
            self._plan(pod, _REMOVE, min(max(self._stop_seconds, _pre_stop_seconds(pod)), grace))
        elif phase == "Pending":
            self._plan(pod, _START, self._start_seconds)
        elif phase == "Running":
            duration = (metadata.get("annotations") or {}).get(RUN_SECONDS_ANNOTATION)
            if duration is not None:
                self._plan(pod, _FINISH, float(duration))

    def _plan(self, pod: JsonObject, action: str, seconds: float) -> None:
        uid = pod["metadata"]["uid"]
        if (uid, action) not in self._planned:
            self._planned.add((uid, action))
            at = self._clock.now() + seconds
            heapq.heappush(self._due, _Due(at, next(self._order), action, key_of(pod), uid))
            self._wake.set()

    async def _act(self) -> None:
        while True:
            await self._until_due()
            due = heapq.heappop(self._due)
            pod = self._pods.objects.get(due.key)
            if pod is None or pod["metadata"]["uid"] != due.uid:
                continue
            if due.action == _START and pod["metadata"].get("deletionTimestamp"):
                continue
            node_name = pod["spec"]["nodeName"]
            if node_name not in self._nodes.objects:
                self._homeless.setdefault(node_name, []).append(due)
                continue
            try:
                await self._perform(due.action, pod)
            except Unavailable:
                again = due._replace(at=self._clock.now() + _RETRY_SECONDS)
                heapq.heappush(self._due, again)

    async def _until_due(self) -> None:
        while True:
            wait = self._due[0].at - self._clock.now() if self._due else None
            if wait is not None and wait <= 0:
                return
            self._wake.clear()
            try:
                async with asyncio.timeout(wait):
                    await self._wake.wait()
            except TimeoutError:
                return

    async def _perform(self, action: str, pod: JsonObject) -> None:
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        if action == _REMOVE:
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
            response = await self._transport.request("DELETE", path, msgspec.json.encode(options))
        else:
            now = rfc3339(self._clock.wall())
            status = self._running(pod, now) if action == _START else _finished(pod, now)
            patch = {"metadata": {"uid": metadata["uid"]}, "status": status}
            response = await self._transport.request(
                "PATCH",
                f"{path}/status",
                msgspec.json.encode(patch),
                content_type=STRATEGIC_MERGE_PATCH,
            )
        if response.status == 429 or response.status >= 500:
            raise Unavailable(response.status, "", f"{action} {key_of(pod)} was refused")

    def _running(self, pod: JsonObject, now: str) -> JsonObject:
        number = next(self._addresses)
        address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
        state = {"running": {"startedAt": now}}
        return {
            "phase": "Running",
            "startTime": now,
            "podIP": address,
            "podIPs": [{"ip": address}],
            "conditions": [
                *_scheduled(pod, now),
                _condition("PodReadyToStartContainers", "True", now),
                _condition("Initialized", "True", now),
                _condition("Ready", "True", now),
                _condition("ContainersReady", "True", now),
            ],
            "containerStatuses": _container_statuses(pod, state, ready=True),
        }


def _pre_stop_seconds(pod: JsonObject) -> float:
    """How long the hooks of a pod's containers sleep before the pod is stopped."""
    hooks = [
        (container.get("lifecycle") or {}).get("preStop") or {}
        for container in pod["spec"]["containers"]
    ]
    return max((float(hook["sleep"]["seconds"]) for hook in hooks if hook.get("sleep")), default=0)


def _scheduled(pod: JsonObject, now: str) -> list[JsonObject]:
    """The condition of a pod that was created with its node and has none from a scheduler."""
    known = pod["status"].get("conditions") or ()
    if any(one["type"] == "PodScheduled" and one["status"] == "True" for one in known):
        return []
    return [_condition("PodScheduled", "True", now)]


def _finished(pod: JsonObject, now: str) -> JsonObject:
    ended = {"exitCode": 0, "reason": "Completed", "finishedAt": now}
    ended["startedAt"] = pod["status"].get("startTime", now)
    return {
        "phase": "Succeeded",
        "conditions": [
            {**_condition("Ready", "False", now), "reason": "PodCompleted"},
            {**_condition("ContainersReady", "False", now), "reason": "PodCompleted"},
        ],
        "containerStatuses": _container_statuses(pod, {"terminated": ended}, ready=False),
    }


def _condition(kind: str, status: str, now: str) -> JsonObject:
    return {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": now}


def _container_statuses(pod: JsonObject, state: JsonObject, ready: bool) -> list[JsonObject]:
    return [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "ready": ready,
            "started": ready,
            "restartCount": 0,
            "state": state,
            "lastState": {},
        }
        for container in pod["spec"]["containers"]
    ]
