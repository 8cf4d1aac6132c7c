"""DeviceTaintRules: taints that are put on devices beside those their drivers publish.

kube-scheduler: resourceslice/tracker. Rules are found by what they select, so that a slice is
compared with those that may concern it, however many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import product

from msgspec.structs import replace

from ksched.api.devices import (
    Device,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintSelector,
    ResourceSlice,
)
from ksched.cache.listers import Lister

_Pool = tuple[str | None, str | None]
"""Driver and name of a pool; ``None`` is any."""
_EVERYTHING = DeviceTaintSelector()


class TaintRules:
    """All rules; ``on_change`` is called with which slices a changed one may concern."""

    def __init__(
        self,
        rules: Lister[DeviceTaintRule],
        on_change: Callable[[Callable[[ResourceSlice], bool]], None],
    ) -> None:
        self._lister = rules
        self._on_change = on_change
        self._rules: dict[str, DeviceTaintRule] = {}
        self._of_pool: dict[_Pool, dict[str, DeviceTaintRule]] = {}
        rules.follow(self._listed)

    def tainted(self, published: ResourceSlice) -> ResourceSlice:
        """Return a slice with the taints of all rules that select its devices."""
        rules = [*self._rules_of(published)]
        if not rules:
            return published
        devices = [_tainted(one, rules) for one in published.spec.devices]
        return replace(published, spec=replace(published.spec, devices=devices))

    def _rules_of(self, published: ResourceSlice) -> Iterator[DeviceTaintRule]:
        spec = published.spec
        for pool in product((None, spec.driver), (None, spec.pool.name)):
            yield from self._of_pool.get(pool, {}).values()

    def _listed(self, name: str) -> None:
        old, new = self._rules.pop(name, None), self._lister.get(name)
        if old is not None:
            pool = _pool(old)
            del self._of_pool[pool][name]
            if not self._of_pool[pool]:
                del self._of_pool[pool]
        if new is not None:
            self._rules[name] = new
            self._of_pool.setdefault(_pool(new), {})[name] = new
        # The status says which pods a controller has evicted.
        if old is None or new is None or old.spec != new.spec:
            pools = [_pool(one) for one in (old, new) if one is not None]
            self._on_change(lambda published: _is_of(published, pools))


def _pool(rule: DeviceTaintRule) -> _Pool:
    selector = rule.spec.device_selector or _EVERYTHING
    return selector.driver, selector.pool


def _is_of(published: ResourceSlice, pools: Iterable[_Pool]) -> bool:
    spec = published.spec
    return any(
        driver in (None, spec.driver) and pool in (None, spec.pool.name) for driver, pool in pools
    )


def _tainted(device: Device, rules: Iterable[DeviceTaintRule]) -> Device:
    taints: list[DeviceTaint] = [
        rule.spec.taint
        for rule in rules
        if (rule.spec.device_selector or _EVERYTHING).device in (None, device.name)
    ]
    return replace(device, taints=[*device.taints, *taints]) if taints else device
