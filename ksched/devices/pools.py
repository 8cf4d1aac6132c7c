"""Pools of devices by node (structured/internal/incubating/pools_incubating.go, v1.36).

The *view* of a node is the pools of which some slice is available to it, in the order in which
devices are tried. Nodes with the same slices share a view. Pools that are equal but for names share
a *layout*.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import accumulate, chain, repeat
from weakref import WeakValueDictionary

from ksched.devices.slices import CounterAmounts, PoolDevice, PoolKey, PublishedSlice

SCANS_CACHED = 64
"""Of each layout."""


class Layout:
    """Shared by pools from which the same requests get devices at the same positions."""

    __slots__ = ("__weakref__", "_scanned", "values")

    def __init__(self) -> None:
        self._scanned: dict[Hashable, bool] = {}
        self.values: dict[str, frozenset[Hashable]] = {}
        """By name of an attribute, its values in the pool."""

    def scanned(self, request: Hashable, in_use: Hashable) -> bool | None:
        """Whether a request may find a device; ``None`` if none has looked at all of them."""
        return self._scanned.get((request, in_use))

    def note_scan(self, request: Hashable, in_use: Hashable, is_fruitful: bool) -> None:
        if len(self._scanned) >= SCANS_CACHED:
            self._scanned.clear()
        self._scanned[request, in_use] = is_fruitful


_layouts: WeakValueDictionary[Hashable, Layout] = WeakValueDictionary()


class Pool:
    """A pool, for nodes to which the same of its slices are available."""

    __slots__ = (
        "counters",
        "devices",
        "has_binding_conditions",
        "is_complete",
        "is_invalid",
        "key",
        "layout",
        "members",
        "on_node",
        "positions",
    )

    def __init__(
        self,
        key: PoolKey,
        slices: Sequence[PublishedSlice],
        others: Sequence[PublishedSlice],
        matches: Callable[[PoolDevice], bool],
        *,
        is_complete: bool,
    ) -> None:
        self.key = key
        self.is_complete = is_complete
        by_name = sorted(slices, key=lambda one: one.name.encode()) if is_complete else ()
        self.devices: tuple[PoolDevice, ...] = tuple(
            device for one in by_name if not one.has_counters for device in one.devices
        )
        self.on_node: tuple[bool, ...] = tuple(
            not one.published_by.is_per_device or matches(one) for one in self.devices
        )
        """By device, whether the node may use it."""
        self.members = (*self.devices, *(device for one in others for device in one.devices))
        """All devices of the pool, including those of slices for other nodes."""
        self.counters: CounterAmounts = {}
        self.is_invalid = is_complete and not self._is_valid([*by_name, *others])
        self.has_binding_conditions = self.is_usable and any(
            one.shape.device.binding_conditions is not None for one in self.devices
        )
        self.positions = {one.name: position for position, one in enumerate(self.members)}
        self.layout = self._layout()

    @property
    def is_usable(self) -> bool:
        return self.is_complete and not self.is_invalid

    def _is_valid(self, slices: Sequence[PublishedSlice]) -> bool:
        """kube-scheduler: poolIsInvalid."""
        # A name may be taken by a device of a slice that is not meant for the node.
        if len({one.name for one in self.devices}) < len(self.devices):
            return False
        for one in slices:
            if one.duplicate_set or not self.counters.keys().isdisjoint(one.counters):
                return False
            self.counters.update(one.counters)
        return all(
            name in self.counters and counters.keys() <= self.counters[name].keys()
            for one in slices
            for device in one.devices
            for name, counters in device.shape.consumes.items()
        )

    def _layout(self) -> Layout:
        is_unique = len(self.positions) == len(self.members)
        content = (
            # Devices of one name are in use together.
            () if is_unique else tuple(one.name for one in self.members),
            self.key[0],
            self.is_complete,
            self.is_invalid,
            self.on_node,
            tuple(one.shape.number for one in self.members),
            tuple(
                (name, tuple(sorted(counters.items())))
                for name, counters in sorted(self.counters.items())
            ),
        )
        return _layouts.setdefault(content, Layout())


class NodeView:
    """The pools of a node, in the order in which they are tried."""

    __slots__ = ("__weakref__", "candidates", "ends", "has_invalid_pools", "pools", "spans")

    def __init__(self, pools: tuple[Pool, ...]) -> None:
        self.pools = pools
        self.has_invalid_pools = any(pool.is_invalid for pool in pools)
        usable = [pool for pool in pools if pool.is_usable and pool.devices]
        self.candidates: tuple[tuple[PoolDevice, Pool, bool], ...] = tuple(
            chain.from_iterable(zip(pool.devices, repeat(pool), pool.on_node) for pool in usable)
        )
        ends = [*accumulate(len(pool.devices) for pool in usable)]
        self.spans: tuple[tuple[Pool, int, int], ...] = tuple(
            (pool, end - len(pool.devices), end) for pool, end in zip(usable, ends, strict=True)
        )
        """The pools of the candidates, and where those of each begin and end."""
        self.ends = ends
