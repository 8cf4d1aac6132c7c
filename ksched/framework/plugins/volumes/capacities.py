"""CSIStorageCapacities: on which nodes a driver can still provision a volume of some size."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ksched.api.label_selectors import NOTHING, Selector, compile_selector
from ksched.api.quantity import value
from ksched.api.storage import CSIStorageCapacity
from ksched.framework import Listers, NodeRows


class Capacity(NamedTuple):
    """The largest volume that can be provisioned for nodes that match a selector."""

    limit_bytes: int
    nodes: Selector


class Capacities:
    """All capacities by storage class, compiled once.

    kube-scheduler: CapacityCheck.
    """

    def __init__(self, listers: Listers) -> None:
        self._lister = listers.require(CSIStorageCapacity)
        self._by_class: dict[str, dict[str, Capacity]] = {}
        self._class_of: dict[str, str] = {}
        self._changes = self._lister.cursor()

    @property
    def generation(self) -> int:
        return self._lister.generation

    def suffice(self, class_name: str, size_bytes: int, nodes: NodeRows) -> NDArray[np.bool_]:
        """Mark the nodes for which a volume of this size can be provisioned.

        kube-scheduler: hasEnoughCapacity, capacitySufficient, nodeHasAccess.
        """
        self._catch_up()
        found = np.zeros(len(nodes), np.bool_)
        # One capacity per node is usual; all that select by one label are evaluated together.
        allowed: dict[str, set[str | None]] = {}
        for limit_bytes, selector in self._by_class.get(class_name, {}).values():
            if limit_bytes < size_bytes or selector.matches_nothing:
                continue
            requirements = selector.requirements
            if len(requirements) == 1 and requirements[0].inside:
                allowed.setdefault(requirements[0].key, set()).update(requirements[0].values)
                continue
            selected = np.ones(len(nodes), np.bool_)
            for wanted in requirements:
                selected &= nodes.label(wanted.key).test(wanted.matches_value)
            found |= selected
        for key, values in allowed.items():
            found |= nodes.label(key).test(values.__contains__)
        return found

    def _catch_up(self) -> None:
        if self._changes.is_current:
            return
        changed = self._changes.changes()
        if changed is None:
            changed = [*self._class_of, *(one.metadata.key for one in self._lister)]
        for key in set(changed):
            before = self._class_of.pop(key, None)
            if before is not None:
                del self._by_class[before][key]
            namespace, _, name = key.rpartition("/")
            capacity = self._lister.get(name, namespace)
            if capacity is not None:
                class_name = self._class_of[key] = capacity.storage_class_name
                self._by_class.setdefault(class_name, {})[key] = _compile(capacity)
        self._changes.advance()


def _compile(capacity: CSIStorageCapacity) -> Capacity:
    limit = capacity.volume_limit
    try:
        # Without a topology it is available nowhere, and an absent selector selects nothing.
        selector = compile_selector(capacity.node_topology)
        return Capacity(-1 if limit is None else value(limit), selector)
    except ValueError:
        return Capacity(-1, NOTHING)
