"""The classes, slices and claims of workloads with devices; no controller and no driver runs."""

from __future__ import annotations

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
    slices = (one.to_dict() for one in shape.slices(await load.node_names(), pods))
    await share_out(slices, CREATORS, create_slice)
    await share_out((one.to_dict() for one in shape.claims(pods)), CREATORS, create_claim)


async def create_pods(load: LoadGenerator, workload: str, pods: int) -> None:
    """Create the pods of a workload, and what a controller makes for them from templates."""
    shape = DEVICE_WORKLOADS.get(workload)

    async def create(body: Object) -> None:
        stored = await load.post(PODS, body)
        claim = None if shape is None else shape.own_claim(stored)
        if shape is not None and claim is not None:
            await load.post(CLAIMS, claim)
            path = f"{PODS}/{body['metadata']['name']}/status"
            await load.merge(path, {"status": shape.pod_status(stored)})

    await share_out((pod(index, workload) for index in range(pods)), CREATORS, create)


async def clear_devices(load: LoadGenerator) -> None:
    """Delete all claims, slices and classes; the pods are gone."""
    if not await load.names(CLASSES):
        return

    async def release(name: str) -> None:
        await load.merge(f"{CLAIMS}/{name}", {"metadata": {"finalizers": None}})

    await share_out(await load.names(CLAIMS), CREATORS, release)
    for collection in (CLAIMS, SLICES, CLASSES):
        await load.clear(collection)
