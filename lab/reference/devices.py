"""Which devices claims get on a node, written for clarity: no caches, no masks, no shortcuts.

The rules of kube-scheduler's ``incubating`` allocator on plain objects as the API server stores
them. Everything is looked up anew at every step, so it is slow; it is there to be compared with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cache
from math import ceil
from typing import Any

import msgspec

from ksched.api.devices import Device
from ksched.api.quantity import value
from ksched.cel import CompileError, EvaluationError
from ksched.devices.device_selectors import DeviceView, compile_device_selector
from lab.reference.device_pools import Found, Json, Pool, amount, gather_pools, is_meant_for

MOST_RESULTS = 32
_compiled = cache(compile_device_selector)
DONE, NO, TOO_MANY = "done", "no", "too many"


class Fatal(Exception):
    """The claims cannot be tried on the node."""


class Invalid(Exception):
    """No solution, and a pool of the node contradicts itself."""


def allocate(
    node: Json,
    slices: Sequence[Json],
    classes: Mapping[str, Json],
    allocated: Sequence[Json],
    claims: Sequence[Json],
) -> list[list[dict[str, Any]]] | None:
    """The results of each claim, ``None`` without a solution; raises ``Fatal`` or ``Invalid``."""
    pools = gather_pools(node, slices)
    search = _Search(node, pools, classes, allocated, claims)
    outcome = search.step(0, 0, 0, 0, False, 0)
    if outcome == DONE:
        return search.results
    if outcome == TOO_MANY:
        raise Fatal("allocation max size exceeded")
    if any(pool.state == "invalid" for pool in pools):
        raise Invalid
    return None


class _Search:
    def __init__(
        self,
        node: Json,
        pools: Sequence[Pool],
        classes: Mapping[str, Json],
        allocated: Sequence[Json],
        claims: Sequence[Json],
    ) -> None:
        self.node, self.pools, self.classes, self.claims = node, pools, classes, claims
        given = [
            result
            for claim in allocated
            for result in claim["status"]["allocation"]["devices"].get("results", [])
            if not result.get("adminAccess")
        ]
        self.dedicated = {_id(one) for one in given if not one.get("shareID")}
        self.shares = [one for one in given if one.get("shareID")]
        self.results: list[list[dict[str, Any]]] = [[] for _ in claims]
        self.chosen: list[tuple[int, Json, Found, dict[str, Any] | None]] = []
        """Claim, request, device, and what a share of it consumes."""
        self.distinct: dict[tuple[int, int], dict[str, Any]] = {}
        self.candidates = [
            (pool, device) for pool in pools if pool.state == "usable" for device in pool.devices
        ]
        for number in range(len(claims)):
            self._validate(number)

    def _validate(self, c: int) -> None:
        fewest = 0
        for request in _requests(self.claims[c]):
            fewest += min(self._count(c, way) for way in _ways(request))
        if fewest > MOST_RESULTS:
            text = f"number of requested devices {fewest} exceeds the claim limit of {MOST_RESULTS}"
            raise Fatal(f"claim {self._key(c)}: {text}")

    def _key(self, c: int) -> str:
        metadata = self.claims[c]["metadata"]
        return f"{metadata['namespace']}/{metadata['name']}"

    def _count(self, c: int, way: Json) -> int:
        if way["allocationMode"] == "ExactCount":
            return int(way["count"])
        return len(self._all_devices(c, way))

    def _all_devices(self, c: int, way: Json) -> list[tuple[Pool, Found]]:
        found = []
        for pool in self.pools:
            if pool.state != "usable":
                state = "invalid" if pool.state == "invalid" else "being updated"
                text = f"asks for all devices, but resource pool {pool.driver}/{pool.name}"
                whose = f"claim {self._key(c)}, request {way['name']}"
                raise Fatal(f"{whose}: {text} is currently {state}")
            for device in pool.devices:
                # What this search consumes does not count: it had not begun.
                fits = self._consumed(way, device, before_search=True) is not None
                if self._is_selectable(c, way, device) and fits:
                    found.append((pool, device))
        return found

    def step(self, c: int, r: int, s: int, k: int, in_sub: bool, start: int) -> str:
        if c >= len(self.claims):
            return DONE
        requests = _requests(self.claims[c])
        if r >= len(requests):
            outcome = self.step(c + 1, 0, 0, 0, False, 0)
            return NO if outcome == TOO_MANY else outcome
        ways = _ways(requests[r])
        if "firstAvailable" in requests[r] and not in_sub:
            outcomes = []
            for number in range(len(ways)):
                outcomes.append(self.step(c, r, number, k, True, 0))
                if outcomes[-1] == DONE:
                    return DONE
            return TOO_MANY if set(outcomes) == {TOO_MANY} else NO
        way = {**ways[s], "full": _full_name(requests[r], ways[s]), "parent": requests[r]["name"]}
        is_all = way["allocationMode"] == "All"
        everything = self._all_devices(c, way) if is_all else []
        count = len(everything) if is_all else way["count"]
        if is_all and not everything:
            return NO
        if k >= count:
            return self.step(c, r + 1, 0, 0, False, 0)
        if len(self.results[c]) + count - k > MOST_RESULTS:
            return TOO_MANY
        if is_all:
            pool, device = everything[k]
            if not self._take(c, way, pool, device):
                return NO
            outcome = self.step(c, r, s, k + 1, in_sub, 0)
            if outcome != DONE:
                self._undo(c, way)
            return outcome
        for position in range(start, len(self.candidates)):
            pool, device = self.candidates[position]
            if self._is_in_use(c, way, device) or not self._is_selectable(c, way, device):
                continue
            if self._consumed(way, device) is None or not self._take(c, way, pool, device):
                continue
            outcome = self.step(c, r, s, k + 1, in_sub, position + 1)
            if outcome == DONE:
                return DONE
            self._undo(c, way)
            if outcome == TOO_MANY:
                return outcome
        return NO

    # -- one device -----------------------------------------------------------------------------

    def _is_in_use(self, c: int, way: Json, device: Found) -> bool:
        taken_by = {
            one for one, _, other, share in self.chosen if other == device and share is None
        }
        if way.get("adminAccess"):
            return c in taken_by
        return device.id in self.dedicated or bool(taken_by)

    def _is_selectable(self, c: int, way: Json, device: Found) -> bool:
        device_class = way["deviceClassName"]
        of_class = self.classes[device_class]["spec"].get("selectors", [])
        for owner, selectors in (
            (f"class {device_class}", of_class),
            (f"claim {self._key(c)}", way.get("selectors", [])),
        ):
            for index, selector in enumerate(selectors):
                try:
                    compiled = _compiled(selector["cel"]["expression"])
                    typed = msgspec.convert(device.device, Device)
                    if not compiled.matches(DeviceView(device.driver, typed)):
                        return False
                except CompileError as problem:
                    raise Fatal(
                        f"{owner}: selector #{index}: CEL compile error: {problem}"
                    ) from None
                except EvaluationError as problem:
                    raise Fatal(
                        f"{owner}: selector #{index}: CEL runtime error: {problem}"
                    ) from None
        is_per_device = device.slice_spec.get("perDeviceNodeSelection")
        return not is_per_device or is_meant_for(device.device, self.node)

    def _take(self, c: int, way: Json, pool: Pool, device: Found) -> bool:
        if self._is_in_use(c, way, device):
            return False
        if not self._has_counters(pool, device) or not _is_tolerated(way, device):
            return False
        if not self._satisfies_constraints(c, way, device):
            return False
        consumed = self._consumed(way, device)
        if consumed is None:
            self._forget_distinct(c, way)
            return False
        is_shareable = device.device.get("allowMultipleAllocations")
        result = {"request": way["full"], "driver": device.driver}
        result |= {"pool": device.pool, "device": device.name}
        if is_shareable:
            result["consumed"] = consumed
        self.results[c].append(result)
        self.chosen.append((c, way, device, consumed if is_shareable else None))
        return True

    def _undo(self, c: int, way: Json) -> None:
        self.results[c].pop()
        self.chosen.pop()
        self._forget_distinct(c, way)

    def _has_counters(self, pool: Pool, device: Found) -> bool:
        if not device.device.get("consumesCounters"):
            return True
        if device.device.get("allowMultipleAllocations") and self._is_shared(device):
            return True
        shared = {_id(one) for one in self.shares}
        paying: list[Found] = []
        for _, _, other, _ in self.chosen:
            # Shares of one device pay once.
            is_first = other not in paying or not other.device.get("allowMultipleAllocations")
            if (other.driver, other.pool) == (pool.driver, pool.name) and is_first:
                had_share = any(_id(one) == other.id and _says(one) for one in self.shares)
                if not (other.device.get("allowMultipleAllocations") and had_share):
                    paying.append(other)
        paying.append(device)
        for name, counters in pool.counters.items():
            for counter, total in counters.items():
                in_use = sum(
                    _consumes(one, name, counter)
                    for one in pool.members
                    if one.id in self.dedicated or one.id in shared
                )
                wanted = sum(_consumes(one, name, counter) for one in paying)
                if total - in_use < wanted:
                    return False
        return True

    def _is_shared(self, device: Found) -> bool:
        in_search = any(other == device for _, _, other, share in self.chosen if share is not None)
        return in_search or any(_id(one) == device.id and _says(one) for one in self.shares)

    def _satisfies_constraints(self, c: int, way: Json, device: Found) -> bool:
        constraints = self.claims[c]["spec"]["devices"].get("constraints", [])
        for index, constraint in enumerate(constraints):
            if _concerns(constraint, way) and not self._satisfies(
                c, index, constraint, way, device
            ):
                for before in range(index):
                    self.distinct.get((c, before), {}).pop(way["full"], None)
                if way["allocationMode"] == "All":
                    text = f"cannot add device {'/'.join(device.id)} because a claim constraint"
                    whose = f"claim {self._key(c)}, request {way['name']}"
                    raise Fatal(f"{whose}: {text} would not be satisfied")
                return False
        return True

    def _satisfies(self, c: int, index: int, constraint: Json, way: Json, device: Found) -> bool:
        if "matchAttribute" in constraint:
            name = constraint["matchAttribute"]
            found = _attribute(device, name)
            others = [
                _attribute(other, name)
                for claim, asked, other, _ in self.chosen
                if claim == c and _concerns(constraint, asked)
            ]
            return found is not None and all(other == found for other in others)
        found = _attribute(device, constraint["distinctAttribute"])
        values = self.distinct.setdefault((c, index), {})
        if found is None or found in values.values():
            return False
        values[way["full"]] = found
        return True

    def _forget_distinct(self, c: int, way: Json) -> None:
        constraints = self.claims[c]["spec"]["devices"].get("constraints", [])
        for index, constraint in enumerate(constraints):
            if _concerns(constraint, way):
                self.distinct.get((c, index), {}).pop(way["full"], None)

    def _consumed(
        self, way: Json, device: Found, *, before_search: bool = False
    ) -> dict[str, Fraction] | None:
        """What the request takes of every capacity; ``None`` if the device has not enough."""
        asked = (way.get("capacity") or {}).get("requests", {})
        capacities = device.device.get("capacity") or {}
        if not asked.keys() <= capacities.keys():
            return None
        found = {}
        for name, capacity in capacities.items():
            consumed = _consumption(capacity, asked.get(name))
            if _violates(capacity.get("requestPolicy"), consumed):
                return None
            in_use = sum(
                amount(one["consumedCapacity"].get(name, 0))
                for one in self.shares
                if _id(one) == device.id and _says(one)
            )
            in_search = sum(
                share[name]
                for _, _, other, share in self.chosen
                if other == device and share is not None
            )
            if in_use + (0 if before_search else in_search) + consumed > amount(capacity["value"]):
                return None
            found[name] = consumed
        return found


def _requests(claim: Json) -> Sequence[Json]:
    requests: Sequence[Json] = claim["spec"]["devices"].get("requests", [])
    return requests


def _ways(request: Json) -> list[Json]:
    if "firstAvailable" in request:
        return list(request["firstAvailable"])
    return [{"name": request["name"], **request["exactly"]}]


def _full_name(request: Json, way: Json) -> str:
    if "firstAvailable" in request:
        return f"{request['name']}/{way['name']}"
    return str(request["name"])


def _id(result: Json) -> tuple[str, str, str]:
    return result["driver"], result["pool"], result["device"]


def _says(result: Json) -> bool:
    """Whether a share tells how much it consumes."""
    return result.get("consumedCapacity") is not None


def _concerns(constraint: Json, way: Json) -> bool:
    names = constraint.get("requests")
    return not names or way["parent"] in names or way["full"] in names


def _consumes(one: Found, set_name: str, counter: str) -> Fraction:
    return sum(
        (
            amount(consumed["counters"][counter]["value"])
            for consumed in one.device.get("consumesCounters") or []
            if consumed["counterSet"] == set_name and counter in consumed["counters"]
        ),
        Fraction(0),
    )


def _attribute(device: Found, name: str) -> Any:
    attributes = device.device.get("attributes") or {}
    domain, _, identifier = name.partition("/")
    found = attributes.get(name)
    if found is None and domain == device.driver:
        found = attributes.get(identifier)
    return None if found is None else next(iter(found.items()))


def _is_tolerated(way: Json, device: Found) -> bool:
    def tolerates(toleration: Json, taint: Json) -> bool:
        if toleration.get("effect") and toleration["effect"] != taint["effect"]:
            return False
        if toleration.get("key") and toleration["key"] != taint["key"]:
            return False
        if toleration["operator"] == "Exists":
            return True
        return bool(toleration.get("value", "") == taint.get("value", ""))

    return all(
        any(tolerates(toleration, taint) for toleration in way.get("tolerations", []))
        for taint in device.device.get("taints", [])
        if taint["effect"] in ("NoSchedule", "NoExecute")
    )


def _consumption(capacity: Json, asked: Any) -> Fraction:
    policy = capacity.get("requestPolicy") or {}
    if asked is None:
        return amount(policy.get("default", capacity["value"]))
    wanted = amount(asked)
    limits = policy.get("validRange")
    if limits and "min" in limits:
        if wanted < amount(limits["min"]):
            return amount(limits["min"])
        if "step" not in limits:
            return wanted
        least, step = value(limits["min"]), value(limits["step"])
        return Fraction(least + step * ceil(Fraction(value(asked) - least, step)))
    return next(
        (amount(one) for one in policy.get("validValues", []) if amount(one) >= wanted), wanted
    )


def _violates(policy: Json | None, consumed: Fraction) -> bool:
    if policy is None or ("default" in policy and consumed == amount(policy["default"])):
        return False
    limits = policy.get("validRange")
    if limits:
        if "max" in limits and consumed > amount(limits["max"]):
            return True
        if "step" in limits and "min" in limits:
            return (consumed - amount(limits["min"])) % amount(limits["step"]) != 0
        return False
    valid = policy.get("validValues", [])
    return bool(valid) and all(consumed != amount(one) for one in valid)
