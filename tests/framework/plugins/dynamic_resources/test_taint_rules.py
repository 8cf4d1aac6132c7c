"""Pods beside DeviceTaintRules: rejected for a tainted device, woken when its rule goes."""

from __future__ import annotations

from typing import Any

import pytest

from ksched.api.devices import DeviceTaintRule
from ksched.testing import cluster, make_node, make_pod
from ksched.testing.device_builders import (
    make_device_class,
    make_resource_claim,
    make_slice,
    with_claim,
)
from ksched.testing.harness import Anything

KIND = {"apiVersion": "resource.k8s.io/v1beta2", "kind": "DeviceTaintRule"}
TAINT = {"key": "sick", "value": "", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}
NODES = [make_node("n1"), make_node("n2")]
DEVICES: list[Anything] = [
    make_device_class(),
    make_slice("n1").device("d1"),
    make_slice("n2").device("d1"),
]
CLAIM = make_resource_claim("gpu").request()
POD = with_claim(make_pod("p"), "gpu")
NO_DEVICE = (
    "0/2 nodes are available: 2 cannot allocate all claims. still not schedulable, preemption: "
    "0/2 nodes are available: 2 Preemption is not helpful for scheduling."
)


def rule(name: str, **selector: str) -> dict[str, Any]:
    spec = {"deviceSelector": selector, "taint": TAINT}
    return {**KIND, "metadata": {"name": name}, "spec": spec}


def configured(*, gate: bool) -> dict[str, Any]:
    args = {"deviceTaintRules": gate}
    profile = {"pluginConfig": [{"name": "DynamicResources", "args": args}]}
    return {"profiles": [{"schedulerName": "default-scheduler", **profile}]}


async def test_a_rule_keeps_pods_off_a_device() -> None:
    async with cluster(nodes=NODES, config=configured(gate=True)) as c:
        await c.create(*DEVICES, CLAIM, rule("r", pool="n1"))
        await c.create(POD)
        await c.settle()
        assert c.bound("p") == "n2"


async def test_a_pod_waits_for_the_end_of_a_rule() -> None:
    async with cluster(nodes=NODES, config=configured(gate=True)) as c:
        await c.create(*DEVICES, CLAIM, rule("r1", pool="n1"), rule("r2", driver="gpu.example.com"))
        await c.create(POD)
        await c.settle()
        assert c.message("p") == NO_DEVICE
        attempts = len(c.scheduler.decisions)
        status = {"conditions": [{"type": "EvictionInProgress", "status": "True"}]}
        await c.replace(rule("r1", pool="n1") | {"status": status})
        await c.advance(20)
        assert len(c.scheduler.decisions) == attempts
        await c.remove(rule("r2"))
        await c.advance(20)
        assert c.bound("p") == "n2"


@pytest.mark.parametrize("gate", [True, False])
async def test_without_the_gate_rules_are_not_read(gate: bool) -> None:
    async with cluster(nodes=NODES, config=configured(gate=gate)) as c:
        await c.create(*DEVICES, CLAIM, rule("r"), POD)
        await c.settle()
        assert (c.bound("p") is None) == gate
        watched = {row.struct for row in c.scheduler.listers.required()}
        assert (DeviceTaintRule in watched) == gate
