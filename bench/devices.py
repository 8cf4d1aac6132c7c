"""The classes, slices and claims of workloads with devices; no controller and no driver runs."""

from __future__ import annotations

import asyncio
from functools import partial
from time import monotonic

from bench.load_generator import CREATORS, PODS, LoadGenerator, share_out
from bench.workloads import NAMESPACE, Object, pod
from ksched.testing.device_workloads import DEVICE_WORKLOADS

GROUP = "/apis/resource.k8s.io/v1"
CLASSES = f"{GROUP}/deviceclasses"
SLICES = f"{GROUP}/resourceslices"
CLAIMS = f"{GROUP}/namespaces/{NAMESPACE}/resourceclaims"


async def create_devices(load: LoadGenerator, workload: str, pods: int) -> None:
    """Create what there is before the pods of a workload, besides nodes."""
    shape = DEVICE_WORKLOADS.get(workload)
    if shape is None:
        return

    async def create_slice(one: Object) -> None:
        await load.post(SLICES, one)

    async def create_claim(claim: Object) -> None:
        stored = await load.post(CLAIMS, claim)
        if "status" in claim:
            path = f"{CLAIMS}/{claim['metadata']['name']}/status"
            await load.put(path, {**stored, "status": claim["status"]})

    for one in shape.classes:
        await load.post(CLASSES, one.to_dict())
    nodes = await load.node_names()
    slices = (one.to_dict() for one in shape.slices(nodes, pods))
    await share_out(slices, CREATORS, create_slice)
    await share_out((one.to_dict() for one in shape.claims(nodes, pods)), CREATORS, create_claim)


async def create_pods(load: LoadGenerator, workload: str, pods: int) -> None:
    """Create the first pods of a workload."""
    await share_out(range(pods), CREATORS, partial(create_pod, load, workload))


async def create_pod(load: LoadGenerator, workload: str, number: int) -> None:
    """Create a pod of a workload, and what a controller makes for it from templates."""
    shape = DEVICE_WORKLOADS.get(workload)
    body = pod(number, workload)
    stored = await load.post(PODS, body)
    claim = None if shape is None else shape.own_claim(stored)
    if shape is not None and claim is not None:
        await load.post(CLAIMS, claim)
        path = f"{PODS}/{body['metadata']['name']}/status"
        await load.merge(path, {"status": shape.pod_status(stored)})


async def delete_pod(load: LoadGenerator, name: str) -> None:
    """Delete a pod and its claim, as the claim's controller would."""
    stored = await load.get(f"{PODS}/{name}")
    await load.delete(f"{PODS}/{name}?gracePeriodSeconds=0")
    for one in stored["status"].get("resourceClaimStatuses") or ():
        path = f"{CLAIMS}/{one['resourceClaimName']}"
        await load.merge(path, {"metadata": {"finalizers": None}})
        await load.delete(path)


async def republish(load: LoadGenerator, workload: str) -> None:
    """Publish one slice after the other anew, as the drivers of some workloads do."""
    shape = DEVICE_WORKLOADS.get(workload)
    if shape is None or not shape.republished_per_second:
        return
    stored = (await load.get(SLICES))["items"]
    while True:
        for number, one in enumerate(stored):
            started = monotonic()
            one["spec"]["pool"]["generation"] += 1
            path = f"{SLICES}/{one['metadata']['name']}"
            stored[number] = await load.put(path, one)
            await asyncio.sleep(started + 1 / shape.republished_per_second - monotonic())


async def clear_devices(load: LoadGenerator) -> None:
    """Delete all claims, slices and classes; the pods are gone."""
    if not await load.names(CLASSES):
        return

    async def release(name: str) -> None:
        await load.merge(f"{CLAIMS}/{name}", {"metadata": {"finalizers": None}})

    await share_out(await load.names(CLAIMS), CREATORS, release)
    for collection in (CLAIMS, SLICES, CLASSES):
        await load.clear(collection)
