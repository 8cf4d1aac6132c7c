"""The views of the nodes of a table (``pools``), as a column of few numbers.

Nodes with the same view have the same number. ``stale`` logs the views with a pool whose devices in
use changed; when ``epoch`` changes, all numbers are new.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable

import numpy as np
from numpy.typing import NDArray

from ksched.api.devices import ResourceSlice
from ksched.cache.change_log import ChangeLog
from ksched.cache.listers import Listers
from ksched.cache.node_info import NodeInfo
from ksched.cache.node_table import NodeTable
from ksched.devices.claim_store import ClaimStore
from ksched.devices.pools import NodeView, Slices
from ksched.devices.slices import PoolKey

Ids = NDArray[np.int32]

ROWS_PER_PAUSE = 4
"""A node with many slices takes some tenths of a millisecond."""


class PublishedDevices:
    """All devices and those in use; shared by all profiles (``listers.view``)."""

    def __init__(self, listers: Listers) -> None:
        self.claims = listers.view(ClaimStore)
        self.slices = Slices()
        self._lister = listers.require(ResourceSlice)
        self._lister.follow(self._listed)

    def _listed(self, name: str) -> None:
        published = self._lister.get(name)
        if published is None:
            self.slices.remove(name)
        else:
            self.slices.put(published)

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
        """Changes when all views are numbered again."""
        self.stale: ChangeLog[int] = ChangeLog()
        """Numbers of views whose devices in use changed."""
        self._keys: dict[int, Hashable] = {}
        self._todo: set[int] = set()
        """Rows whose view may have changed."""

    def catching_up(self) -> Generator[None, None, None]:
        """Take over what changed, with pauses; before anything else in a cycle.

        What is left when it is given up is done by the next one.
        """
        self.catch_up_use()
        rows, names = self._changed_rows.changes(), self._changed_nodes.changes()
        self._changed_rows.advance()
        self._changed_nodes.advance()
        count = len(self.table)
        if rows is None or names is None or len(self.views) > 2 * count + 64:
            self._start_over(count)
        else:
            known = self.table.rows
            self._todo.update(rows)
            self._todo.update(known[name] for name in names if name in known)
            if len(self._ids) < count:
                grown = np.zeros(count + count // 4 + 16, np.int32)
                grown[: len(self._ids)] = self._ids
                self._ids = grown
        while self._todo:
            row = self._todo.pop()
            if row < count:
                self._ids[row] = self._number(self.table.infos[row])
                if len(self._todo) % ROWS_PER_PAUSE == 0:
                    yield

    def catch_up_use(self) -> None:
        """Apply changes of the devices in use."""
        if self._changed_pools.is_current:
            return
        pools = self._changed_pools.changes()
        if pools is None:
            self._keys.clear()
            self.stale.forget()
        else:
            for key in set(pools):
                for number in self._by_pool.get(key, ()):
                    self._keys.pop(number, None)
                    self.stale.append(number)
        self._changed_pools.advance()

    def _start_over(self, count: int) -> None:
        self.epoch += 1
        self.views.clear()
        self._numbers.clear()
        self._by_pool.clear()
        self._keys.clear()
        self.stale.forget()
        self._ids = np.zeros(count + count // 4 + 16, np.int32)
        self._todo = set(range(count))

    def _number(self, info: NodeInfo) -> int:
        view = self._devices.slices.view(info.name, info.labels)
        number = self._numbers.get(view)
        if number is None:
            number = self._numbers[view] = len(self.views)
            self.views.append(view)
            for pool in view.pools:
                self._by_pool.setdefault(pool.key, set()).add(number)
        return number

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

    def key(self, number: int) -> Hashable:
        """Equal for views in which the same requests have the same result."""
        self.catch_up_use()
        key = self._keys.get(number)
        if key is None:
            key = self._keys[number] = self._key_of(self.views[number])
        return key

    def key_of(self, view: NodeView) -> Hashable:
        """The same for any view."""
        number = self._numbers.get(view)
        return self._key_of(view) if number is None else self.key(number)

    def _key_of(self, view: NodeView) -> Hashable:
        devices = self._devices.claims.devices
        return tuple(
            (pool.layout, devices.of(pool.key).signature(pool.positions)) for pool in view.pools
        )
