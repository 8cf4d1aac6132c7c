"""All published slices, and the views of nodes (``pools``).

What a pool is to a node depends on which of its slices are available there. Pools are kept apart by
what decides that, so that a view takes few steps and a changed slice concerns few views:

* *Local* pools have slices for named nodes and belong to the views of these nodes.
* Pools of a *group* have slices with the same node selectors, or counters alone. They are the same
  pools for all nodes that match the same of these selectors.
* *Mixed* pools, with both or with devices that select nodes by themselves, are looked at for each
  node.

Counters are relevant to every node, as in kube-scheduler: a local pool with counters is in the
group of no selectors too, for all nodes but its own.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Hashable, Iterator, Mapping, Sequence
from types import MappingProxyType
from weakref import WeakValueDictionary

from ksched.api.devices import ResourceSlice
from ksched.cache.change_log import ChangeLog
from ksched.devices.pools import NodeView, Pool
from ksched.devices.slices import NodeSelection, PoolDevice, PoolKey, PublishedSlice

POOLS_PER_PAUSE = 16
"""A pool of some devices takes some hundredths of a millisecond."""

_NO_LABELS: Mapping[str, str] = MappingProxyType({})

Matches = tuple[bool, ...]
"""By selection of a group, whether a node matches it."""


class _Alike:
    """The pools of a group for nodes that match the same of its selections."""

    __slots__ = ("found", "pools", "todo")

    def __init__(self, keys: Collection[PoolKey]) -> None:
        self.todo = set(keys)
        self.found: dict[PoolKey, Pool] = {}
        self.pools: tuple[Pool, ...] | None = None
        """In their order; ``None`` until all have been looked up."""


class _Group:
    """Pools whose slices have the same node selections."""

    __slots__ = ("_by_matches", "keys", "selections")

    def __init__(self, selections: tuple[NodeSelection, ...]) -> None:
        self.selections = selections
        self.keys: set[PoolKey] = set()
        self._by_matches: dict[Matches, _Alike] = {}

    def note(self, key: PoolKey) -> None:
        """A pool has come, gone or changed."""
        for alike in self._by_matches.values():
            alike.todo.add(key)
            alike.pools = None

    def alike(self, matches: Matches) -> _Alike:
        known = self._by_matches.get(matches)
        if known is None:
            known = self._by_matches[matches] = _Alike(self.keys)
        return known


class _Published:
    """All slices of a pool."""

    __slots__ = ("group", "is_mixed", "nodes", "pools", "slices")

    def __init__(self) -> None:
        self.slices: dict[str, PublishedSlice] = {}
        self.pools: dict[Hashable, Pool] = {}
        """The pools of views, by slices and matching devices; until a slice changes."""
        self.is_mixed = False
        self.nodes: Sequence[str] = ()
        """Nodes with slices of their own, unless it is mixed."""
        self.group: _Group | None = None

    @property
    def counters(self) -> list[PublishedSlice]:
        return [one for one in self.slices.values() if one.has_counters]


class Slices:
    """All published slices, and the views of nodes."""

    def __init__(self) -> None:
        self._slices: dict[str, PublishedSlice] = {}
        self._pools: dict[PoolKey, _Published] = {}
        self._of_node: dict[str, dict[str, PublishedSlice]] = {}
        """Slices for one node, by its name."""
        self._wide: dict[str, PublishedSlice] = {}
        """All others."""
        self._local: dict[str, set[PoolKey]] = {}
        """Pools by node."""
        self._groups: dict[tuple[NodeSelection, ...], _Group] = {}
        self._mixed: set[PoolKey] = set()
        self._shared: dict[Hashable, tuple[Sequence[tuple[Pool, ...]], NodeView]] = {}
        """Views of nodes that have only pools of groups, by the identities of these."""
        self._interned: WeakValueDictionary[tuple[int, ...], NodeView] = WeakValueDictionary()
        self.changed_nodes: ChangeLog[str] = ChangeLog()
        """Nodes whose view may have changed; forgets when that may be all nodes."""

    def __len__(self) -> int:
        return len(self._slices)

    def __iter__(self) -> Iterator[PublishedSlice]:
        return iter(self._slices.values())

    def put(self, published: ResourceSlice) -> None:
        self._replace(published.metadata.name, PublishedSlice(published))

    def remove(self, name: str) -> None:
        if name in self._slices:
            self._replace(name, None)

    # -- changes --------------------------------------------------------------------------------

    def _replace(self, name: str, new: PublishedSlice | None) -> None:
        old = self._slices.pop(name, None)
        keys = dict.fromkeys(one.pool for one in (old, new) if one is not None)
        concerned: set[str] = set()
        are_all = any(not self._add_concerned(key, concerned) for key in keys)
        for key in keys:
            self._leave(key)
        if old is not None:
            del self._pools[old.pool].slices[name]
            index = self._index_of(old)
            del index[name]
            if not index and index is not self._wide:
                del self._of_node[old.nodes.node_name]
        if new is not None:
            self._slices[name] = new
            self._pools.setdefault(new.pool, _Published()).slices[name] = new
            self._index_of(new)[name] = new
        for key in keys:
            self._enter(key)
        self._shared.clear()
        if are_all or any(not self._add_concerned(key, concerned) for key in keys):
            self.changed_nodes.forget()
            return
        # Something has changed, even if no node is concerned.
        for node_name in concerned or ("",):
            self.changed_nodes.append(node_name)

    def _index_of(self, one: PublishedSlice) -> dict[str, PublishedSlice]:
        if one.is_local:
            return self._of_node.setdefault(one.nodes.node_name, {})
        return self._wide

    def _add_concerned(self, key: PoolKey, nodes: set[str]) -> bool:
        """Add the nodes whose views have a pool; False if that may be all nodes."""
        published = self._pools.get(key)
        if published is None:
            return True
        group = published.group
        if published.is_mixed or (group is not None and group.selections):
            return False
        if group is not None and self._found(key, published.counters) is not None:
            return False
        nodes.update(published.nodes)
        return True

    def _leave(self, key: PoolKey) -> None:
        published = self._pools.get(key)
        if published is None:
            return
        published.pools.clear()
        self._mixed.discard(key)
        for node_name in published.nodes:
            self._local[node_name].discard(key)
            if not self._local[node_name]:
                del self._local[node_name]
        published.nodes = ()
        group, published.group = published.group, None
        if group is not None:
            group.keys.discard(key)
            group.note(key)
            if not group.keys:
                del self._groups[group.selections]

    def _enter(self, key: PoolKey) -> None:
        published = self._pools[key]
        slices = published.slices.values()
        if not slices:
            del self._pools[key]
            return
        wide = [one for one in slices if not one.is_local and not one.has_counters]
        nodes = dict.fromkeys(one.nodes.node_name for one in slices if one.is_local)
        published.is_mixed = any(one.is_per_device for one in slices) or bool(wide and nodes)
        if published.is_mixed:
            self._mixed.add(key)
            return
        published.nodes = tuple(nodes)
        for node_name in nodes:
            self._local.setdefault(node_name, set()).add(key)
        if wide or published.counters:
            selections = tuple(dict.fromkeys(one.nodes for one in wide))
            group = self._groups.get(selections)
            if group is None:
                group = self._groups[selections] = _Group(selections)
            group.keys.add(key)
            group.note(key)
            published.group = group

    # -- views of nodes -------------------------------------------------------------------------

    def relevant(self, node_name: str, labels: Mapping[str, str]) -> list[PublishedSlice]:
        """Return the slices that are relevant to a node."""
        own = self._of_node.get(node_name)
        found = list(own.values()) if own else []
        found += [one for one in self._wide.values() if one.is_relevant(node_name, labels)]
        return found

    def view(self, node_name: str, labels: Mapping[str, str]) -> NodeView:
        """kube-scheduler: GatherPools."""
        steps = self.viewing(node_name, labels)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                view: NodeView = end.value
                return view

    def viewing(self, node_name: str, labels: Mapping[str, str]) -> Generator[None, None, NodeView]:
        """The same, with pauses."""
        parts: list[tuple[Pool, ...]] = []
        for group in list(self._groups.values()):
            matches = tuple(one.matches(node_name, labels) for one in group.selections)
            alike = group.alike(matches)
            while alike.todo:
                self._look_up(alike.todo.pop(), group, matches, alike)
                if len(alike.todo) % POOLS_PER_PAUSE == 0:
                    yield
            if alike.pools is None:
                alike.pools = tuple(alike.found[key] for key in sorted(alike.found))
            if alike.pools:
                parts.append(alike.pools)
        own = self._own_pools(node_name, labels)
        if own:
            return self._view_of(parts, own)
        identity = tuple(id(part) for part in parts)
        known = self._shared.get(identity)
        if known is None:
            known = self._shared[identity] = (parts, self._view_of(parts, own))
        return known[1]

    def _look_up(self, key: PoolKey, group: _Group, matches: Matches, alike: _Alike) -> None:
        published, pool = self._pools.get(key), None
        if published is not None and published.group is group:
            matched = {
                one for one, is_match in zip(group.selections, matches, strict=True) if is_match
            }
            pool = self._found(
                key,
                [
                    one
                    for one in published.slices.values()
                    if one.has_counters or one.nodes in matched
                ],
            )
        if pool is None:
            alike.found.pop(key, None)
        else:
            alike.found[key] = pool

    def _own_pools(self, node_name: str, labels: Mapping[str, str]) -> dict[PoolKey, Pool | None]:
        """Local and mixed pools of a node; ``None`` for one that is no part of its view."""
        own: dict[PoolKey, Pool | None] = {}
        for key in self._local.get(node_name, ()):
            slices = [
                one
                for one in self._pools[key].slices.values()
                if one.has_counters or one.nodes.node_name == node_name
            ]
            own[key] = self._found(key, slices)
        for key in self._mixed:
            published = self._pools[key].slices.values()
            relevant = [one for one in published if one.is_relevant(node_name, labels)]
            own[key] = self._found(key, relevant, node_name, labels)
        return own

    def _view_of(
        self, parts: Sequence[tuple[Pool, ...]], own: Mapping[PoolKey, Pool | None]
    ) -> NodeView:
        if len(parts) == 1 and not own:
            pools = list(parts[0])
        else:
            by_key: dict[PoolKey, Pool | None] = {pool.key: pool for part in parts for pool in part}
            by_key.update(own)
            pools = [one for key in sorted(by_key) if (one := by_key[key]) is not None]
        plain = [one for one in pools if not one.has_binding_conditions]
        ordered = (*plain, *(one for one in pools if one.has_binding_conditions))
        identity = tuple(id(pool) for pool in ordered)
        view = self._interned.get(identity)
        if view is None:
            view = self._interned[identity] = NodeView(ordered)
        return view

    def _found(
        self,
        key: PoolKey,
        relevant: Collection[PublishedSlice],
        node_name: str = "",
        labels: Mapping[str, str] = _NO_LABELS,
    ) -> Pool | None:
        """The pool that slices make up on a node; ``None`` if it is no part of a view."""
        if not relevant:
            return None
        newest = max(one.generation for one in relevant)
        slices = [one for one in relevant if one.generation == newest]
        pool = self._pool(key, slices, node_name, labels)
        # Counters without devices for the node matter only if something is wrong with them.
        return None if pool is None or (pool.is_usable and not pool.devices) else pool

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
