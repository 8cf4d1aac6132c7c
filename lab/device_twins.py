"""DynamicResources and the naive reference side by side, on random devices that come and go."""

from __future__ import annotations

import copy
import json
from fractions import Fraction
from random import Random
from typing import Any

import msgspec
import numpy as np

from ksched.api.devices import AllocationResult, DeviceClass, ResourceClaim, ResourceSlice
from ksched.api.objects import Node, Pod
from ksched.api.quantity import to_nanos
from ksched.cache.node_table import NodeRows
from ksched.framework.cycle_state import CycleState
from ksched.framework.plugins.dynamic_resources.attempt import Attempt
from ksched.framework.plugins.dynamic_resources.plugin import DynamicResources
from ksched.framework.status import Code
from lab.decider import Decider
from lab.device_recordings import decode_claim, decode_class, decode_slice
from lab.random_devices import NAMESPACE, RandomDevices
from lab.reference.devices import Fatal, Invalid, allocate

CLAIMS, POD_CLAIMS = 6, 2


class DeviceTwins:
    """A random cluster, and pods about which both are asked again after every change."""

    def __init__(self, seed: int) -> None:
        self._rng = Random(seed)
        self._source = RandomDevices(self._rng)
        self._source.make_cluster()
        self._decider = Decider()
        self._decider.set_cluster([msgspec.convert(one, Node) for one in self._source.nodes])
        plugins = self._decider.profiles["default-scheduler"].framework.plugins
        plugin = plugins["DynamicResources"]
        assert isinstance(plugin, DynamicResources)
        self._plugin = plugin
        self._numbers = 0
        self._slices: dict[str, Any] = {}
        self._classes: dict[str, Any] = {}
        self._allocated: dict[str, Any] = {}
        self._wanted: dict[str, Any] = {}
        for one in self._source.classes:
            self._put_class(one)
        for one in self._source.slices:
            self._put_slice(one)
        for number in range(CLAIMS):
            claim, _ = self._source.claim(f"wanted-{number}")
            self._put_claim(claim)
            self._wanted[claim["metadata"]["name"]] = claim
        names = list(self._wanted)
        self._pods = [names[:POD_CLAIMS], *([name] for name in names)]
        self.answers: dict[str, int] = {}
        """How often there were devices, none, an invalid pool or an error."""

    # -- events ---------------------------------------------------------------------------------

    def _put_slice(self, one: Any) -> None:
        self._slices[one["metadata"]["name"]] = one
        lister = self._decider.listers.require(ResourceSlice)
        lister.put(decode_slice(json.dumps(one).encode()))

    def _remove_slice(self, one: Any) -> None:
        del self._slices[one["metadata"]["name"]]
        lister = self._decider.listers.require(ResourceSlice)
        lister.remove(decode_slice(json.dumps(one).encode()))

    def _put_class(self, one: Any) -> None:
        self._classes[one["metadata"]["name"]] = one
        lister = self._decider.listers.require(DeviceClass)
        lister.put(decode_class(json.dumps(one).encode()))

    def _put_claim(self, claim: Any) -> None:
        self._numbers += 1
        name = claim["metadata"]["name"]
        claim["metadata"] |= {"uid": f"uid:{name}", "resourceVersion": str(self._numbers)}
        lister = self._decider.listers.require(ResourceClaim)
        lister.put(decode_claim(json.dumps(claim).encode()))

    def change(self) -> None:
        """One event."""
        events = (
            *(self._allocate, self._allocate, self._allocate, self._release),
            *(self._republish, self._republish, self._withdraw, self._relabel, self._redefine),
        )
        self._rng.choice(events)()

    def _allocate(self) -> None:
        """Give a claim devices that were found for another one, or any."""
        name = f"allocated-{self._numbers}"
        claim = self._source.allocated_claim(name)
        wanted = self._rng.choice(list(self._wanted.values()))
        node = self._rng.choice(self._source.nodes)
        try:
            found = self._reference(node, [wanted])
        except (Fatal, Invalid):
            found = None
        if found:
            claim = self._claim_with(name, wanted, found[0])
        if claim is not None:
            self._allocated[name] = claim
            self._put_claim(claim)

    def _claim_with(self, name: str, wanted: Any, results: list[dict[str, Any]]) -> Any:
        claim = copy.deepcopy(wanted)
        claim["metadata"] = {"name": name, "namespace": NAMESPACE}
        written = []
        asked = {one["name"]: one for one in wanted["spec"]["devices"]["requests"]}
        for number, result in enumerate(results):
            one = {key: text for key, text in result.items() if key != "consumed"}
            if "consumed" in result:
                one["shareID"] = f"{name}-{number}"
                consumed = {key: str(int(units)) for key, units in result["consumed"].items()}
                one["consumedCapacity"] = consumed
            if asked[result["request"].partition("/")[0]].get("exactly", {}).get("adminAccess"):
                one["adminAccess"] = True
            written.append(one)
        claim["status"] = {"allocation": {"devices": {"results": written}}}
        return claim

    def _release(self) -> None:
        if self._allocated:
            name = self._rng.choice(list(self._allocated))
            claim = self._allocated.pop(name)
            lister = self._decider.listers.require(ResourceClaim)
            lister.remove(decode_claim(json.dumps(claim).encode()))

    def _republish(self) -> None:
        """A driver publishes a pool anew: all of it, or as much as was seen yet."""
        if not self._slices:
            return
        spec = self._rng.choice(list(self._slices.values()))["spec"]
        pool = spec["pool"]["name"]
        made = self._source.pool(spec["driver"], spec.get("nodeName", ""), pool)
        keep = self._rng.random() < 0.5
        for one in list(self._slices.values()):
            mine = (one["spec"]["driver"], one["spec"]["pool"]["name"])
            if mine == (spec["driver"], pool) and not keep:
                self._remove_slice(one)
        for one in made:
            one["spec"]["pool"]["generation"] = spec["pool"]["generation"] + 1
            self._put_slice(one)

    def _withdraw(self) -> None:
        if len(self._slices) > 2:
            self._remove_slice(self._rng.choice(list(self._slices.values())))

    def _relabel(self) -> None:
        node = self._rng.choice(self._source.nodes)
        node["metadata"]["labels"]["zone"] = self._rng.choice("ab")
        self._decider.cache.add_node(msgspec.convert(node, Node))

    def _redefine(self) -> None:
        one = copy.deepcopy(self._classes[self._source.class_name("model-a")])
        selector = one["spec"]["selectors"][-1]["cel"]
        old, new = self._rng.sample(('"a"', '"b"'), 2)
        selector["expression"] = selector["expression"].replace(old, new)
        self._put_class(one)

    # -- comparison -----------------------------------------------------------------------------

    def _reference(self, node: Any, claims: list[Any]) -> list[list[dict[str, Any]]] | None:
        slices = list(self._slices.values())
        allocated = list(self._allocated.values())
        return allocate(node, slices, self._classes, allocated, claims)

    async def compare(self) -> list[str]:
        """What differs now, a line each."""
        found = []
        for names in self._pods:
            found += await self._compare(names)
        return found

    async def _compare(self, names: list[str]) -> list[str]:
        entries = [{"name": f"e{n}", "resourceClaimName": one} for n, one in enumerate(names)]
        pod = {
            "metadata": {"name": "web", "namespace": NAMESPACE, "uid": "web"},
            "spec": {"resourceClaims": entries, "containers": [{"name": "c"}]},
        }
        cache, plugin = self._decider.cache, self._plugin
        info, state = cache.pod_info(msgspec.convert(pod, Pod)), CycleState()
        cache.update_snapshot()
        status = plugin.pre_filter(state, info, cache.snapshot)
        if not hasattr(status, "is_success"):
            status = await status
        assert status.is_success, status
        table = cache.snapshot.table
        verdicts = plugin.filter_nodes(state, info, NodeRows(table, None))
        wanted: dict[str, Any] = {}
        for node in self._source.nodes:
            try:
                wanted[node["metadata"]["name"]] = self._reference(
                    node, [self._wanted[name] for name in names]
                )
            except (Fatal, Invalid) as problem:
                wanted[node["metadata"]["name"]] = problem
        for answer in wanted.values():
            kind = type(answer).__name__
            self.answers[kind] = self.answers.get(kind, 0) + 1
        fatal = {str(one) for one in wanted.values() if isinstance(one, Fatal)}
        got = verdicts.statuses[0] if len(verdicts.statuses) == 1 else None
        if fatal or (got is not None and got.code is Code.ERROR):
            is_same = got is not None and got.message in fatal
            return [] if is_same else [f"{names}: wanted {fatal}", f"got {got}"]
        differences = []
        for row, node_info in enumerate(table.infos):
            code = int(np.asarray(verdicts.codes)[row])
            chosen: Any = code
            if code == 0:
                attempt = state.read(plugin.name, Attempt)
                results = plugin._finder.choose(attempt, info.template, node_info) or {}
                chosen = [_shown(one) for one in results.values()]
            expected = wanted[node_info.name]
            shown: Any = 1
            if isinstance(expected, Invalid):
                shown = 2
            elif expected is not None:
                shown = [[_plain(one) for one in each] for each in expected]
            if chosen != shown:
                differences.append(f"{names} on {node_info.name}: wanted {shown}, got {chosen}")
        return differences


def _plain(result: dict[str, Any]) -> tuple[Any, ...]:
    consumed = result.get("consumed")
    amounts = None if consumed is None else sorted(consumed.items())
    return result["request"], result["driver"], result["pool"], result["device"], amounts


def _shown(allocation: AllocationResult) -> list[tuple[Any, ...]]:
    shown = []
    for one in allocation.devices.results:
        amounts = None
        if one.share_id is not None:
            consumed = one.consumed_capacity or {}
            amounts = sorted(
                (name, Fraction(to_nanos(amount), 10**9)) for name, amount in consumed.items()
            )
        shown.append((one.request, one.driver, one.pool, one.device, amounts))
    return shown
