"""Nothing refers to a large pod any more when it is gone."""

from __future__ import annotations

import gc

import pytest

from ksched.api.large_pods import LargePodSpec
from ksched.scheduling import sweeping
from ksched.testing import cluster, make_node, make_pod
from lab.bulky import bulky_pod

KINDS = {"containers": 1_000, "disks": 3_000, "host ports": 2_000, "pod anti-affinity terms": 1_000}
LONG_SECONDS = 90.0
"""Caches drop what was not used since the last sweep but one."""


@pytest.mark.parametrize("kind", KINDS)
async def test_a_large_pod_that_others_waited_for_is_released(kind: str) -> None:
    nodes = [make_node("node-0").capacity(cpu="4")]
    async with cluster(nodes, check_declarations=False) as c:
        await c.create(make_pod("full").req(cpu="9"))
        await c.create(make_pod("disk").merge(_with_disk()), make_pod("port").host_port(1))
        await c.create(bulky_pod(kind, KINDS[kind], name="large").node("node-0"))
        await c.create(make_pod("port-too").host_port(1))
        await c.advance(sweeping.SWEEP_SECONDS + 1)
        assert _large_specs()

        await c.delete("large", grace_seconds=0)
        await c.advance(LONG_SECONDS)
        assert not _large_specs()


def _large_specs() -> list[object]:
    gc.collect()
    return [one for one in gc.get_objects() if isinstance(one, LargePodSpec)]


def _with_disk() -> dict[str, object]:
    disk = {"name": "v", "gcePersistentDisk": {"pdName": "disk-1"}}
    return {"spec": {"volumes": [disk]}}
