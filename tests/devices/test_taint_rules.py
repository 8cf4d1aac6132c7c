"""Taints of DeviceTaintRules, on slices as they come and go."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from ksched.api.decoding import decoder_of
from ksched.api.devices import DeviceTaintRule, ResourceSlice
from ksched.api.watched_kinds import watched_kind
from ksched.cache.listers import Listers
from ksched.devices.node_views import PublishedDevices
from ksched.steps import at_once
from ksched.testing.device_builders import DRIVER, make_slice, tainted

POOLS, DEVICES = ("a", "b"), ("d0", "d1")
_decode = decoder_of(watched_kind(DeviceTaintRule))


def rule(name: str = "r", effect: str = "NoSchedule", **selector: str) -> DeviceTaintRule:
    taint = {"key": name, "value": "v", "effect": effect}
    spec: dict[str, Any] = {"taint": taint}
    if selector:
        spec["deviceSelector"] = selector
    return _decode(msgspec.json.encode({"metadata": {"name": name}, "spec": spec}))


class World:
    """Two pools of two devices; what rules do to them, and what they should do."""

    def __init__(self) -> None:
        self.listers = Listers()
        self.devices = self.listers.view(PublishedDevices.with_taint_rules)
        self.rules = self.listers.require(DeviceTaintRule)
        self.slices = self.listers.require(ResourceSlice)

    def publish(self, pool: str, driver: str = DRIVER) -> None:
        fields = tainted(key="own")
        self.slices.put(
            make_slice(pool, driver=driver).device("d0").device("d1", fields=fields).obj()
        )

    @property
    def taints(self) -> dict[str, set[str]]:
        """By device, the keys of its taints."""
        at_once(self.devices.catching_up())
        return {
            str(device): {taint.key for taint in device.shape.taints}
            for one in self.devices.slices
            for device in one.devices
        }

    @property
    def expected(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for published in self.slices:
            spec = published.spec
            for device in spec.devices:
                where = {"driver": spec.driver, "pool": spec.pool.name, "device": device.name}
                keys = {taint.key for taint in device.taints}
                for one in self.rules:
                    selector = one.spec.device_selector
                    wanted = {} if selector is None else msgspec.structs.asdict(selector)
                    if all(wanted.get(key) in (None, value) for key, value in where.items()):
                        keys.add(one.spec.taint.key)
                found[f"{spec.driver}/{spec.pool.name}/{device.name}"] = keys
        return found


@pytest.mark.parametrize(
    ("selector", "concerned"),
    [
        pytest.param({}, "a/d0 a/d1 b/d0 b/d1", id="everything"),
        pytest.param({"driver": DRIVER}, "a/d0 a/d1 b/d0 b/d1", id="a driver"),
        pytest.param({"driver": "other"}, "", id="another driver"),
        pytest.param({"pool": "a"}, "a/d0 a/d1", id="a pool"),
        pytest.param({"device": "d1"}, "a/d1 b/d1", id="devices of a name"),
        pytest.param({"driver": DRIVER, "pool": "b", "device": "d0"}, "b/d0", id="one device"),
    ],
)
def test_a_rule_taints_the_devices_that_have_all_it_selects(
    selector: dict[str, str], concerned: str
) -> None:
    world = World()
    for pool in POOLS:
        world.publish(pool)
    before = world.taints
    world.rules.put(rule(**selector))
    with_rule = {device for device, taints in world.taints.items() if "r" in taints}
    assert with_rule == {f"{DRIVER}/{device}" for device in concerned.split()}
    world.rules.remove(rule(**selector))
    assert world.taints == before


def test_an_effect_that_only_informs_taints_nothing() -> None:
    world = World()
    world.publish("a")
    world.rules.put(rule(effect="None"))
    assert world.taints == {f"{DRIVER}/a/d0": set(), f"{DRIVER}/a/d1": {"own"}}


def test_a_rule_concerns_only_slices_that_it_may_select() -> None:
    world = World()
    for pool in POOLS:
        world.publish(pool)
    at_once(world.devices.catching_up())
    changed = world.devices.slices.changed_nodes.cursor()
    changed.go_to_end()
    world.rules.put(rule(pool="a"))
    at_once(world.devices.catching_up())
    assert changed.changes() == ["a"]


def test_random_sequences_of_rules_and_slices() -> None:
    for seed in range(200):
        rng, world = random.Random(seed), World()
        for _ in range(30):
            pool, driver = rng.choice(POOLS), rng.choice((DRIVER, "other"))
            name = f"r{rng.randrange(4)}"
            wanted = {"driver": driver, "pool": pool, "device": rng.choice(DEVICES)}
            selector = {key: value for key, value in wanted.items() if rng.random() < 0.5}
            match rng.randrange(4):
                case 0:
                    world.publish(pool, driver)
                case 1:
                    world.slices.remove(make_slice(pool, driver=driver).obj())
                case 2:
                    world.rules.put(rule(name, **selector))
                case _:
                    world.rules.remove(rule(name))
            if rng.random() < 0.7:
                assert world.taints == world.expected, seed
