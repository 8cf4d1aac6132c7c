"""Many important pods at once onto nodes that are full; nobody is evicted without need.

``STORM_NODES=500`` is the full one: 2,000 pods onto 500 nodes.
"""

from __future__ import annotations

import os
from collections import Counter
from random import Random

import pytest

from ksched.api.pod_resources import amounts
from ksched.testing import Checkers, Cluster, PodBuilder, cluster, make_node, make_pod

NODES = int(os.environ.get("STORM_NODES", "15"))
PODS = 4 * NODES
CPU_MILLIS = 8000
GRACE_SECONDS = (0, 1, 30)
SCHEDULER = "system:kube-scheduler"


def of_class(pod: PodBuilder, name: str, grace_seconds: int = 30) -> PodBuilder:
    spec = {"priorityClassName": name, "terminationGracePeriodSeconds": grace_seconds}
    return pod.merge({"spec": spec})


class Storm:
    """The nodes, who was there before, and what must be true afterwards."""

    def __init__(self, c: Cluster, random: Random) -> None:
        self._c = c
        self._random = random
        self._node_of: dict[str, str] = {}
        self._size_on: dict[str, int] = {}
        self._protected: set[str] = set()

    async def set_up(self) -> None:
        """Fill every node with pods of one size; a third of them may not be disrupted."""
        c = self._c
        for name, value in {"low": 10, "middle": 20, "high": 1000}.items():
            kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
            await c.create({**kind, "metadata": {"name": name}, "value": value})
        kind = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}
        spec = {"minAvailable": "100%", "selector": {"matchLabels": {"app": "protected"}}}
        # Nobody reconciles it, so that it allows no disruption.
        await c.create({**kind, "metadata": {"name": "all"}, "spec": spec})
        for number in range(NODES):
            await self._fill(f"n{number}", is_protected=number % 3 == 0)
        await c.settle()

    async def _fill(self, node: str, *, is_protected: bool) -> None:
        size = self._size_on[node] = self._random.choice((500, 1000, 2000))
        await self._c.create(make_node(node).capacity(cpu=f"{CPU_MILLIS}m"))
        for number in range(CPU_MILLIS // size):
            name = f"low-{node}-{number}"
            pod = make_pod(name).req(cpu=f"{size}m").node(node)
            pod = pod.label(app="protected" if is_protected else "web")
            priority = self._random.choice(("low", "middle"))
            await self._c.create(of_class(pod, priority, self._random.choice(GRACE_SECONDS)))
            self._node_of[name] = node
            if is_protected:
                self._protected.add(name)

    async def run(self) -> None:
        """Let the important pods come, and wait until all have a place."""
        for number in range(PODS):
            await self._c.create(of_class(make_pod(f"high-{number}").req(cpu="1"), "high"))
        for _ in range(60):
            await self._c.advance(10)
            if all(self._c.bound(f"high-{number}") for number in range(PODS)):
                return

    def check(self) -> None:
        c = self._c
        pods = {pod["metadata"]["name"]: pod for pod in c.pods()}
        waiting = [f"high-{number}" for number in range(PODS) if not c.bound(f"high-{number}")]
        assert not waiting, f"{len(waiting)} without a place, {c.message(waiting[0])}"

        evicted = self._node_of.keys() - pods.keys()
        assert not evicted & self._protected, "there was another choice"
        deleted = Counter(
            request.path.rpartition("/")[2]
            for request in c.requests
            if (request.verb, request.user) == ("delete", SCHEDULER)
        )
        assert evicted <= deleted.keys(), "only the scheduler deletes pods here"

        free = dict.fromkeys(self._size_on, CPU_MILLIS)
        for pod in pods.values():
            requests = pod["spec"]["containers"][0]["resources"]["requests"]
            free[pod["spec"]["nodeName"]] -= amounts(requests)["cpu"]
        assert min(free.values()) >= 0
        in_vain = {
            name
            for name in evicted
            if self._size_on[self._node_of[name]] <= free[self._node_of[name]]
        }
        assert not in_vain, "they could come back"


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [1, 2] if NODES < 100 else [1], ids="seed {}".format)
async def test_important_pods_storm_full_nodes(seed: int) -> None:
    async with cluster(kubelet=True, seed=seed) as c:
        # The log of requests must reach back to the first one.
        c.server.requests = type(c.server.requests)(c.server.requests, maxlen=None)
        checkers = Checkers(c)
        storm = Storm(c, Random(seed))
        await storm.set_up()
        await storm.run()
        storm.check()
        checkers.check_books()
        assert len(c.scheduler.nominator) == 0
        assert c.scheduler.queue.statistics().gated == 0
