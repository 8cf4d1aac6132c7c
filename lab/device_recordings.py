"""Decisions of a real kube-scheduler about pods with resource claims, made again.

A decision is made up to PreBind, against claims that are stored as an API server stores them, so
that the devices that each claim was given can be compared.
"""

from __future__ import annotations

import asyncio
import copy
import json
from typing import Any

import msgspec
import numpy as np

from ksched.api.decoding import decoder_of
from ksched.api.devices import DeviceClass, ResourceClaim, ResourceSlice
from ksched.api.objects import Node, Pod
from ksched.api.watched_kinds import watched_kind
from ksched.cache.listers import Listers
from ksched.cache.node_table import NodeRows
from ksched.configuration.model import SchedulerConfiguration
from ksched.errors import ApiError, Conflict, NotFound
from ksched.framework.cycle_state import CycleState
from ksched.framework.plugins.dynamic_resources.attempt import Attempt
from ksched.framework.plugins.dynamic_resources.plugin import DynamicResources
from ksched.framework.runtime.guard import PluginFailure
from ksched.framework.runtime.reserve_to_post_bind import (
    run_pre_bind,
    run_pre_bind_pre_flight,
    run_reserve,
    run_unreserve,
)
from ksched.framework.status import Code
from lab.decider import Decider, Verdict, judge
from lab.recordings import score_disagreements

decode_claim = decoder_of(watched_kind(ResourceClaim))
decode_class = decoder_of(watched_kind(DeviceClass))
decode_slice = decoder_of(watched_kind(ResourceSlice))

SPECIAL = "<extended-resources>"
MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)
_INVALID = "status.allocation: Invalid value"


class StoredClaims:
    """Claims as an API server stores them; what is written is seen by the listers at once."""

    def __init__(self) -> None:
        self.claims: dict[str, Any] = {}
        self.pod_patches: list[Any] = []
        self.calls: list[str] = []
        self.listers: Listers | None = None
        self._version = 1_000_000

    def put(self, claim: Any) -> None:
        """Store a claim that was there before."""
        claim = copy.deepcopy(claim)
        self._store(claim)

    def remove_all(self) -> None:
        for key in list(self.claims):
            self._remove(key)

    def _remove(self, key: str) -> None:
        assert self.listers is not None
        lister = self.listers.require(ResourceClaim)
        lister.remove(decode_claim(json.dumps(self.claims.pop(key)).encode()))

    def _store(self, claim: Any) -> bytes:
        assert self.listers is not None
        self._version += 1
        claim["metadata"]["resourceVersion"] = str(self._version)
        meta = claim["metadata"]
        self.claims[f"{meta['namespace']}/{meta['name']}"] = claim
        raw = json.dumps(claim).encode()
        self.listers.require(ResourceClaim).put(decode_claim(raw))
        return raw

    def _stored(self, namespace: str, name: str) -> Any:
        try:
            return copy.deepcopy(self.claims[f"{namespace}/{name}"])
        except KeyError:
            text = f'resourceclaims.resource.k8s.io "{name}" not found'
            raise NotFound(404, "NotFound", text) from None

    async def read_resource_claim(self, namespace: str, name: str) -> bytes:
        self.calls.append("GET")
        return json.dumps(self._stored(namespace, name)).encode()

    async def create_resource_claim(self, namespace: str, body: bytes) -> bytes:
        self.calls.append("POST")
        claim = json.loads(body)
        claim["metadata"] |= {"name": SPECIAL, "uid": "made for extended resources"}
        claim["status"] = {}
        return self._store(claim)

    async def update_resource_claim(
        self, namespace: str, name: str, body: bytes, *, subresource: str = ""
    ) -> bytes:
        self.calls.append("PUT" + (f" {subresource}" if subresource else ""))
        wanted, claim = json.loads(body), self._stored(namespace, name)
        if wanted["metadata"].get("resourceVersion") != claim["metadata"]["resourceVersion"]:
            text = f'Operation cannot be fulfilled on resourceclaims "{name}": {MODIFIED}'
            raise Conflict(409, "Conflict", text)
        assert wanted["spec"] == claim["spec"], "the spec of a claim does not change"
        if not subresource:
            claim["metadata"]["finalizers"] = wanted["metadata"].get("finalizers", [])
            return self._store(claim)
        before = claim.get("status", {}).get("allocation")
        after = wanted["status"].get("allocation")
        if before is not None and after is not None and before != after:
            invalid = f"{_INVALID}: {json.dumps(after)}: field is immutable"
            text = f'ResourceClaim.resource.k8s.io "{name}" is invalid: {invalid}'
            raise ApiError(422, "Invalid", text)
        claim["status"] = wanted["status"]
        return self._store(claim)

    async def patch_resource_claim_status(self, namespace: str, name: str, body: bytes) -> bytes:
        self.calls.append("PATCH status")
        patch, claim = json.loads(body), self._stored(namespace, name)
        gone = {one["uid"] for one in patch["status"]["reservedFor"] if "$patch" in one}
        reserved = claim["status"].get("reservedFor", [])
        claim["status"]["reservedFor"] = [one for one in reserved if one["uid"] not in gone]
        return self._store(claim)

    async def delete_resource_claim(self, namespace: str, name: str) -> None:
        self.calls.append("DELETE")
        self._stored(namespace, name)
        self._remove(f"{namespace}/{name}")

    async def patch_pod_status(self, namespace: str, name: str, body: bytes) -> bytes:
        self.calls.append("PATCH pods/status")
        self.pod_patches.append(json.loads(body))
        return b"{}"

    async def bind(self, namespace: str, name: str, uid: str, node_name: str) -> None:
        raise NotImplementedError("a pod is decided and not bound")

    async def read_volume(self, name: str) -> bytes:
        raise NotImplementedError("there are no volumes")

    async def update_volume(self, name: str, body: bytes) -> bytes:
        raise NotImplementedError("there are no volumes")

    async def read_claim(self, namespace: str, name: str) -> bytes:
        raise NotImplementedError("there are no volumes")

    async def update_claim(self, namespace: str, name: str, body: bytes) -> bytes:
        raise NotImplementedError("there are no volumes")


