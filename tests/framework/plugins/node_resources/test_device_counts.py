"""NodeResourcesFit and BalancedAllocation score extended resources by the devices behind them.

Covers ``ksched.framework.plugins.node_resources.device_counts``; compared with kube-scheduler in
tests/parity/test_device_parity.py.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from ksched.api.devices import DeviceClass, ResourceClaim, ResourceSlice
from ksched.cache.node_table import NodeRows
from ksched.configuration import load_config
from ksched.framework.cycle_state import CycleState
from ksched.testing.builders import make_node, make_pod
from ksched.testing.device_builders import (
    DRIVER,
    make_device_class,
    make_resource_claim,
    make_slice,
)
from lab.decider import Decider

GPU = "example.com/gpu"
FIT = {
    "name": "NodeResourcesFit",
    "args": {
        "scoringStrategy": {"type": "MostAllocated", "resources": [{"name": GPU, "weight": 1}]}
    },
}
BALANCED = {
    "name": "NodeResourcesBalancedAllocation",
    "args": {"resources": [{"name": "cpu", "weight": 1}, {"name": GPU, "weight": 1}]},
}
POD = make_pod("web").req(**{GPU: "1", "cpu": "2"}).obj()


def decider(*plugin_config: Any) -> Decider:
    """Two nodes with four devices each, n1's first one allocated; n3 offers the resource itself."""
    profile = {"schedulerName": "default-scheduler", "pluginConfig": plugin_config}
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    made = Decider(load_config(json.dumps({**kind, "profiles": [profile]})))
    nodes = [make_node("n1"), make_node("n2"), make_node("n3").capacity(**{GPU: "2"})]
    made.set_cluster([one.obj() for one in nodes])
    made.listers.require(DeviceClass).put(make_device_class(extended=GPU).obj())
    for name in ("n1", "n2"):
        published = make_slice(name)
        for number in range(4):
            published = published.device(f"d{number}")
        made.listers.require(ResourceSlice).put(published.obj())
    made.listers.require(ResourceClaim).put(used("n1", "d0"))
    return made


def used(pool: str, device: str) -> ResourceClaim:
    result = {"request": "r", "driver": DRIVER, "pool": pool, "device": device}
    return make_resource_claim(f"{pool}-{device}").request().allocated(result, node=pool).obj()


async def scores(made: Decider, plugin: str) -> dict[str, int]:
    verdict = await made.decide(POD)
    return {node: by_plugin[plugin] for node, by_plugin in verdict.scores.items()}


async def test_devices_count_where_a_node_does_not_offer_the_resource() -> None:
    made = decider(FIT)
    assert await scores(made, "NodeResourcesFit") == {"n1": 50, "n2": 25, "n3": 50}


async def test_scores_follow_the_devices_and_their_use() -> None:
    made = decider(FIT)
    await scores(made, "NodeResourcesFit")
    made.listers.require(ResourceClaim).put(used("n2", "d1"))
    made.listers.require(ResourceClaim).put(used("n2", "d2"))
    assert await scores(made, "NodeResourcesFit") == {"n1": 50, "n2": 75, "n3": 50}
    made.listers.require(ResourceSlice).put(make_slice("n1").device("d0").device("d1").obj())
    assert await scores(made, "NodeResourcesFit") == {"n1": 100, "n2": 75, "n3": 50}
    made.listers.require(ResourceClaim).remove(used("n1", "d0"))
    assert (await scores(made, "NodeResourcesFit"))["n1"] == 50


async def test_balance_counts_devices() -> None:
    found = await scores(decider(BALANCED), "NodeResourcesBalancedAllocation")
    assert found["n1"] > 75 > found["n2"], (
        "half of n1's cores and devices, a quarter of n2's devices"
    )


@pytest.mark.parametrize("expression", ["device.nope", "device.attributes['a'].b == 1"])
async def test_a_class_that_cannot_be_evaluated_is_ignored(expression: str) -> None:
    made = decider(FIT)
    broken = make_device_class(expression=expression, extended=GPU)
    made.listers.require(DeviceClass).remove(make_device_class(extended=GPU).obj())
    made.listers.require(DeviceClass).put(broken.obj())
    plugin = made.profiles["default-scheduler"].framework.plugins["NodeResourcesFit"]
    made.cache.update_snapshot()
    rows = NodeRows(made.cache.snapshot.table, None)
    info = made.cache.pod_info(POD)
    assert plugin.score_nodes(CycleState(), info, rows).tolist() == [0, 0, 50]
