"""The views of nodes after any changes of slices, against pools gathered anew for each node."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ksched.api.devices import ResourceSlice
from ksched.cache.cache import SchedulerCache
from ksched.cache.listers import Listers
from ksched.devices.node_views import NodeViews, PublishedDevices
from ksched.devices.pools import NodeView, Pool
from ksched.devices.published_pools import Slices
from ksched.steps import at_once
from ksched.testing.builders import make_node
from ksched.testing.device_builders import ResourceSliceBuilder, consumes, make_slice
from lab.reference.device_pools import gather_pools

NODES = [make_node(f"n{number}").label(zone="ab"[number % 2]) for number in range(5)]
NAMES = [node.obj().metadata.name for node in NODES]
POOLS = ("p", "q", "é")


class World:
    """Five nodes in two zones, and slices that come and go."""

    def __init__(self) -> None:
        self.listers, self.cache = Listers(), SchedulerCache(lambda: 0.0)
        self.slices = self.listers.require(ResourceSlice)
        for node in NODES:
            self.cache.add_node(node.obj())
        self.devices = self.listers.view(PublishedDevices)
        self.views = NodeViews(self.devices, self.cache.update_snapshot().table)
        self.published: dict[str, ResourceSliceBuilder] = {}

    def put(self, one: ResourceSliceBuilder) -> None:
        obj = one.obj()
        self.published[obj.metadata.name] = one
        self.slices.put(obj)

    def remove(self, name: str) -> None:
        self.slices.remove(self.published.pop(name).obj())

    def seen(self) -> list[Any]:
        """By node."""
        at_once(self.views.catching_up())
        rows = self.views.table.rows
        ids = self.views.ids(slice(None))
        return [described(self.views.views[ids[rows[name]]]) for name in NAMES]

    def wanted(self) -> list[Any]:
        slices = [one.to_dict() for one in self.published.values()]
        return [
            [
                (
                    *(pool.driver, pool.name, pool.state),
                    [one.name for one in pool.devices] if pool.state != "incomplete" else [],
                    sorted(one.name for one in pool.members),
                )
                for pool in gather_pools(node.to_dict(), slices)
                if pool.devices or pool.state != "usable"
            ]
            for node in NODES
        ]


def described(view: NodeView) -> list[Any]:
    def state(pool: Pool) -> str:
        return "usable" if pool.is_usable else "invalid" if pool.is_complete else "incomplete"

    return [
        (
            *(*pool.key, state(pool), [one.name for one in pool.devices]),
            sorted(one.name for one in pool.members) if pool.is_complete else [],
        )
        for pool in view.pools
    ]


def random_slice(chance: Random) -> ResourceSliceBuilder:
    made = make_slice(name=f"s{chance.randrange(8)}", pool=chance.choice(POOLS))
    made = made.pool(generation=chance.randint(1, 2), slices=chance.randint(1, 3))
    kind = chance.choice(("local", "local", "zone", "all", "per device", "counters"))
    if kind in ("local", "counters"):
        where = {"allNodes": None, "nodeName": chance.choice(NAMES)}
        made = made.merge({"spec": where})
    elif kind == "zone":
        made = made.selecting(zone=chance.choice((["a"], ["b"], ["a", "b"])))
    elif kind == "per device":
        made = made.merge({"spec": {"allNodes": None, "perDeviceNodeSelection": True}})
    if kind == "counters":
        return made.merge({"spec": {"devices": None}}).counters(board={"units": "4"})
    for _ in range(chance.randint(0, 2)):
        fields: dict[str, Any] = {}
        if kind == "per device":
            fields = chance.choice(({"allNodes": True}, {"nodeName": chance.choice(NAMES)}))
        elif chance.random() < 0.3:
            fields = consumes("board", **{chance.choice(("units", "units", "other")): "1"})
        if chance.random() < 0.2:
            fields |= {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}
        made = made.device(f"d{chance.randrange(40)}", fields=fields)
    return made


@pytest.mark.parametrize("seed", range(12))
def test_views_are_those_of_pools_gathered_anew(seed: int) -> None:
    chance, world = Random(seed), World()
    for _ in range(60):
        if world.published and chance.random() < 0.3:
            world.remove(chance.choice(list(world.published)))
        else:
            world.put(random_slice(chance))
        if chance.random() < 0.7:
            assert world.seen() == world.wanted()


BOARDS = 300


def boards(world: World) -> None:
    for number in range(BOARDS):
        common = make_slice(pool=f"board-{number}").selecting(zone=["a", "b"]).pool(slices=2)
        devices = common.device("d", fields=consumes("board", units="1"))
        world.put(devices)
        world.put(counters_of(common, number))


def counters_of(common: ResourceSliceBuilder, number: int) -> ResourceSliceBuilder:
    named = common.merge({"metadata": {"name": f"counters-{number}"}, "spec": {"devices": None}})
    return named.counters(board={"units": "4"})


def test_a_changed_pool_of_a_group_is_looked_up_once_for_all_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, looked_up = World(), 0
    boards(world)
    look_up = Slices._look_up

    def counting(*args: Any) -> None:
        nonlocal looked_up
        looked_up += 1
        look_up(*args)

    monkeypatch.setattr(Slices, "_look_up", counting)
    assert len(world.seen()[0]) == BOARDS
    assert looked_up == BOARDS
    changed = make_slice(pool="board-7").selecting(zone=["a", "b"]).pool(slices=2)
    world.put(changed.device("e", fields=consumes("board", units="1")))
    assert all(("board-7", ["e"]) in [(one[1], one[3]) for one in seen] for seen in world.seen())
    assert looked_up == BOARDS + 1
    assert len(set(world.views.ids(slice(None)).tolist())) == 1


def test_a_board_of_one_node_concerns_this_node_only() -> None:
    world = World()
    for number, name in enumerate(NAMES):
        common = make_slice(name, pool=f"board-{name}").pool(slices=2)
        world.put(common.device("d", fields=consumes("board", units="1")))
        world.put(counters_of(common, number))
    assert world.seen() == world.wanted()
    changed = world.devices.slices.changed_nodes
    before = changed.generation
    again = make_slice("n1", pool="board-n1").pool(slices=2)
    world.put(again.device("e", fields=consumes("board", units="1")))
    assert changed.since(before) == ["n1"]
    assert world.seen() == world.wanted()
    # Something is wrong with it: kube-scheduler sees it on every node.
    world.put(again.device("e", fields=consumes("board", other="1")))
    assert changed.since(before) is None
    assert world.seen() == world.wanted()


def test_what_was_given_up_during_a_pause_is_done_later() -> None:
    world = World()
    boards(world)
    for pauses in (1, 5, 15, 40):
        steps = world.views.catching_up()
        for _ in range(pauses):
            next(steps, None)
        steps.close()
        world.put(make_slice("n1", pool=f"more-{pauses}").device("d"))
    assert world.seen() == world.wanted()
