"""The workloads of the benchmarks that have devices: an API server admits them, every pod is bound.

A pod costs the same requests however many there are.
"""

from __future__ import annotations

from collections import Counter

import pytest

from bench.workloads import pod
from ksched.testing import cluster, make_node
from ksched.testing.device_workloads import DEVICE_WORKLOADS, SHARERS

NODES = ("n1", "n2", "n3")

CREATION = "create resourceclaims"
FINALIZER, ALLOCATION = "update resourceclaims", "update resourceclaims/status"
STATUS, BINDING, EVENT = "patch pods/status", "create pods/binding", "create events"
OWN = {FINALIZER: 1.0, ALLOCATION: 1.0, BINDING: 1.0, EVENT: 1.0}
MADE = {CREATION: 1.0, ALLOCATION: 1.0, STATUS: 1.0, BINDING: 1.0, EVENT: 1.0}
"""The status of a pod names the claim; a nomination is not written for a pod that is bound soon."""
REQUESTS = {
    **dict.fromkeys(DEVICE_WORKLOADS, OWN),
    **dict.fromkeys(("extended", "extended50", "extendedscoring", "implicit"), MADE),
    # All but the first of a claim may be rejected once; those that wait meanwhile join it together.
    "sharedclaims": {
        FINALIZER: 1 / SHARERS,
        ALLOCATION: 4 / SHARERS,
        BINDING: 1.0,
        EVENT: 1.0,
    },
}


@pytest.mark.parametrize("pods", [SHARERS, 2 * SHARERS])
@pytest.mark.parametrize("name", DEVICE_WORKLOADS)
async def test_every_pod_is_bound_by_so_many_requests(name: str, pods: int) -> None:
    workload = DEVICE_WORKLOADS[name]
    nodes = [make_node(one).label({"topology.kubernetes.io/region": "r0"}) for one in NODES]
    async with cluster(nodes=nodes, config=workload.configuration) as c:
        await c.create(*workload.classes, *workload.slices(NODES, pods))
        await c.create(*workload.claims(NODES, pods))
        for number in range(pods):
            [body] = await c.create(pod(number, name))
            claim = workload.own_claim(body)
            if claim is not None:
                await c.create(claim)
                status = {"status": workload.pod_status(body)}
                await c.patch(body["metadata"]["name"], status, subresource="status")
        await c.advance(30)
        assert all(c.bound(one) for one in c.pod_names())
        counts = Counter(
            f"{one.verb} {kind_of(one.path)}"
            for one in c.requests
            if one.user == "system:kube-scheduler" and one.verb not in ("get", "list", "watch")
        )
    assert counts.keys() == REQUESTS[name].keys()
    for what, most in REQUESTS[name].items():
        assert counts[what] <= round(most * pods), what


def kind_of(path: str) -> str:
    """The resource of a path, and its subresource."""
    resource, *named = path.partition("/namespaces/default/")[2].split("/")
    return "/".join((resource, *named[1:]))


def test_claims_are_shared() -> None:
    shared = DEVICE_WORKLOADS["sharedclaims"]
    assert len([*shared.claims(NODES, 2 * SHARERS + 1)]) == 3
    used = {
        pod(number, "sharedclaims")["spec"]["resourceClaims"][0]["resourceClaimName"]
        for number in range(SHARERS)
    }
    assert used == {"claim-000000"}
