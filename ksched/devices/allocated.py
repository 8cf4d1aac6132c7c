"""The devices in use, by stored claims and by claims in flight.

Follows dynamicresources/allocateddevices.go (v1.36); unlike there, a device that is allocated to
two claims stays in use until both release it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from ksched.api.devices import AllocationResult, DeviceRequestAllocationResult
from ksched.api.quantity import to_nanos
from ksched.cache.change_log import ChangeLog
from ksched.devices.slices import PoolKey


class SharedDevice:
    """The shares of a device that allows several allocations."""

    __slots__ = ("consumed", "shares", "with_capacity")

    def __init__(self) -> None:
        self.shares = 0
        self.with_capacity = 0
        """Shares with ``consumedCapacity``, even if that is empty."""
        self.consumed: dict[str, int] = {}
        """By capacity, in nano units."""

    def copy(self) -> SharedDevice:
        copied = SharedDevice()
        copied.shares, copied.with_capacity = self.shares, self.with_capacity
        copied.consumed = dict(self.consumed)
        return copied


class PoolUse:
    """The devices of one pool that are in use."""

    __slots__ = ("_signature", "dedicated", "is_frozen", "shared")

    def __init__(self) -> None:
        self._signature: tuple[dict[str, int], Hashable] | None = None
        self.is_frozen = False
        """Whether a reader must not see later changes: they are made in a copy."""
        self.dedicated: dict[str, int] = {}
        """By device, how many claims have it undivided."""
        self.shared: dict[str, SharedDevice] = {}

    def is_in_use(self, device: str) -> bool:
        return device in self.dedicated or device in self.shared

    def has_capacity_entry(self, device: str) -> bool:
        shared = self.shared.get(device)
        return shared is not None and shared.with_capacity > 0

    def copy(self) -> PoolUse:
        copied = PoolUse()
        copied.dedicated = dict(self.dedicated)
        copied.shared = {name: one.copy() for name, one in self.shared.items()}
        return copied

    def signature(self, positions: dict[str, int]) -> Hashable:
        """Equal for pools of one layout with the same devices in use."""
        if not self.dedicated and not self.shared:
            return 0
        known = self._signature
        if known is None or known[0] is not positions:
            known = self._signature = (positions, self._signed(positions))
        return known[1]

    def changed(self) -> None:
        """Call after every change."""
        self._signature = None

    def _signed(self, positions: dict[str, int]) -> Hashable:
        mask = 0
        for name in self.dedicated:
            position = positions.get(name)
            if position is not None:
                mask |= 1 << position
        if not self.shared:
            return mask
        shares = sorted(
            (positions[name], one.with_capacity > 0, tuple(sorted(one.consumed.items())))
            for name, one in self.shared.items()
            if name in positions
        )
        return mask, tuple(shares)


NOTHING_IN_USE = PoolUse()


class AllocatedDevices:
    """Devices in use, by pool."""

    def __init__(self) -> None:
        self._pools: dict[PoolKey, PoolUse] = {}
        self.changed_pools: ChangeLog[PoolKey] = ChangeLog()
        """Not when a device of a claim in flight becomes that of the stored claim."""

    def of(self, pool: PoolKey) -> PoolUse:
        return self._pools.get(pool, NOTHING_IN_USE)

    def frozen(self, pools: Iterable[PoolKey]) -> Mapping[PoolKey, PoolUse]:
        """The use of pools as it is now, whatever changes later; without those not in use."""
        found = {}
        for key in pools:
            use = self._pools.get(key)
            if use is not None:
                use.is_frozen = True
                found[key] = use
        return found

    def _to_change(self, key: PoolKey) -> PoolUse:
        use = self._pools.get(key)
        if use is None:
            use = self._pools[key] = PoolUse()
        elif use.is_frozen:
            use = self._pools[key] = use.copy()
        return use

    def add(self, allocation: AllocationResult) -> None:
        for result in allocation.devices.results:
            if not result.admin_access:
                use = self._to_change((result.driver, result.pool))
                if _add(use, result):
                    self._note(result, use)

    def remove(self, allocation: AllocationResult) -> None:
        for result in allocation.devices.results:
            if not result.admin_access:
                key = (result.driver, result.pool)
                assert key in self._pools, f"devices of {key} are in use"
                use = self._to_change(key)
                if _remove(use, result):
                    self._note(result, use)
                if not use.dedicated and not use.shared:
                    del self._pools[key]

    def _note(self, result: DeviceRequestAllocationResult, use: PoolUse) -> None:
        use.changed()
        self.changed_pools.append((result.driver, result.pool))


def _add(use: PoolUse, result: DeviceRequestAllocationResult) -> bool:
    """Whether other devices, or more of them, are in use now."""
    name = result.device
    if result.share_id is None:
        claims = use.dedicated.get(name, 0)
        use.dedicated[name] = claims + 1
        return not claims
    shared = use.shared.setdefault(name, SharedDevice())
    shared.shares += 1
    if result.consumed_capacity is not None:
        shared.with_capacity += 1
        for capacity, amount in result.consumed_capacity.items():
            shared.consumed[capacity] = shared.consumed.get(capacity, 0) + to_nanos(amount)
    return True


def _remove(use: PoolUse, result: DeviceRequestAllocationResult) -> bool:
    """The opposite of ``_add``."""
    name = result.device
    if result.share_id is None:
        use.dedicated[name] -= 1
        if use.dedicated[name]:
            return False
        del use.dedicated[name]
        return True
    shared = use.shared[name]
    shared.shares -= 1
    if not shared.shares:
        del use.shared[name]
    elif result.consumed_capacity is not None:
        shared.with_capacity -= 1
        for capacity, amount in result.consumed_capacity.items():
            shared.consumed[capacity] -= to_nanos(amount)
            if not shared.consumed[capacity]:
                del shared.consumed[capacity]
    return True
