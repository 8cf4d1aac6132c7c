"""Numbers of views and keys: what is the same is searched once, whoever asks."""

from __future__ import annotations

import pytest

from ksched.api.devices import ResourceClaim, ResourceSlice
from ksched.cache.cache import SchedulerCache
from ksched.cache.listers import Listers
from ksched.devices import node_views
from ksched.devices.node_views import NodeViews, PublishedDevices
from ksched.steps import at_once
from ksched.testing.builders import make_node
from ksched.testing.device_builders import DRIVER, consumes, make_resource_claim, make_slice

NODES = ("n1", "n2", "n3")
ALLOCATED = make_resource_claim("k").allocated({"request": "r", "pool": "n1", "device": "d0"})


class World:
    """Three nodes with the same two devices each."""

    def __init__(self) -> None:
        self.listers, self.cache = Listers(), SchedulerCache(lambda: 0.0)
        self.devices = self.listers.view(PublishedDevices)
        for name in NODES:
            self.cache.add_node(make_node(name).obj())
            slices = self.listers.require(ResourceSlice)
            slices.put(make_slice(name).device("d0").device("d1").obj())
        self.views = NodeViews(self.devices, self.cache.update_snapshot().table)

    def put(self, claim: ResourceClaim) -> None:
        self.listers.require(ResourceClaim).put(claim)

    @property
    def keys(self) -> list[int]:
        """By node."""
        at_once(self.views.catching_up())
        return self.views.key_numbers(self.views.ids(slice(None))).tolist()


def test_nodes_with_the_same_devices_in_use_have_one_key() -> None:
    world = World()
    assert world.keys == [0, 0, 0]
    world.put(ALLOCATED.obj())
    assert world.keys == [1, 0, 0]
    world.put(make_resource_claim("k").resource_version("2").obj())
    assert world.keys == [0, 0, 0]


def test_a_device_that_is_written_to_its_claim_changes_nothing() -> None:
    world = World()
    assert world.keys == [0, 0, 0]
    allocation = ALLOCATED.obj().status.allocation
    assert allocation is not None
    world.devices.claims.add_in_flight("uid", allocation)
    assert world.keys == [1, 0, 0]
    before = world.devices.generation
    world.put(ALLOCATED.obj())
    world.devices.claims.remove_in_flight("uid")
    assert world.devices.generation == before
    assert world.keys == [1, 0, 0]


def test_keys_as_they_were_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_views, "SPARE_KEYS", 0)
    world = World()
    for number in range(100):
        share = {"shareID": f"{number}", "consumedCapacity": {"memory": str(number)}}
        result = {"request": "r", "driver": DRIVER, "pool": "n1", "device": "d0", **share}
        world.put(make_resource_claim("k").allocated(result).obj())
        used, *free = world.keys
        assert used not in free
        assert len(set(free)) == 1
        assert len(world.views.keys) <= 2 * len(NODES) + 1


def test_counters_of_other_nodes_are_no_part_of_a_view() -> None:
    """Every slice with counters is relevant to every node, as in kube-scheduler."""
    world = World()
    for name in NODES:
        board = make_slice(name, pool=f"board-{name}").pool(slices=2)
        for one in (
            board.device("d0", fields=consumes("board", units="1")),
            board.merge({"metadata": {"name": f"counters-{name}"}, "spec": {"devices": None}})
            # The third board has no such counter: an invalid pool is seen by all nodes.
            .counters(board={"other" if name == "n3" else "units": "1"}),
        ):
            world.listers.require(ResourceSlice).put(one.obj())
    assert world.keys == [0, 0, 1]
    pools = [[pool.key[1] for pool in view.pools] for view in world.views.views]
    assert pools == [[f"board-{name}", "board-n3", name] for name in NODES[:2]] + [
        ["board-n3", "n3"]
    ]
