"""The workloads of the benchmarks that have devices are what an API server admits."""

from __future__ import annotations

import pytest

from bench.workloads import pod
from ksched.testing import cluster, make_node
from ksched.testing.device_workloads import DEVICE_WORKLOADS, SHARERS

NODES = ("n1", "n2")


@pytest.mark.parametrize("name", DEVICE_WORKLOADS)
async def test_every_object_is_admitted_and_every_pod_bound(name: str) -> None:
    workload, pods = DEVICE_WORKLOADS[name], 4
    nodes = [make_node(one).label({"topology.kubernetes.io/region": "r0"}) for one in NODES]
    async with cluster(nodes=nodes) as c:
        await c.create(*workload.classes, *workload.slices(NODES, pods), *workload.claims(pods))
        for number in range(pods):
            [body] = await c.create(pod(number, name))
            claim = workload.own_claim(body)
            if claim is not None:
                await c.create(claim)
                status = {"status": workload.pod_status(body)}
                await c.patch(body["metadata"]["name"], status, subresource="status")
        await c.advance(30)
        assert all(c.bound(one) for one in c.pod_names())


def test_claims_are_shared() -> None:
    shared = DEVICE_WORKLOADS["sharedclaims"]
    assert len([*shared.claims(2 * SHARERS + 1)]) == 3
    used = {
        pod(number, "sharedclaims")["spec"]["resourceClaims"][0]["resourceClaimName"]
        for number in range(SHARERS)
    }
    assert used == {"claim-000000"}
