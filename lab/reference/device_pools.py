"""Pools of devices as a node sees them, written for clarity; see ``lab.reference.devices``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

from ksched.api.quantity import to_nanos

Json: TypeAlias = Mapping[str, Any]


class Found(NamedTuple):
    """A device of a pool."""

    driver: str
    pool: str
    name: str
    device: Json
    slice_spec: Json

    @property
    def id(self) -> tuple[str, str, str]:
        return self.driver, self.pool, self.name


class Pool(NamedTuple):
    """A pool as a node sees it."""

    driver: str
    name: str
    state: str
    """usable, incomplete or invalid"""
    devices: Sequence[Found]
    members: Sequence[Found]
    counters: Mapping[str, Mapping[str, Fraction]]


def amount(quantity: Any) -> Fraction:
    return Fraction(to_nanos(quantity), 10**9)


def is_meant_for(where: Json, node: Json) -> bool:
    if where.get("nodeName"):
        return bool(where["nodeName"] == node["metadata"]["name"])
    if where.get("allNodes"):
        return True
    selector = where.get("nodeSelector")
    return selector is not None and any(
        _term_matches(term, node) for term in selector["nodeSelectorTerms"]
    )


def _term_matches(term: Json, node: Json) -> bool:
    labels = node["metadata"].get("labels", {})
    return all(
        one["operator"] == "In" and labels.get(one["key"]) in one["values"]
        for one in term.get("matchExpressions", [])
    )


def is_relevant(spec: Json, node: Json) -> bool:
    if spec.get("sharedCounters"):
        return True
    if spec.get("perDeviceNodeSelection"):
        return any(is_meant_for(device, node) for device in spec.get("devices") or [])
    return is_meant_for(spec, node)


def gather_pools(node: Json, slices: Sequence[Json]) -> list[Pool]:
    keys = {
        (one["spec"]["driver"], one["spec"]["pool"]["name"])
        for one in slices
        if is_relevant(one["spec"], node)
    }
    pools = [
        pool
        for driver, name in sorted(keys, key=lambda key: (key[0].encode(), key[1].encode()))
        if (pool := _pool(node, slices, driver, name)) is not None
    ]
    plain = [pool for pool in pools if not _has_binding_conditions(pool)]
    return plain + [pool for pool in pools if _has_binding_conditions(pool)]


def _has_binding_conditions(pool: Pool) -> bool:
    return pool.state == "usable" and any(
        one.device.get("bindingConditions") is not None for one in pool.devices
    )


def _pool(node: Json, slices: Sequence[Json], driver: str, name: str) -> Pool | None:
    def generation(one: Json) -> int:
        return int(one["spec"]["pool"]["generation"])

    of_pool = [
        one
        for one in slices
        if one["spec"]["driver"] == driver and one["spec"]["pool"]["name"] == name
    ]
    relevant = [one for one in of_pool if is_relevant(one["spec"], node)]
    newest = max(map(generation, relevant))
    own = [one for one in relevant if generation(one) == newest]
    # Slices that say different numbers: which is believed is chance in kube-scheduler.
    first = min(own, key=lambda one: one["metadata"]["name"])
    declared = first["spec"]["pool"]["resourceSliceCount"]
    everything = own
    if len(own) != declared:
        if any(generation(one) > newest for one in of_pool):
            return None
        everything = [one for one in of_pool if generation(one) == newest]
        if len(everything) != declared:
            return Pool(driver, name, "incomplete", (), (), {})

    def devices_of(some: Sequence[Json]) -> list[Found]:
        by_name = sorted(some, key=lambda one: one["metadata"]["name"].encode())
        return [
            Found(driver, name, device["name"], device, one["spec"])
            for one in by_name
            for device in one["spec"].get("devices") or []
        ]

    members = devices_of(everything)
    sets = [each for one in everything for each in one["spec"].get("sharedCounters") or []]
    counters = {
        one["name"]: {key: amount(counter["value"]) for key, counter in one["counters"].items()}
        for one in sets
    }
    names = [one.name for one in devices_of(own)]
    is_valid = len(set(names)) == len(names) and len(counters) == len(sets)
    for one in members:
        for consumed in one.device.get("consumesCounters") or []:
            known = counters.get(consumed["counterSet"])
            is_valid = (
                is_valid and known is not None and consumed["counters"].keys() <= known.keys()
            )
    state = "usable" if is_valid else "invalid"
    return Pool(driver, name, state, devices_of(own), members, counters)
