"""The controllers that a demo cluster needs.

Deployments and ReplicaSets maintain their pods, Jobs run to completion, disruption budgets are
counted; dependents of deleted owners, contents of deleted namespaces and pods of deleted nodes are
deleted. Level-triggered: a change marks a key, and the key's current state is reconciled.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress

from ksched.apiserver.controller_requests import send
from ksched.apiserver.object_cache import ObjectCache, key_of
from ksched.apiserver.selection import label_selector_predicate
from ksched.apiserver.served_resources import RESOURCES, JsonObject, Resource
from ksched.apiserver.workload_controllers import (
    budget_status,
    controller_uid,
    deployment_status,
    is_active,
    is_terminating,
    job_pods_missing,
    job_status,
    pod_from_template,
    replica_set_for,
    replica_set_status,
    rollout,
    surplus_pods,
)
from ksched.clock import Clock
from ksched.errors import Unavailable
from ksched.transport import MERGE_PATCH, Transport

_RETRY_SECONDS = 1.0
_REFUSED_SECONDS = 10.0
_ORPHAN_SECONDS = 40.0
_WATCHED = (
    "deployments",
    "replicasets",
    "jobs",
    "pods",
    "poddisruptionbudgets",
    "namespaces",
    "nodes",
)
_OWNERS = ("deployments", "replicasets", "jobs")
_BY_PLURAL = {row.plural: row for row in RESOURCES if row.group != "events.k8s.io"}


class Controllers:
    """All controllers in one; ``run`` it inside a task group."""

    def __init__(self, transport: Transport, clock: Clock) -> None:
        self._transport, self._clock = transport, clock
        self._caches = {
            plural: ObjectCache(transport, clock, _path(_BY_PLURAL[plural]), self._marker(plural))
            for plural in _WATCHED
        }
        self._owners: dict[str, tuple[str, str]] = {}
        self._owned: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        self._dirty: dict[tuple[str, str], float] = {}
        self._wake = asyncio.Event()
        self._steps: dict[str, Callable[[JsonObject], Awaitable[None]]] = {
            "deployments": self._deployment,
            "replicasets": self._replica_set,
            "jobs": self._job,
            "poddisruptionbudgets": self._budget,
            "namespaces": self._namespace,
            "pods": self._pod,
        }

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for plural, cache in self._caches.items():
                tasks.create_task(cache.run(), name=f"controllers: {plural}")
            tasks.create_task(self._work(), name="controllers: work")

    # -- what a change makes worth looking at ------------------------------------------------------

    def _marker(self, plural: str) -> Callable[[JsonObject, bool], None]:
        def on_change(obj: JsonObject, present: bool) -> None:
            self._relate(plural, obj, present)
            if plural == "pods":
                self._mark_budgets(obj)
            elif plural == "nodes" and not present:
                self._mark_orphans(obj["metadata"]["name"])
            elif present and plural in self._steps:
                self._mark(plural, key_of(obj))

        return on_change

    def _relate(self, plural: str, obj: JsonObject, present: bool) -> None:
        """Keep track of who owns whom; a change of a dependent concerns its owner, and a gone
        owner its dependents."""
        me, uid, owner = (plural, key_of(obj)), obj["metadata"]["uid"], controller_uid(obj)
        if owner:
            (self._owned[owner].add if present else self._owned[owner].discard)(me)
            if not self._owned[owner]:
                del self._owned[owner]
            if owner in self._owners:
                self._mark(*self._owners[owner])
        if plural in _OWNERS and present:
            self._owners[uid] = me
        elif plural in _OWNERS:
            self._owners.pop(uid, None)
            for dependent in self._owned.get(uid, ()):
                self._mark(*dependent)

    def _mark_budgets(self, pod: JsonObject) -> None:
        for key, budget in self._caches["poddisruptionbudgets"].objects.items():
            if budget["metadata"]["namespace"] == pod["metadata"]["namespace"]:
                self._mark("poddisruptionbudgets", key)

    def _mark_orphans(self, node_name: str) -> None:
        for key, pod in self._caches["pods"].objects.items():
            if pod["spec"].get("nodeName") == node_name:
                self._mark("pods", key, _ORPHAN_SECONDS)

    def _mark(self, plural: str, key: str, delay: float = 0.0) -> None:
        due = self._clock.now() + delay
        self._dirty[plural, key] = min(due, self._dirty.get((plural, key), due))
        self._wake.set()

    async def _work(self) -> None:
        while True:
            now = self._clock.now()
            ready = [item for item, due in self._dirty.items() if due <= now]
            if not ready:
                await self._until_due()
            for plural, key in ready:
                del self._dirty[plural, key]
                obj = self._caches[plural].objects.get(key)
                if obj is None:
                    continue
                try:
                    await self._steps[plural](obj)
                except Unavailable:
                    self._mark(plural, key, _RETRY_SECONDS)

    async def _until_due(self) -> None:
        self._wake.clear()
        due = min(self._dirty.values(), default=None)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(due):
                await self._wake.wait()

    # -- one step for one object -------------------------------------------------------------------

    async def _deployment(self, deployment: JsonObject) -> None:
        if is_terminating(deployment):
            return
        uid, namespace = deployment["metadata"]["uid"], deployment["metadata"]["namespace"]
        sets = {rs["metadata"]["name"]: rs for rs in self._dependents(uid, "replicasets")}
        wanted = replica_set_for(deployment, 0)
        current = sets.pop(wanted["metadata"]["name"], None)
        others = sorted(sets.values(), key=lambda rs: str(rs["metadata"]["creationTimestamp"]))
        plan = rollout(deployment, current, others)
        if current is None:
            wanted["spec"]["replicas"] = plan.current
            current = await self._create("replicasets", namespace, wanted)
        elif current["spec"]["replicas"] != plan.current:
            await self._patch("replicasets", current, {"spec": {"replicas": plan.current}})
        for rs in others:
            replicas = plan.others[rs["metadata"]["name"]]
            if rs["spec"]["replicas"] != replicas:
                await self._patch("replicasets", rs, {"spec": {"replicas": replicas}})
        now = self._clock.wall()
        await self._report(
            "deployments", deployment, deployment_status(deployment, current, others, now)
        )

    async def _replica_set(self, replica_set: JsonObject) -> None:
        if is_terminating(replica_set) or await self._collected("replicasets", replica_set):
            return
        uid, wanted = replica_set["metadata"]["uid"], replica_set["spec"]["replicas"]
        active = [pod for pod in self._dependents(uid, "pods") if is_active(pod)]
        for pod in surplus_pods(active, wanted):
            await self._delete("pods", pod)
        for _ in range(wanted - len(active)):
            pod = pod_from_template(replica_set)
            if await self._create("pods", replica_set["metadata"]["namespace"], pod) is None:
                # Rejected, say for a missing priority class, which is not watched.
                self._mark("replicasets", key_of(replica_set), _REFUSED_SECONDS)
                break
        active = [pod for pod in self._dependents(uid, "pods") if is_active(pod)]
        await self._report("replicasets", replica_set, replica_set_status(replica_set, active))

    async def _job(self, job: JsonObject) -> None:
        if is_terminating(job):
            return
        pods = self._dependents(job["metadata"]["uid"], "pods")
        status = job_status(job, pods, self._clock.wall())
        for _ in range(job_pods_missing(job, status)):
            await self._create("pods", job["metadata"]["namespace"], pod_from_template(job))
        pods = self._dependents(job["metadata"]["uid"], "pods")
        await self._report("jobs", job, job_status(job, pods, self._clock.wall()))

    async def _budget(self, budget: JsonObject) -> None:
        selects = label_selector_predicate((budget.get("spec") or {}).get("selector"))
        namespace = budget["metadata"]["namespace"]
        pods = [
            pod
            for pod in self._caches["pods"].objects.values()
            if pod["metadata"]["namespace"] == namespace
            and selects(pod["metadata"].get("labels") or {})
        ]
        status = budget_status(budget, pods, self._expected(pods), self._clock.wall())
        await self._report("poddisruptionbudgets", budget, status)

    async def _namespace(self, namespace: JsonObject) -> None:
        """Empty a namespace that is being deleted, then let it go."""
        if not is_terminating(namespace):
            return
        name, is_empty = namespace["metadata"]["name"], True
        for resource in _BY_PLURAL.values():
            if resource.namespaced:
                path = _path(resource, name)
                await send(self._transport, "DELETE", path)
                left = await send(self._transport, "GET", f"{path}?limit=1")
                is_empty = is_empty and not (left and left["items"])
        if not is_empty:
            self._mark("namespaces", name, _RETRY_SECONDS)
            return
        finalized = {"metadata": {"name": name}, "spec": {"finalizers": []}}
        await send(self._transport, "PUT", f"/api/v1/namespaces/{name}/finalize", finalized)

    async def _pod(self, pod: JsonObject) -> None:
        if await self._collected("pods", pod):
            return
        node_name = pod["spec"].get("nodeName")
        if node_name and node_name not in self._caches["nodes"].objects:
            await self._delete("pods", pod, 0)

    async def _collected(self, plural: str, obj: JsonObject) -> bool:
        """Delete an object whose controller is gone; verified, since the cache may only be late."""
        uid = controller_uid(obj)
        if not uid or uid in self._owners:
            return False
        owner = next(o for o in obj["metadata"]["ownerReferences"] if o.get("controller"))
        resource = next((r for r in _BY_PLURAL.values() if r.kind == owner["kind"]), None)
        if resource is None:
            return False
        found = await send(
            self._transport,
            "GET",
            f"{_path(resource, obj['metadata']['namespace'])}/{owner['name']}",
        )
        if found is not None and found["metadata"]["uid"] == uid:
            return False
        await self._delete(plural, obj)
        return True

    def _expected(self, pods: list[JsonObject]) -> int:
        """Return the desired pods of these pods' controllers; a bare pod counts for itself."""
        expected, seen = 0, set()
        for pod in pods:
            uid = controller_uid(pod)
            plural, key = self._owners.get(uid, ("", ""))
            if not plural:
                expected += 1
            elif uid not in seen:
                seen.add(uid)
                expected += int(self._caches[plural].objects[key]["spec"].get("replicas") or 0)
        return expected

    def _dependents(self, uid: str, plural: str) -> list[JsonObject]:
        objects = self._caches[plural].objects
        return [objects[key] for kind, key in self._owned.get(uid, ()) if kind == plural]

    # -- writes: the response goes into the cache, so that the next step does not repeat them ----

    async def _create(self, plural: str, namespace: str, obj: JsonObject) -> JsonObject | None:
        created = await send(self._transport, "POST", _path(_BY_PLURAL[plural], namespace), obj)
        if created is not None:
            self._caches[plural].apply(created, True)
        return created

    async def _patch(self, plural: str, obj: JsonObject, patch: JsonObject) -> None:
        patched = await send(self._transport, "PATCH", _path_of(plural, obj), patch, MERGE_PATCH)
        if patched is not None:
            self._caches[plural].apply(patched, True)

    async def _report(self, plural: str, obj: JsonObject, status: JsonObject) -> None:
        if (obj.get("status") or {}) == status:
            return
        version = {"resourceVersion": obj["metadata"]["resourceVersion"]}
        body = {**obj, "metadata": {**obj["metadata"], **version}, "status": status}
        stored = await send(self._transport, "PUT", f"{_path_of(plural, obj)}/status", body)
        if stored is not None:
            self._caches[plural].apply(stored, True)

    async def _delete(self, plural: str, obj: JsonObject, grace: int | None = None) -> None:
        options: JsonObject = {"preconditions": {"uid": obj["metadata"]["uid"]}}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        deleted = await send(self._transport, "DELETE", _path_of(plural, obj), options)
        if deleted is not None and deleted["kind"] != "Status":
            self._caches[plural].apply(deleted, is_terminating(deleted))


def _path(resource: Resource, namespace: str = "") -> str:
    root = f"/apis/{resource.group_version}" if resource.group else f"/api/{resource.version}"
    return (
        f"{root}/namespaces/{namespace}/{resource.plural}"
        if namespace
        else f"{root}/{resource.plural}"
    )


def _path_of(plural: str, obj: JsonObject) -> str:
    metadata = obj["metadata"]
    return f"{_path(_BY_PLURAL[plural], metadata['namespace'])}/{metadata['name']}"
