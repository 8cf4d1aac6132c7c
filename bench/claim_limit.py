"""The limit of drains with devices: how fast the API server takes claims and bindings."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic

from bench.bind_limit import CONCURRENCY, binding
from bench.devices import CLAIMS, clear_devices, create_devices, create_pods
from bench.load_generator import PODS, LoadGenerator, Metadata, share_out
from bench.workloads import Object
from ksched.api.devices import FINALIZER
from ksched.testing.device_builders import DRIVER


async def claim_limit(load: LoadGenerator, workload: str, pods: int) -> float:
    """Send what PreBind and Bind send for the pods of a workload; return pods a second.

    A claim is given the finalizer, then an allocation and its first pod; further pods share one
    more write. A claim for extended resources is created with the finalizer, and named in its pod
    after that.
    Pods and claims are watched meanwhile; nominations and Events, which can wait, are left out.
    """
    await load.clear_pods()
    await clear_devices(load)
    await create_devices(load, workload, pods)
    await create_pods(load, workload, pods)
    nodes = await load.node_names()
    claims = {one["metadata"]["name"]: one for one in (await load.get(CLAIMS))["items"]}
    sharers: dict[str, list[Metadata]] = {}
    resources: dict[str, str] = {}
    for one in (await load.get(PODS))["items"]:
        limits = one["spec"]["containers"][0]["resources"].get("limits")
        resources[one["metadata"]["name"]] = next(iter(limits), "") if limits else ""
        meta = Metadata(one["metadata"]["name"], one["metadata"]["uid"])
        sharers.setdefault(_claim_name(one), []).append(meta)

    async def write(numbered: tuple[int, tuple[str, Sequence[Metadata]]]) -> None:
        number, (name, users) = numbered
        claim = claims.get(name)
        is_special = claim is None
        path = f"{CLAIMS}/{name}"
        if claim is None:
            claim = await load.post(CLAIMS, _special(name))
        else:
            claim["metadata"]["finalizers"] = [FINALIZER]
            claim = await load.put(path, claim)
        status: Object = {"allocation": _allocation(claim, number), "reservedFor": []}
        for together in (users[:1], users[1:]):
            if together:
                status["reservedFor"] += [
                    {"resource": "pods", "name": user.name, "uid": user.uid} for user in together
                ]
                claim = await load.put(f"{path}/status", {**claim, "status": status})
            for user in together:
                if is_special:
                    mapping = _mapping(name, resources[user.name])
                    await load.merge(f"{PODS}/{user.name}/status", mapping)
                node_name = nodes[number % len(nodes)]
                await load.post(f"{PODS}/{user.name}/binding", binding(user, node_name))

    async with asyncio.TaskGroup() as tasks:
        watches = [tasks.create_task(load.read_watch(each)) for each in (PODS, CLAIMS)]
        started = monotonic()
        await share_out(enumerate(sharers.items()), CONCURRENCY, write)
        seconds = monotonic() - started
        for watch in watches:
            watch.cancel()
    await load.clear_pods()
    await clear_devices(load)
    return pods / seconds


def _claim_name(body: Object) -> str:
    """The claim of a pod; one for extended resources does not exist yet."""
    entries = body["spec"].get("resourceClaims")
    if not entries:
        return f"for-{body['metadata']['name']}"
    made = (body.get("status") or {}).get("resourceClaimStatuses") or entries
    name: str = made[0]["resourceClaimName"]
    return name


def _special(name: str) -> Object:
    request = {"name": "req-0", "exactly": {"deviceClassName": "class-0"}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "finalizers": [FINALIZER]},
        "spec": {"devices": {"requests": [request]}},
    }


def _allocation(claim: Object, number: int) -> Object:
    request = claim["spec"]["devices"]["requests"][0]
    ways = request.get("firstAvailable")
    name = f"{request['name']}/{ways[0]['name']}" if ways else request["name"]
    result = {"request": name, "driver": DRIVER, "pool": f"pool-{number}", "device": "d"}
    return {
        "devices": {"results": [result]},
        "allocationTimestamp": "2026-01-01T00:00:00Z",
    }


def _mapping(claim_name: str, resource: str) -> Object:
    mapping = {"containerName": "c", "resourceName": resource, "requestName": "req-0"}
    status = {"resourceClaimName": claim_name, "requestMappings": [mapping]}
    return {"status": {"extendedResourceClaimStatus": status}}
