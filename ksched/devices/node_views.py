"""The views of the nodes of a table (``pools``), as a column of few numbers.

Nodes with the same view have the same number; views in which the same requests have the same result
have the same number of a key, which changes with the devices in use. When ``epoch`` changes, all
keys have new numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator

import numpy as np
from numpy.typing import NDArray

from ksched.api.devices import DeviceTaintRule, ResourceSlice
from ksched.cache.listers import Listers
from ksched.cache.node_info import NodeInfo
from ksched.cache.node_table import NodeTable
from ksched.devices.claim_store import ClaimStore
from ksched.devices.pools import NodeView
from ksched.devices.published_pools import Slices
from ksched.devices.slices import PoolKey
from ksched.devices.taint_rules import TaintRules
from ksched.steps import Steps

Ids = NDArray[np.int32]

SPARE_KEYS = 1024
"""Limit of the keys of views as they were, besides two for each node."""


class PublishedDevices:
    """All devices and those in use; shared by all profiles (``listers.view``)."""

    def __init__(self, listers: Listers) -> None:
        self.claims = listers.view(ClaimStore)
        self.slices = Slices()
        self._lister = listers.require(ResourceSlice)
        self._taint_rules: TaintRules | None = None
        self._outdated: dict[str, None] = {}
        """Slices whose devices may have other taints, by name."""
        self._lister.follow(self._listed)

    @classmethod
    def with_taint_rules(cls, listers: Listers) -> PublishedDevices:
        """The same for all profiles, tainted by DeviceTaintRules."""
        devices = listers.view(cls)
        rules = listers.require(DeviceTaintRule)
        devices._taint_rules = TaintRules(rules, devices._rules_changed)
        return devices

    def _listed(self, name: str) -> None:
        self._outdated.pop(name, None)
        published = self._lister.get(name)
        if published is None:
            self.slices.remove(name)
        elif self._taint_rules is None:
            self.slices.put(published)
        else:
            self.slices.put(self._taint_rules.tainted(published))

    def _rules_changed(self, concerns: Callable[[ResourceSlice], bool]) -> None:
        self._outdated.update((one.metadata.name, None) for one in self._lister if concerns(one))

    def catching_up(self) -> Steps[None]:
        """Apply changed rules to the slices that they concern, with pauses."""
        while self._outdated:
            self._listed(next(iter(self._outdated)))
            yield

    @property
    def generation(self) -> tuple[int, int]:
        """Changes when devices are published, withdrawn, allocated or released."""
        in_use = self.claims.devices.changed_pools.generation
        return self.slices.changed_nodes.generation, in_use


class NodeViews:
    """The views of the nodes of one table."""

    def __init__(self, devices: PublishedDevices, table: NodeTable) -> None:
        self._devices = devices
        self.table = table
        self._changed_rows = table.node_log.cursor()
        self._changed_nodes = devices.slices.changed_nodes.cursor()
        self._changed_pools = devices.claims.devices.changed_pools.cursor()
        self._ids: Ids = np.zeros(0, np.int32)
        self.views: list[NodeView] = []
        """By number."""
        self._numbers: dict[NodeView, int] = {}
        self._by_pool: dict[PoolKey, set[int]] = {}
        self.epoch = 0
        """Changes when all keys are numbered again."""
        self.generation = 0
        """Grows when a node has another view, or a view another key."""
        self.keys: list[Hashable] = []
        """By number; equal for views in which the same requests have the same result."""
        self._key_numbers: dict[Hashable, int] = {}
        self._keys_of_views: Ids = np.zeros(0, np.int32)
        self._outdated: set[int] = set()
        """Views whose devices in use changed."""
        self._todo: set[int] = set()
        """Rows whose view may have changed."""

    def catching_up(self) -> Generator[None, None, None]:
        """Take over what changed, with pauses; before anything else in a cycle.

        What is left when it is given up is done by the next one.
        """
        yield from self._devices.catching_up()
        rows, names = self._changed_rows.changes(), self._changed_nodes.changes()
        self._changed_rows.advance()
        self._changed_nodes.advance()
        count = len(self.table)
        if len(self.keys) > 2 * count + SPARE_KEYS:
            self._forget_keys()
        if rows is None or names is None or len(self.views) > 2 * count + 64:
            self._start_over(count)
        else:
            known = self.table.rows
            self._todo.update(rows)
            self._todo.update(known[name] for name in names if name in known)
            if len(self._ids) < count:
                self._ids = _grown(self._ids, count)
        self._find_outdated()
        while self._outdated:
            self._number_key(self._outdated.pop())
            yield
        while self._todo:
            row = self._todo.pop()
            # Until its view is known: this may be given up during a pause.
            self._todo.add(row)
            if row < count:
                info = self.table.infos[row]
                view = yield from self._devices.slices.viewing(info.name, info.labels)
                self._ids[row] = self._number(view)
                self.generation += 1
                yield
            self._todo.discard(row)

    def catch_up_use(self) -> None:
        """Apply changes of the devices in use, without pauses."""
        self._find_outdated()
        while self._outdated:
            self._number_key(self._outdated.pop())

    def _find_outdated(self) -> None:
        if self._changed_pools.is_current:
            return
        pools = self._changed_pools.changes()
        if pools is None:
            self._outdated.update(range(len(self.views)))
        else:
            for key in set(pools):
                self._outdated.update(self._by_pool.get(key, ()))
        self._changed_pools.advance()

    def _start_over(self, count: int) -> None:
        self.views.clear()
        self._numbers.clear()
        self._by_pool.clear()
        self._forget_keys()
        self._ids = _grown(self._ids[:0], count)
        self._todo = set(range(count))

    def _forget_keys(self) -> None:
        self.epoch += 1
        self.generation += 1
        self.keys.clear()
        self._key_numbers.clear()
        self._outdated = set(range(len(self.views)))

    def _number(self, view: NodeView) -> int:
        number = self._numbers.get(view)
        if number is None:
            number = self._numbers[view] = len(self.views)
            self.views.append(view)
            for pool in view.pools:
                self._by_pool.setdefault(pool.key, set()).add(number)
            if number >= len(self._keys_of_views):
                self._keys_of_views = _grown(self._keys_of_views, number + 1)
            self._number_key(number)
        return number

    def _number_key(self, number: int) -> None:
        key = self._key_of(self.views[number])
        known = self._key_numbers.get(key)
        if known is None:
            known = self._key_numbers[key] = len(self.keys)
            self.keys.append(key)
        self._keys_of_views[number] = known
        self.generation += 1

    def view(self, info: NodeInfo) -> NodeView:
        """Return the view of a node as it is now, also of another table."""
        row = self.table.rows.get(info.name, len(self._ids))
        if (
            row < len(self._ids)
            and self.table.infos[row] is info
            and not self._todo
            and self._changed_rows.is_current
            and self._changed_nodes.is_current
        ):
            return self.views[int(self._ids[row])]
        return self._devices.slices.view(info.name, info.labels)

    def ids(self, index: NDArray[np.intp] | slice) -> Ids:
        """By node, the number of its view."""
        return self._ids[: len(self.table)][index]

    def key_numbers(self, ids: Ids) -> Ids:
        """The numbers of the keys of views; call ``catch_up_use`` before."""
        return self._keys_of_views[ids]

    def key_number(self, number: int) -> int:
        """The number of the key of a view."""
        self.catch_up_use()
        return int(self._keys_of_views[number])

    def alike(self, number: int) -> Iterator[NodeView]:
        """The views with the same key as one of them."""
        keys = self._keys_of_views[: len(self.views)]
        return (self.views[one] for one in np.flatnonzero(keys == keys[number]).tolist())

    def key_of(self, view: NodeView) -> Hashable:
        """The key of any view."""
        number = self._numbers.get(view)
        if number is None:
            return self._key_of(view)
        return self.keys[self.key_number(number)]

    def _key_of(self, view: NodeView) -> Hashable:
        devices = self._devices.claims.devices
        return tuple(
            (pool.layout, devices.of(pool.key).signature(pool.positions)) for pool in view.pools
        )


def _grown(numbers: Ids, count: int) -> Ids:
    """At least so many, with room for more."""
    grown = np.zeros(count + count // 4 + 16, np.int32)
    grown[: len(numbers)] = numbers
    return grown
