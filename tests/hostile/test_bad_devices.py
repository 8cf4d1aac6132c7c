"""Devices, classes and claims that are wrong or restless: kube-scheduler's answer, and no stall."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from ksched.cache.cache import SchedulerCache
from ksched.clock import LoopClock, cpu_seconds
from ksched.devices.slices import PublishedSlice
from ksched.framework.plugins.dynamic_resources.pod_claims import claim_keys
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.scheduling.scheduling_cycle import Placed, Rejected
from ksched.testing.builders import Builder, make_node, make_pod
from ksched.testing.device_builders import (
    consumes,
    make_device_class,
    make_resource_claim,
    make_slice,
    with_claim,
)
from ksched.testing.harness import cluster
from lab.decider import Decider
from lab.fuzz.stalls import assert_no_stall

STALL_SECONDS = 0.02
"""Of CPU time."""
FAILED = 'running "DynamicResources" filter plugin: '
TOO_MANY = "claim default/c: number of requested devices 33 exceeds the claim limit of 32"
NOWHERE = "0/1 nodes are available: 1 "

GPU = make_slice("n1").device("d0", model="a").device("d1")


def many(count: int) -> Any:
    made = make_slice("n1")
    for number in range(count):
        made = made.device(f"d{number}")
    return made


COUNTERS = make_slice("n1", name="counters", pool="board").counters(memory={"units": "4"})


BAD = [
    pytest.param(
        make_resource_claim("c").request(cel="device.nope == 1"),
        [GPU],
        f"{FAILED}claim default/c: selector #0: CEL compile error: "
        "compilation failed: ERROR: <input>:1:7: undefined field 'nope'",
        id="a selector that does not compile",
    ),
    pytest.param(
        make_resource_claim("c").request(cel="device.attributes['gpu.example.com'].model"),
        [GPU],
        f"{FAILED}claim default/c: selector #0: CEL runtime error: "
        "CEL result of type string could not be converted to bool",
        id="a selector that is no bool",
    ),
    pytest.param(
        make_resource_claim("c").request(cel="device.attributes['gpu.example.com'].no"),
        [GPU],
        f"{FAILED}claim default/c: selector #0: CEL runtime error: no such key: no",
        id="a selector of what devices do not have",
    ),
    pytest.param(
        make_resource_claim("c").request(device_class="missing"),
        [GPU],
        "0/1 nodes are available: request r: device class missing does not exist. "
        "no new claims to deallocate, preemption: ",
        id="a class that does not exist",
    ),
    pytest.param(
        make_resource_claim("c").request(count=33),
        [many(40)],
        f"{FAILED}{TOO_MANY}",
        id="more devices than a claim may have",
    ),
    pytest.param(
        make_resource_claim("c").request(all=True),
        [many(33)],
        f"{FAILED}{TOO_MANY}",
        id="all devices of a node with more",
    ),
    pytest.param(
        make_resource_claim("c").request(),
        [
            make_slice("n1", pool="board")
            .pool(slices=2)
            .device("d", fields=consumes("memory", other="1")),
            COUNTERS.pool(slices=2),
        ],
        f"{NOWHERE}invalid resource pools were encountered",
        id="a counter that no set has",
    ),
    pytest.param(
        make_resource_claim("c").request(),
        [
            make_slice("n1", pool="board")
            .pool(slices=3)
            .device("d", fields=consumes("memory", units="1")),
            COUNTERS.pool(slices=3),
            COUNTERS.merge({"metadata": {"name": "more"}}).pool(slices=3),
        ],
        f"{NOWHERE}invalid resource pools were encountered",
        id="a set of counters twice",
    ),
    pytest.param(
        make_resource_claim("c").request(),
        [
            make_slice("n1", pool="board")
            .pool(slices=2)
            .device("d", fields=consumes("memory", units="5")),
            COUNTERS.pool(slices=2),
        ],
        f"{NOWHERE}cannot allocate all claims",
        id="more than there is of a counter",
    ),
    pytest.param(
        make_resource_claim("c").request(),
        [make_slice("n1").pool(slices=2).device("d")],
        f"{NOWHERE}cannot allocate all claims",
        id="a pool of which a slice is missing",
    ),
    pytest.param(
        make_resource_claim("c").request(all=True),
        [make_slice("n1").pool(slices=2).device("d")],
        f"{FAILED}claim default/c, request r: asks for all devices, but resource pool "
        "gpu.example.com/n1 is currently being updated",
        id="all of a pool of which a slice is missing",
    ),
]


@pytest.mark.parametrize(("claim", "objects", "message"), BAD)
async def test_bad_input_gets_the_answer_of_kube_scheduler(
    claim: Builder[Any], objects: list[Builder[Any]], message: str
) -> None:
    async with cluster(nodes=1) as c:
        await c.create(make_device_class())
        for one in objects:
            await c.create(one)
        await c.create(claim)
        await c.create(with_claim(make_pod("web"), "c"))
        await c.settle()
        assert c.message("web").startswith(message)
        await c.create(make_pod("ordinary"))
        await c.settle()
        assert c.bound("ordinary"), "one bad claim concerns nobody else"


@pytest.mark.parametrize(("claim", "objects", "message"), BAD)
def test_bad_input_on_many_nodes_stalls_nothing(
    claim: Builder[Any], objects: list[Builder[Any]], message: str
) -> None:
    names = [f"n{number}" for number in range(200)]
    nodes = [make_node(name).obj() for name in names]
    everywhere = [
        one.merge(
            {
                "metadata": {"name": f"{one.to_dict()['metadata']['name']}-{name}"},
                "spec": {"nodeName": name, "pool": {"name": name}},
            }
        ).obj()
        for one in objects
        for name in names
    ]

    def attempt() -> None:
        made = Decider(clock=LoopClock())
        made.set_cluster(nodes)
        for one in (make_device_class().obj(), claim.obj(), *everywhere):
            made.listers.require(type(one)).put(one)
        pod = QueuedPodInfo(made.cache.pod_info(with_claim(make_pod("web"), "c").obj()), 0.0)
        assert isinstance(asyncio.run(made.cycle.run(pod)), Rejected)

    assert_no_stall(attempt, STALL_SECONDS)


PER_DEVICE = {"spec": {"perDeviceNodeSelection": True, "allNodes": None}}


def published(version: int, *, is_per_device: bool = False) -> Any:
    """A slice for many nodes, as large as a slice may be, that is different every time."""
    made = make_slice(pool="network")
    for number in range(128):
        where = {"allNodes": True} if is_per_device else {}
        made = made.device(f"d{number}", version=version, index=number, fields=where)
    return (made.merge(PER_DEVICE) if is_per_device else made).pool(generation=version)


def board(number: int, version: int) -> Any:
    """One of many boards that all nodes may use, with counters."""
    return (
        make_slice(pool=f"board-{number}")
        .pool(slices=2)
        .device("half-0", version=version, fields=consumes("memory", units="1"))
        .device("half-1", version=version, fields=consumes("memory", units="1"))
    )


BOARDS = [
    one
    for number in range(400)
    for one in (
        board(number, 0).obj(),
        COUNTERS.merge(
            {
                "metadata": {"name": f"counters-{number}"},
                "spec": {"nodeName": None, "allNodes": True, "devices": None},
            }
        )
        .merge({"spec": {"pool": {"name": f"board-{number}", "resourceSliceCount": 2}}})
        .obj(),
    )
]

RESTLESS = {
    "one slice": (1000, [], published),
    "devices that select nodes": (1000, [], lambda version: published(version, is_per_device=True)),
    "one of many boards": (100, BOARDS, lambda version: board(7, version)),
}


@pytest.mark.parametrize("kind", RESTLESS)
def test_a_driver_that_publishes_ten_times_a_second_stalls_nothing(kind: str) -> None:
    nodes, others, make = RESTLESS[kind]
    infos = [make_node(f"n{number}").obj() for number in range(nodes)]
    slices = [make(version).obj() for version in range(1, 11)]
    assert_no_stall(lambda: _schedule_beside_driver(infos, others, slices), STALL_SECONDS)


def _schedule_beside_driver(nodes: list[Any], others: list[Any], slices: list[Any]) -> None:
    made = Decider(clock=LoopClock())
    made.set_cluster(nodes)
    claim = make_resource_claim("c").request(count=2, cel="device.driver != ''").obj()
    for one in (make_device_class().obj(), claim, *others):
        made.listers.require(type(one)).put(one)
    pod = with_claim(make_pod("web"), "c").obj()
    outcomes: list[Placed | Rejected] = []

    async def scheduling() -> None:
        for one in slices:
            made.listers.require(type(one)).put(one)
            await asyncio.sleep(0)
            found = await made.cycle.run(QueuedPodInfo(made.cache.pod_info(pod), 0.0))
            outcomes.append(found)
            if isinstance(found, Placed):
                made.cache.forget_pod(found.pod)
                made.profiles["default-scheduler"].framework.plugins["DynamicResources"].unreserve(
                    found.state, found.pod, found.node_name
                )
            await asyncio.sleep(0)

    asyncio.run(scheduling())
    assert all(isinstance(one, Placed) for one in outcomes)
    assert len(outcomes) == 10


async def test_devices_as_they_were_are_forgotten() -> None:
    made = Decider(clock=LoopClock())
    made.set_cluster([make_node("n0").obj()])
    claim = make_resource_claim("c").request(count=2, cel="device.driver != ''").obj()
    for one in (make_device_class().obj(), claim):
        made.listers.require(type(one)).put(one)
    pod = with_claim(make_pod("web"), "c").obj()
    plugin = made.profiles["default-scheduler"].framework.plugins["DynamicResources"]
    for version in range(1, 21):
        fresh = published(version).obj()
        made.listers.require(type(fresh)).put(fresh)
        found = await made.cycle.run(QueuedPodInfo(made.cache.pod_info(pod), 0.0))
        assert isinstance(found, Placed)
        made.cache.forget_pod(found.pod)
        plugin.unreserve(found.state, found.pod, found.node_name)
        plugin.sweep()
    del fresh, found
    gc.collect()

    assert sum(isinstance(one, PublishedSlice) for one in gc.get_objects()) <= 4


def test_the_names_of_thousands_of_claims_are_found_in_one_pass() -> None:
    names = [f"c{number}" for number in range(8000)]
    made = [{"name": name, "resourceClaimName": f"web-{name}"} for name in names]
    made.append({"name": "c0", "resourceClaimName": "the first counts"})
    template = "resourceClaimTemplateName"
    pod = make_pod("web").merge(
        {
            "spec": {"resourceClaims": [{"name": name, template: "t"} for name in names]},
            "status": {"resourceClaimStatuses": made},
        }
    )
    info = SchedulerCache(lambda: 0.0).pod_info(pod.obj())
    began = cpu_seconds()
    assert claim_keys(info) == [f"default/web-{name}" for name in names]
    assert cpu_seconds() - began < 0.1
