"""The generator, on the embedded server: everything it makes must be accepted."""

from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import Any

import msgspec
import pytest

from ksched.api.resources import NAMESPACES, NODES, PODS, REPLICA_SETS, SERVICES
from ksched.apiserver.api_server import ApiServer
from ksched.apiserver.in_process import InProcessTransport
from ksched.client.rest import ApiClient
from ksched.testing.virtual_time import VirtualClock
from lab.parity.manifests import NEVER_PREEMPTING, POD_PARTS, RandomManifests
from lab.parity.scenario import PRIORITY_CLASSES


def made(seed: int) -> list[tuple[Any, Any]]:
    source = RandomManifests(Random(seed))
    nodes = [source.node(f"n{number}") for number in range(4)]
    source.node_names = [node["metadata"]["name"] for node in nodes]
    never = {"metadata": {"name": NEVER_PREEMPTING}, "value": 0, "preemptionPolicy": "Never"}
    return [
        (PRIORITY_CLASSES, never),
        *((NAMESPACES, obj) for obj in source.namespaces()),
        *((SERVICES, obj) for obj in source.services()),
        *((REPLICA_SETS, obj) for obj in source.replica_sets()),
        *((NODES, obj) for obj in nodes),
        *((PODS, source.running_pod(f"r{n}", source.node_names)) for n in range(15)),
        *((PODS, source.pod(f"p{number}")) for number in range(60)),
    ]


def test_a_seed_makes_the_same_objects_again() -> None:
    assert made(3) == made(3)
    assert made(3) != made(4)


@pytest.mark.parametrize("seed", range(20))
async def test_a_server_accepts_whatever_is_made(seed: int) -> None:
    clock = VirtualClock()
    client = ApiClient(InProcessTransport(ApiServer(clock)), clock)

    for resource, obj in made(seed):
        namespace = obj["metadata"].get("namespace", "")
        await client.create(resource, namespace, msgspec.json.encode(obj))


@pytest.mark.parametrize("part", POD_PARTS, ids=lambda part: part.__name__)
def test_every_part_adds_something(part: Any) -> None:
    source = RandomManifests(Random(0), parts=[])
    source.node_names = ["n1"]
    plain = source.pod("web")
    pod = deepcopy(plain)

    part(source, pod)

    assert pod != plain
    assert part.__doc__
