"""How much work claims and extended resources are: counted, not timed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ksched import benchmark
from ksched.devices.allocator import allocate
from ksched.devices.node_views import NodeViews
from ksched.framework.plugins.dynamic_resources import verdicts_by_view
from ksched.framework.plugins.dynamic_resources.verdicts_by_view import VerdictsByView
from ksched.testing.device_workloads import (
    DEVICE_WORKLOADS,
    DEVICES_PER_NODE,
    EXTENDED_CLASSES,
)

NODES = 40


class Counts:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.searches = self.keys = self.lookups = 0

        def searching(*args: Any) -> Any:
            self.searches += 1
            return allocate(*args)

        number_key = NodeViews._number_key

        def numbering(views: NodeViews, number: int) -> None:
            self.keys += 1
            number_key(views, number)

        unknown = VerdictsByView.unknown

        def looking_up(verdicts: VerdictsByView, ids: NDArray[np.int32]) -> list[tuple[int, int]]:
            self.lookups += 1
            return unknown(verdicts, ids)

        monkeypatch.setattr(VerdictsByView, "unknown", looking_up)
        monkeypatch.setattr(verdicts_by_view, "allocate", searching)
        monkeypatch.setattr(NodeViews, "_number_key", numbering)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counts:
    return Counts(monkeypatch)


POOLS_OF_ALL = ("partitions", "capacity", "backtracking")
CLASSES = ("extended", "extended50", "implicit")


@pytest.mark.parametrize("size", [10, 20])
@pytest.mark.parametrize("workload", DEVICE_WORKLOADS)
async def test_searches_of_a_workload(counts: Counts, workload: str, size: int) -> None:
    pods = 2 * size
    figures = await benchmark.measure(workload, nodes=size, pods=pods)
    assert figures.placed == pods
    if workload in POOLS_OF_ALL:
        assert counts.searches <= pods + 1, "a pod changes what all nodes see"
    elif workload in CLASSES:
        assert counts.searches <= 3 * pods, "by class, and by how many of a node are in use"
    else:
        assert counts.searches <= DEVICES_PER_NODE + 1, "however many pods"


async def test_claims_of_one_template_are_searched_once_for_nodes_alike(counts: Counts) -> None:
    figures = await benchmark.measure("claims", nodes=NODES, pods=3 * NODES)
    assert figures.placed == 3 * NODES
    assert counts.searches <= DEVICES_PER_NODE + 1, "by how many of a node are in use"
    assert counts.keys == NODES + figures.pods - 1, "one for each pod whose devices are chosen"
    assert counts.lookups <= figures.pods + counts.searches, "by PreFilter alone"
    assert figures.rows_per_decision < 1.5 * NODES, "scores only where requests have alternatives"


async def test_extended_resources_are_searched_once_for_each_class(counts: Counts) -> None:
    """Pods of five labels each ask for every class: other templates, but the same devices."""
    pods = 10 * EXTENDED_CLASSES
    figures = await benchmark.measure("extended", nodes=NODES, pods=pods)
    assert figures.placed == pods
    assert counts.searches <= EXTENDED_CLASSES * (DEVICES_PER_NODE + 1)
    assert counts.keys == NODES + pods - 1, "shared by all classes"


@pytest.mark.parametrize("nodes", [40, 80])
async def test_pods_that_share_other_claims_share_what_other_plugins_found(nodes: int) -> None:
    """Every claim has pods of its own: NodeResourcesFit and the scores are not asked anew."""
    figures = await benchmark.measure("sharedclaims", nodes=nodes, pods=nodes)
    assert figures.placed == nodes
    assert figures.rows_per_decision < 1.5 * nodes, "DynamicResources about all, others about few"
