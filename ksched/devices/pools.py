"""Pools of devices by node (structured/internal/incubating/pools_incubating.go, v1.36).

The *view* of a node is the pools of which some slice is available to it, in the order in which
devices are tried. Nodes with the same slices share a view. Pools that are equal but for names share
a *layout*.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import accumulate
from weakref import WeakValueDictionary

from ksched.api.devices import ResourceSlice
from ksched.cache.change_log import ChangeLog
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
        self.candidates: tuple[tuple[PoolDevice, Pool, bool], ...] = tuple(
            (device, pool, is_on_node)
            for pool in pools
            if pool.is_usable
            for device, is_on_node in zip(pool.devices, pool.on_node, strict=True)
        )
        usable = [pool for pool in pools if pool.is_usable and pool.devices]
        ends = [*accumulate(len(pool.devices) for pool in usable)]
        self.spans: tuple[tuple[Pool, int, int], ...] = tuple(
            (pool, end - len(pool.devices), end) for pool, end in zip(usable, ends, strict=True)
        )
        """The pools of the candidates, and where those of each begin and end."""
        self.ends = ends


class _Published:
    """All slices of a pool."""

    __slots__ = ("pools", "slices")

    def __init__(self) -> None:
        self.slices: dict[str, PublishedSlice] = {}
        self.pools: dict[Hashable, Pool] = {}
        """The pools of views, by slices and matching devices; until a slice changes."""


class Slices:
    """All published slices, and the views of nodes."""

    def __init__(self) -> None:
        self._slices: dict[str, PublishedSlice] = {}
        self._pools: dict[PoolKey, _Published] = {}
        self._local: dict[str, dict[str, PublishedSlice]] = {}
        """Slices for one node, by its name."""
        self._wide: dict[str, PublishedSlice] = {}
        """All others; slices with counters are relevant to every node."""
        self._interned: WeakValueDictionary[tuple[int, ...], NodeView] = WeakValueDictionary()
        self.changed_nodes: ChangeLog[str] = ChangeLog()
        """Nodes whose view may have changed; forgets when that may be all nodes."""

    def __len__(self) -> int:
        return len(self._slices)

    def __iter__(self) -> Iterator[PublishedSlice]:
        return iter(self._slices.values())

    def put(self, published: ResourceSlice) -> None:
        self.remove(published.metadata.name)
        one = PublishedSlice(published)
        self._slices[one.name] = one
        self._pools.setdefault(one.pool, _Published()).slices[one.name] = one
        self._index_of(one)[one.name] = one
        self._note(one.pool)

    def remove(self, name: str) -> None:
        one = self._slices.pop(name, None)
        if one is None:
            return
        self._note(one.pool)
        del self._pools[one.pool].slices[name]
        if not self._pools[one.pool].slices:
            del self._pools[one.pool]
        index = self._index_of(one)
        del index[name]
        if not index and index is not self._wide:
            del self._local[one.nodes.node_name]

    def _index_of(self, one: PublishedSlice) -> dict[str, PublishedSlice]:
        if one.nodes.node_name and not one.has_counters:
            return self._local.setdefault(one.nodes.node_name, {})
        return self._wide

    def _note(self, key: PoolKey) -> None:
        """Record which nodes may have another view after a change of the pool."""
        published = self._pools[key]
        published.pools.clear()
        if any(one.name in self._wide for one in published.slices.values()):
            self.changed_nodes.forget()
            return
        for one in published.slices.values():
            self.changed_nodes.append(one.nodes.node_name)

    # -- views of nodes -------------------------------------------------------------------------

    def relevant(self, node_name: str, labels: Mapping[str, str]) -> list[PublishedSlice]:
        """Return the slices that are relevant to a node."""
        own = self._local.get(node_name)
        found = list(own.values()) if own else []
        found += [one for one in self._wide.values() if one.is_relevant(node_name, labels)]
        return found

    def view(self, node_name: str, labels: Mapping[str, str]) -> NodeView:
        """kube-scheduler: GatherPools."""
        by_pool: dict[PoolKey, list[PublishedSlice]] = {}
        for one in self.relevant(node_name, labels):
            members = by_pool.setdefault(one.pool, [])
            if members and one.generation > members[0].generation:
                members.clear()
            if not members or one.generation == members[0].generation:
                members.append(one)
        pools = []
        for key in sorted(by_pool, key=lambda one: (one[0].encode(), one[1].encode())):
            pool = self._pool(key, by_pool[key], node_name, labels)
            # Counters without devices for the node matter only if something is wrong with them.
            if pool is not None and (pool.devices or not pool.is_usable):
                pools.append(pool)
        plain = [one for one in pools if not one.has_binding_conditions]
        ordered = (*plain, *(one for one in pools if one.has_binding_conditions))
        identity = tuple(id(pool) for pool in ordered)
        view = self._interned.get(identity)
        if view is None:
            view = self._interned[identity] = NodeView(ordered)
        return view

    def _pool(
        self,
        key: PoolKey,
        slices: list[PublishedSlice],
        node_name: str,
        labels: Mapping[str, str],
    ) -> Pool | None:
        slices.sort(key=lambda one: one.name)
        published, first = self._pools[key], slices[0]
        others: list[PublishedSlice] = []
        is_complete = len(slices) == first.declared_slices
        if not is_complete:
            all_slices = published.slices.values()
            if any(one.generation > first.generation for one in all_slices):
                return None
            same = [one for one in all_slices if one.generation == first.generation]
            is_complete = len(same) == first.declared_slices
            if is_complete:
                others = [one for one in same if one not in slices]

        def matches(device: PoolDevice) -> bool:
            return device.shape.nodes.matches(node_name, labels)

        marks = tuple(
            matches(device) for one in slices if one.is_per_device for device in one.devices
        )
        identity = (tuple(one.name for one in slices), marks)
        pool = published.pools.get(identity)
        if pool is None:
            pool = Pool(key, slices, others, matches, is_complete=is_complete)
            published.pools[identity] = pool
        return pool
