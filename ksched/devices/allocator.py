"""Selects devices for the claims of a pod on one node, the same ones as kube-scheduler.

A depth-first search over claims, requests and devices in their order; the first complete solution
is the result (structured/internal/incubating/allocator_incubating.go, v1.36). Its details determine
which devices a pod gets, so they are the same here; only work that cannot change the result is
omitted:

* While the first acceptable device of each request leads to a solution, nothing is undone.
* A device of the same shape and pool as one that failed in the same place fails too: exchanging the
  two in a solution would give a solution with the first.
* A pool without a device that a request could have while none of the pool is chosen has none later:
  choices only use up devices, capacity and counters. It is skipped until its use changes, as is a
  pool of which no device has the value that a constraint wants. Only pools that a request has seen
  whole are skipped: selectors that fail must fail again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from ksched.api.devices import MAX_RESULTS
from ksched.api.objects import Quantity
from ksched.cel.recursion import room_for
from ksched.devices.allocated import PoolUse
from ksched.devices.constraints import Constraint, make_constraints, tolerates
from ksched.devices.consumable_capacity import consumed_capacity
from ksched.devices.effort import Effort
from ksched.devices.pools import NodeView, Pool
from ksched.devices.requests import AllocationFailed, ClaimPlan, Request
from ksched.devices.slices import CounterAmounts, PoolDevice, PoolKey

_EVERYDAY_DEPTH = 300


class InvalidPools(Exception):
    """No solution, and a pool of the node is invalid."""


class ChosenDevice(NamedTuple):
    """A device selected for a request."""

    request: Request
    device: PoolDevice
    consumed: Mapping[str, tuple[Quantity, int]] | None
    """What a share of the device consumes of each capacity; ``None`` for a dedicated device."""
    position: int
    """Among the candidates of the node."""


class WantedClaim(NamedTuple):
    """A claim to allocate."""

    key: str
    plan: ClaimPlan


Chosen = list[list[ChosenDevice]]
"""By claim, its devices in the order of selection."""


class _Outcome(Enum):
    DONE = 1
    NO = 2
    TOO_MANY = 3


_DONE, _NO, _TOO_MANY = _Outcome.DONE, _Outcome.NO, _Outcome.TOO_MANY

PoolsInUse = Callable[[PoolKey], PoolUse]


def allocate(
    view: NodeView,
    in_use: PoolsInUse,
    claims: Sequence[WantedClaim],
    effort: Effort,
    among: Iterable[int] | None = None,
) -> Chosen | None:
    """Choose devices for all claims; ``None`` if there is no solution.

    ``among`` limits requests for a number of devices to candidates at these positions: with those
    of a solution, that solution is found at once.

    Raises ``AllocationFailed``, ``InvalidPools``, or what ``effort`` raises when it is exhausted.
    """
    search = _Search(view, in_use, claims, effort, among)
    if search.depth <= _EVERYDAY_DEPTH:
        outcome = search.step(0, 0, 0, 0, False, 0)
    else:
        with room_for(2 * search.depth):
            outcome = search.step(0, 0, 0, 0, False, 0)
    if outcome is _DONE:
        return search.chosen
    if outcome is _TOO_MANY:
        raise AllocationFailed("allocation max size exceeded")
    if view.has_invalid_pools:
        raise InvalidPools
    return None


class _Uses(dict[PoolKey, PoolUse]):
    """The use of the pools that a search has looked at."""

    def __init__(self, in_use: PoolsInUse) -> None:
        super().__init__()
        self._in_use = in_use

    def __missing__(self, key: PoolKey) -> PoolUse:
        use = self[key] = self._in_use(key)
        return use


class _Search:
    """One search on one node. kube-scheduler: allocator, Allocator.Allocate."""

    def __init__(
        self,
        view: NodeView,
        in_use: PoolsInUse,
        claims: Sequence[WantedClaim],
        effort: Effort,
        among: Iterable[int] | None,
    ) -> None:
        self._view = view
        self._among = None if among is None else frozenset(among)
        self._claims = claims
        self._effort = effort
        self._use = _Uses(in_use)
        self._all_by_claim: list[dict[Request, list[int]]] = []
        """Positions of the devices of requests for all."""
        self._constraints: list[list[Constraint]] = []
        self.chosen: Chosen = [[] for _ in claims]
        self._taken: dict[PoolDevice, set[int]] = {}
        """Dedicated devices of this search, with the claims that have them."""
        self._shared: dict[PoolDevice, dict[str, int]] = {}
        """What this search consumes of shareable devices, by capacity."""
        self._consumed: dict[PoolKey, CounterAmounts] = {}
        self._available: dict[PoolKey, CounterAmounts] = {}
        self._sharers: dict[PoolDevice, int] = {}
        self._touched: dict[PoolKey, int] = {}
        """By pool, how many of its devices are chosen."""
        self._is_constrained = False
        """Whether a constraint rejected the last device."""
        self._paid: list[bool] = []
        """By device in the order of choice, whether it consumes counters."""
        # A distinctAttribute depends on the order of devices: no two are exchangeable.
        self._has_twins = not any(
            one.distinct_attribute is not None for claim in claims for one in claim.plan.constraints
        )
        self.depth = 0
        for number, claim in enumerate(claims):
            self._prepare(number, claim)

    # -- before the search ----------------------------------------------------------------------

    def _prepare(self, number: int, claim: WantedClaim) -> None:
        """kube-scheduler: validateDeviceRequest."""
        self._all_by_claim.append({})
        fewest = 0
        for request in claim.plan.requests:
            counts = [self._count(number, claim, way) for way in request.ways]
            fewest += min(counts, default=0)
            self.depth += max(counts, default=0) + 2
        if fewest > MAX_RESULTS:
            text = f"number of requested devices {fewest} exceeds the claim limit of {MAX_RESULTS}"
            raise AllocationFailed(f"claim {claim.key}: {text}")
        self._constraints.append(make_constraints(claim.plan.constraints, claim.key))

    def _count(self, number: int, claim: WantedClaim, request: Request) -> int:
        if request.problem:
            raise AllocationFailed(f"claim {claim.key}{request.problem}")
        if not request.is_all:
            return request.count
        found: list[int] = []
        position = -1
        for pool in self._view.pools:
            if not pool.is_usable:
                state = "invalid" if pool.is_complete else "being updated"
                name = "/".join(pool.key)
                text = f"asks for all devices, but resource pool {name} is currently {state}"
                raise AllocationFailed(f"claim {claim.key}, request {request.name}: {text}")
            for device, is_on_node in zip(pool.devices, pool.on_node, strict=True):
                position += 1
                self._effort.spend(1)
                if (
                    request.selects(device.shape, claim.key, self._effort)
                    and is_on_node
                    and self._consumption(request, device) is not None
                ):
                    found.append(position)
        self._all_by_claim[number][request] = found
        return len(found)

    # -- the search -----------------------------------------------------------------------------

    def step(self, c: int, r: int, s: int, k: int, in_sub: bool, start: int) -> _Outcome:
        """Choose device ``k`` of way ``s`` of request ``r`` of claim ``c``, and all that follows.

        Candidates before ``start`` were tried for an earlier device of the same request.

        kube-scheduler: allocateOne.
        """
        if c >= len(self._claims):
            return _DONE
        requests = self._claims[c].plan.requests
        if r >= len(requests):
            outcome = self.step(c + 1, 0, 0, 0, False, 0)
            return _NO if outcome is _TOO_MANY else outcome
        alternatives = requests[r]
        if alternatives.has_subrequests and not in_sub:
            return self._first_available(c, r, k)
        request = alternatives.ways[s]
        found_all = self._all_by_claim[c].get(request)
        count = request.count if found_all is None else len(found_all)
        if found_all is not None and not found_all:
            return _NO
        if k >= count:
            return self.step(c, r + 1, 0, 0, False, 0)
        if len(self.chosen[c]) + count - k > MAX_RESULTS:
            return _TOO_MANY
        if found_all is not None:
            return self._take_all(c, r, s, k, in_sub, found_all[k])
        return self._take_exactly(c, r, s, k, in_sub, start)

    def _first_available(self, c: int, r: int, k: int) -> _Outcome:
        all_too_many = True
        for s in range(len(self._claims[c].plan.requests[r].ways)):
            outcome = self.step(c, r, s, k, True, 0)
            if outcome is _DONE:
                return _DONE
            all_too_many = all_too_many and outcome is _TOO_MANY
        return _TOO_MANY if all_too_many else _NO

    def _take_all(self, c: int, r: int, s: int, k: int, in_sub: bool, position: int) -> _Outcome:
        request = self._claims[c].plan.requests[r].ways[s]
        if not self._take(c, request, position, must_fit=True):
            return _NO
        outcome = self.step(c, r, s, k + 1, in_sub, 0)
        if outcome is not _DONE:
            self._give_back(c, request, position)
        return outcome

    def _take_exactly(self, c: int, r: int, s: int, k: int, in_sub: bool, start: int) -> _Outcome:
        request = self._claims[c].plan.requests[r].ways[s]
        spans = self._view.spans
        failed: set[object] = set()
        for number in range(bisect_right(self._view.ends, start), len(spans)):
            pool, first, last = spans[number]
            self._effort.spend(1)
            use = None
            if start <= first and self._among is None and pool.key not in self._touched:
                use = self._use[pool.key].signature(pool.positions)
                known = pool.layout.scanned(request, use)
                if known is False or (known and self._constrain_away(c, request, pool)):
                    continue
            is_fruitful = False
            for position in range(max(first, start), last):
                acceptable = self._take_if_acceptable(c, request, position, failed)
                if acceptable is None:
                    continue
                is_fruitful = True
                if not acceptable:
                    continue
                outcome = self.step(c, r, s, k + 1, in_sub, position + 1)
                if outcome is _DONE:
                    return _DONE
                self._give_back(c, request, position)
                if outcome is _TOO_MANY:
                    return outcome
                failed.add(self._twin(position))
            if use is not None:
                pool.layout.note_scan(request, use, is_fruitful)
        return _NO

    def _constrain_away(self, c: int, request: Request, pool: Pool) -> bool:
        return any(one.rejects_all(request, pool) for one in self._constraints[c])

    def _take_if_acceptable(
        self, c: int, request: Request, position: int, failed: set[object]
    ) -> bool | None:
        """Take a candidate; False if another state of the search might accept it, else ``None``."""
        if self._among is not None and position not in self._among:
            return None
        device, pool, is_on_node = self._view.candidates[position]
        self._effort.spend(1)
        if self._is_taken(c, request, device, pool):
            return None
        selected = request.selects(device.shape, self._claims[c].key, self._effort)
        if not selected or not is_on_node:
            return None
        twin = self._twin(position)
        if twin is not None and twin in failed:
            return False
        if self._consumption(request, device) is None:
            return None
        self._is_constrained = False
        if self._take(c, request, position):
            return True
        return False if self._is_constrained else None

    def _twin(self, position: int) -> object:
        """Equal for devices that lead to the same outcome; ``None`` if there is no other."""
        device, pool, _ = self._view.candidates[position]
        use = self._use[pool.key]
        if not self._has_twins or device in self._shared or device.name in use.shared:
            return None
        return pool.key, device.shape, device in self._taken, device.name in use.dedicated

    # -- one device -----------------------------------------------------------------------------

    def _is_taken(self, c: int, request: Request, device: PoolDevice, pool: Pool) -> bool:
        """kube-scheduler: deviceInUse."""
        if request.admin_access:
            return c in self._taken.get(device, ())
        return device.name in self._use[pool.key].dedicated or device in self._taken

    def _consumption(
        self, request: Request, device: PoolDevice
    ) -> dict[str, tuple[Quantity, int]] | None:
        if not device.shape.capacity:
            return None if request.capacity else {}
        self._effort.spend(len(device.shape.capacity))
        shared = self._use[device.published_by.pool].shared.get(device.name)
        return consumed_capacity(
            request.capacity,
            device.shape,
            shared.consumed if shared is not None else {},
            self._shared.get(device, {}),
        )

    def _take(self, c: int, request: Request, position: int, *, must_fit: bool = False) -> bool:
        """Take a device; False if that is not possible, and nothing has changed then.

        kube-scheduler: allocateDevice.
        """
        device, pool, _ = self._view.candidates[position]
        shape = device.shape
        if self._is_taken(c, request, device, pool):
            return False
        is_paying = bool(shape.consumes) and not self._is_paid_for(device, pool)
        if is_paying and not self._consume_counters(pool, shape.consumes):
            return False
        consumed = None
        if tolerates(request.tolerations, shape.taints) and self._satisfies_constraints(
            c, request, device, must_fit=must_fit
        ):
            consumed = self._consumption(request, device)
            if consumed is None:
                self._leave_constraints(c, request)
        if consumed is None:
            if is_paying:
                self._release_counters(pool, shape.consumes)
            return False
        if shape.is_shareable:
            self._share(device, consumed)
        else:
            self._taken.setdefault(device, set()).add(c)
        self._paid.append(is_paying)
        self._touched[pool.key] = self._touched.get(pool.key, 0) + 1
        share = consumed if shape.is_shareable else None
        self.chosen[c].append(ChosenDevice(request, device, share, position))
        return True

    def _give_back(self, c: int, request: Request, position: int) -> None:
        device, pool, _ = self._view.candidates[position]
        taken = self.chosen[c].pop()
        self._touched[pool.key] -= 1
        if not self._touched[pool.key]:
            del self._touched[pool.key]
        if self._paid.pop():
            self._release_counters(pool, device.shape.consumes)
        self._leave_constraints(c, request)
        if taken.consumed is not None:
            self._unshare(device, taken.consumed)
            return
        self._taken[device].discard(c)
        if not self._taken[device]:
            del self._taken[device]

    def _satisfies_constraints(
        self, c: int, request: Request, device: PoolDevice, *, must_fit: bool
    ) -> bool:
        constraints = self._constraints[c]
        self._effort.spend(len(constraints))
        for position, constraint in enumerate(constraints):
            if not constraint.add(request, device.shape):
                self._is_constrained = True
                for earlier in constraints[:position]:
                    earlier.remove(request)
                if must_fit:
                    text = f"cannot add device {device} because a claim constraint"
                    whose = f"claim {self._claims[c].key}, request {request.name}"
                    raise AllocationFailed(f"{whose}: {text} would not be satisfied")
                return False
        return True

    def _leave_constraints(self, c: int, request: Request) -> None:
        for constraint in self._constraints[c]:
            constraint.remove(request)

    def _share(self, device: PoolDevice, consumed: Mapping[str, tuple[Quantity, int]]) -> None:
        amounts = self._shared.setdefault(device, {})
        for name, (_, nanos) in consumed.items():
            amounts[name] = amounts.get(name, 0) + nanos
        self._sharers[device] = self._sharers.get(device, 0) + 1

    def _unshare(self, device: PoolDevice, consumed: Mapping[str, tuple[Quantity, int]]) -> None:
        self._sharers[device] -= 1
        if not self._sharers[device]:
            del self._sharers[device], self._shared[device]
            return
        for name, (_, nanos) in consumed.items():
            self._shared[device][name] -= nanos

    # -- counters -------------------------------------------------------------------------------

    def _is_paid_for(self, device: PoolDevice, pool: Pool) -> bool:
        """Whether another share of the device consumes its counters already."""
        return device.shape.is_shareable and (
            device in self._shared or self._use[pool.key].has_capacity_entry(device.name)
        )

    def _consume_counters(self, pool: Pool, consumes: CounterAmounts) -> bool:
        """kube-scheduler: checkAvailableCounters."""
        available = self._available.get(pool.key)
        if available is None:
            self._effort.spend(len(pool.members))
            available = self._available[pool.key] = _available(pool, self._use[pool.key])
        self._effort.spend(sum(map(len, available.values())) // 8)
        consumed = self._consumed.setdefault(pool.key, {})
        for name, counters in consumes.items():
            amounts = consumed.setdefault(name, {})
            for counter, nanos in counters.items():
                amounts[counter] = amounts.get(counter, 0) + nanos
        # Of all sets: one that is overcommitted stops every consumer of the pool.
        if all(
            nanos >= consumed.get(name, {}).get(counter, 0)
            for name, counters in available.items()
            for counter, nanos in counters.items()
        ):
            return True
        self._release_counters(pool, consumes)
        return False

    def _release_counters(self, pool: Pool, consumes: CounterAmounts) -> None:
        consumed = self._consumed[pool.key]
        for name, counters in consumes.items():
            for counter, nanos in counters.items():
                consumed[name][counter] -= nanos


def _available(pool: Pool, use: PoolUse) -> CounterAmounts:
    """The counters of a pool minus what its allocated devices consume."""
    available = {name: dict(counters) for name, counters in pool.counters.items()}
    for device in pool.members:
        if device.shape.consumes and use.is_in_use(device.name):
            for name, counters in device.shape.consumes.items():
                for counter, nanos in counters.items():
                    available[name][counter] -= nanos
    return available