class Tasks:
    """Notes what a plugin wants done beside everything else; ``finish`` does it."""

    def __init__(self) -> None:
        self._todo: list[Any] = []

    def start_soon(self, function: Any, *args: Any, name: str = "") -> None:
        self._todo.append((function, args))

    async def finish(self) -> None:
        while self._todo:
            function, args = self._todo.pop(0)
            await function(*args)


class DeviceDecider:
    """A decider that knows the devices of a recorded cluster, and writes claims."""

    def __init__(self, cluster: Any, configuration: SchedulerConfiguration | None = None) -> None:
        self.stored = StoredClaims()
        self.decider = Decider(configuration, client=self.stored)
        listers = self.stored.listers = self.decider.listers
        for obj in cluster["deviceclasses"]:
            listers.require(DeviceClass).put(decode_class(json.dumps(obj).encode()))
        for obj in cluster["resourceslices"]:
            listers.require(ResourceSlice).put(decode_slice(json.dumps(obj).encode()))
        self._cluster = cluster
        self._tasks = Tasks()
        self.decider.set_cluster(
            [msgspec.convert(node, Node) for node in cluster["nodes"]],
            [msgspec.convert(pod, Pod) for pod in cluster["pods"]],
        )

    async def find_disagreements(self, decision: Any) -> list[str]:
        """Make one decision again and return what differs, a line each."""
        self.stored.remove_all()
        for claim in [*self._cluster["resourceclaims"], *decision["claims"]]:
            self.stored.put(claim)
        self.stored.pod_patches.clear()
        cache = self.decider.cache
        others = [cache.pod_info(msgspec.convert(pod, Pod)) for pod in decision["pods"]]
        for info in others:
            cache.add_pod(info)
        try:
            found = await self._disagreements(decision)
        finally:
            for info in others:
                cache.remove_pod(info.uid)
        name = decision["pod"]["metadata"]["name"]
        return [f"pod {name} {decision['features']}:", *found] if found else []

    async def _disagreements(self, decision: Any) -> list[str]:
        wanted = decision["verdict"]
        cache, decider = self.decider.cache, self.decider
        info = cache.pod_info(msgspec.convert(decision["pod"], Pod))
        profile = decider.profiles[info.template.spec.scheduler_name]
        plugin = profile.framework.plugins["DynamicResources"]
        assert isinstance(plugin, DynamicResources)
        plugin._binder.tasks = self._tasks
        gate = plugin.pre_enqueue(info)
        if wanted.get("reason") == "gated" or not gate.is_success:
            is_gated = wanted.get("reason") == "gated" and not gate.is_success
            return [] if is_gated else [f"wanted: {wanted}", f"got: gated: {gate.message}"]
        if "first" in wanted:
            first = await judge(decider.cycle, cache, profile, info)
            if first.message != wanted["first"]:
                return [f"wanted at first: {wanted['first']}", f"got: {first.message}"]
        state = CycleState()
        cache.update_snapshot()
        got = await judge(decider.cycle, cache, profile, info, state)
        while "cut short" in got.message:
            # The searches go on in a thread; the next attempt finds what they found.
            await asyncio.sleep(0.05)
            state = CycleState()
            got = await judge(decider.cycle, cache, profile, info, state)
        if "first" not in wanted and "deallocation of ResourceClaim" in got.message:
            # The first attempt freed a claim; the record is of what came after.
            state = CycleState()
            got = await judge(decider.cycle, cache, profile, info, state)
        if wanted.get("reason") == "SchedulerError":
            return await self._compare_error(wanted["message"], got, profile, state, info)
        if "node" not in wanted:
            if got.feasible or got.message != wanted["message"]:
                return [f"wanted: {wanted['message']}", f"got:    {got.message} {got.feasible}"]
            return self._compare_claims(decision)
        found = _compare_scores(decision, got)
        if found:
            return found
        status = await self._bind(profile, state, info, wanted["node"])
        if not status.is_success:
            return [f"wanted: {wanted['node']}", f"got: {status.message}"]
        return self._compare_claims(decision)

    async def _bind(self, profile: Any, state: CycleState, info: Any, node: str) -> Any:
        framework = profile.framework
        status = await run_reserve(framework, state, info, node)
        if status.is_success:
            await run_pre_bind_pre_flight(framework, state, info, node)
            plugin = framework.plugins["DynamicResources"]
            plugin._binder._binding_timeout_seconds = 0.0
            try:
                status = await run_pre_bind(framework, state, info, node)
            except PluginFailure as failed:
                status = failed.status
            if "device binding timeout" in status.message:
                status = type(status)()
        return status

    async def _compare_error(
        self, wanted: str, got: Verdict, profile: Any, state: CycleState, info: Any
    ) -> list[str]:
        if not got.feasible:
            # Which of several nodes is asked first is chance.
            said = {got.message, *self._errors(profile, state, info)}
            is_same = _without_chance(wanted) in map(_without_chance, said)
            return [] if is_same else [f"wanted: {wanted}", f"got:    {sorted(said)}"]
        texts = []
        for node in sorted(got.feasible):
            status = await self._bind(profile, state.clone(), info, node)
            run_unreserve(profile.framework, state, info, node)
            await self._tasks.finish()
            texts.append(status.message)
        heads = {text.split(" is invalid: ")[0] for text in texts}
        if wanted.split(" is invalid: ")[0] in heads:
            return []
        return [f"wanted: {wanted}", f"got:    {sorted(heads)}"]

    def _errors(self, profile: Any, state: CycleState, info: Any) -> list[str]:
        """What each node that the filter cannot judge makes of it."""
        plugin, table = (
            profile.framework.plugins["DynamicResources"],
            self.decider.cache.snapshot.table,
        )
        if state.get(plugin.name, Attempt) is None:
            return []
        found = []
        for row in range(len(table)):
            rows = NodeRows(table, np.array([row], np.intp))
            for status in plugin.filter_nodes(state, info, rows).statuses:
                if status.code is Code.ERROR:
                    found.append(f'running "DynamicResources" filter plugin: {status.message}')
        return found

    def _compare_claims(self, decision: Any) -> list[str]:
        found = []
        for name, wanted in decision["result"].items():
            claim = self.stored.claims.get(f"dra/{name}")
            got = None if claim is None else shown_claim(claim, name == SPECIAL)
            if got != wanted:
                found += [
                    f"claim {name}",
                    f" wanted: {json.dumps(wanted)}",
                    f" got:    {json.dumps(got)}",
                ]
        if "mappings" in decision and not found:
            patches = self.stored.pod_patches
            got = [
                one["status"]["extendedResourceClaimStatus"]["requestMappings"] for one in patches
            ]
            if got != [decision["mappings"]]:
                found += [f"mappings wanted: {decision['mappings']}", f" got: {got}"]
        return found


def shown_claim(claim: Any, is_special: bool) -> Any:
    """What is compared of a claim."""
    status = claim.get("status", {})
    allocation = copy.deepcopy(status.get("allocation"))
    if allocation is not None:
        allocation["timestamped"] = allocation.pop("allocationTimestamp", None) is not None
        for result in allocation["devices"].get("results", []):
            if result.pop("shareID", None):
                result["shared"] = True
    shown = {
        "allocation": allocation,
        "reservedFor": [one["name"] for one in status.get("reservedFor", [])],
        "finalizers": claim["metadata"].get("finalizers", []),
    }
    return {**shown, "spec": claim["spec"]} if is_special else shown


def _compare_scores(decision: Any, got: Verdict) -> list[str]:
    wanted, node = decision["scores"], decision["verdict"]["node"]
    if not wanted:
        if got.feasible == {node}:
            return []
        return [f"wanted: only {node}", f"got:    {sorted(got.feasible)} {got.message}"]
    return score_disagreements(decision, got)


def _without_chance(message: str) -> str:
    """A message without the pool or device that is named by chance."""
    for before in ("resource pool ", "cannot add device "):
        head, found, tail = message.partition(before)
        if found:
            return head + found + tail.partition(" ")[2]
    return message
