"""What a large pod brought is freed with it, without the garbage collector and without a next pod.

Collections of the oldest generation are rare on purpose: they stop everything. So memory that only
they would free is a leak that a tenant can repeat.
"""

from __future__ import annotations

import gc

import pytest

from ksched.cache.pod_info import PodTemplate
from ksched.framework import time_slices
from ksched.testing import cluster, make_node
from lab.bulky import MOST, bulky_pod

SIZE = 300
LONG_SECONDS = 90.0
"""Caches drop what was not used since the last sweep but one."""


CUT_SHORT = ("node affinity terms", "pod affinity terms", "preferred pod affinity terms")


@pytest.mark.parametrize(
    ("kind", "is_cut_short"),
    [*((kind, False) for kind in MOST), *((kind, True) for kind in CUT_SHORT)],
)
async def test_no_reference_cycle_keeps_a_large_pod(
    kind: str, is_cut_short: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = SIZE
    if is_cut_short:
        monkeypatch.setattr(time_slices, "ATTEMPT_SECONDS", -0.001)
        size = 10 * SIZE
    nodes = [make_node(f"node-{number}").label(zone=f"zone-{number % 2}") for number in range(4)]
    async with cluster(nodes, check_declarations=False) as c:
        for _ in range(2):
            # The first round fills what is kept once for all.
            gc.collect()
            gc.disable()
            try:
                await c.create(bulky_pod(kind, size, name="large").label(is_large="yes"))
                await c.advance(5)
                await c.delete("large", grace_seconds=0)
                await c.advance(LONG_SECONDS)
                left = gc.collect()
            finally:
                gc.enable()
        assert not left
        templates = [one for one in gc.get_objects() if isinstance(one, PodTemplate)]
        assert not [one for one in templates if "is_large" in one.labels], "kept by the last reader"
