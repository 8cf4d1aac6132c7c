"""A simulated driver: publishes the devices of nodes, and attaches those that claims were given.

Plays what of a driver is seen through the API: one ResourceSlice for each node with a label, and
the binding conditions of allocated devices. DRA drivers of real hardware run on the nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from ksched.apiserver.controller_requests import send
from ksched.apiserver.object_cache import ObjectCache, key_of
from ksched.apiserver.served_resources import JsonObject
from ksched.clock import Clock, rfc3339
from ksched.errors import Unavailable
from ksched.transport import MERGE_PATCH, Transport

_RETRY_SECONDS = 1.0
_GROUP = "/apis/resource.k8s.io/v1"


class DeviceDriver:
    """Publishes ``devices`` for every node that has ``label``; ``run`` it inside a task group.

    ``devices`` are as in a ResourceSlice. Those with binding conditions are attached
    ``attach_seconds`` after a claim was given them.
    """

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        name: str,
        devices: Sequence[Mapping[str, Any]],
        *,
        label: str = "",
        attach_seconds: float = 0.0,
    ) -> None:
        self._transport, self._clock = transport, clock
        self._name, self._devices, self._label = name, devices, label
        self._attach_seconds = attach_seconds
        self._nodes = ObjectCache(transport, clock, "/api/v1/nodes", self._on_node)
        self._claims = ObjectCache(transport, clock, f"{_GROUP}/resourceclaims", self._on_claim)
        self._todo: dict[str, float] = {}
        self._wake = asyncio.Event()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for cache in (self._nodes, self._claims):
                tasks.create_task(cache.run(), name=f"driver {self._name}: watch")
            tasks.create_task(self._work(), name=f"driver {self._name}: work")

    def _on_node(self, node: JsonObject, present: bool) -> None:
        self._mark(f"node {key_of(node)}", 0.0)

    def _on_claim(self, claim: JsonObject, present: bool) -> None:
        if present and self._unattached(claim):
            self._mark(f"claim {key_of(claim)}", self._attach_seconds)

    def _mark(self, item: str, seconds: float) -> None:
        self._todo.setdefault(item, self._clock.now() + seconds)
        self._wake.set()

    async def _work(self) -> None:
        while True:
            if not self._todo:
                self._wake.clear()
                await self._wake.wait()
            item = min(self._todo, key=self._todo.__getitem__)
            seconds = self._todo[item] - self._clock.now()
            if seconds > 0:
                await self._clock.sleep(seconds)
            del self._todo[item]
            kind, _, key = item.partition(" ")
            try:
                await (self._publish(key) if kind == "node" else self._attach(key))
            except Unavailable:
                self._mark(item, _RETRY_SECONDS)

    # -- one step for one object -------------------------------------------------------------------

    async def _publish(self, node_name: str) -> None:
        node = self._nodes.objects.get(node_name)
        path = f"{_GROUP}/resourceslices"
        slice_name = f"{node_name}-{self._name}"
        if node is None or (self._label and self._label not in node["metadata"].get("labels", {})):
            await send(self._transport, "DELETE", f"{path}/{slice_name}", None)
            return
        spec = {
            "driver": self._name,
            "nodeName": node_name,
            "pool": {"name": node_name, "generation": 1, "resourceSliceCount": 1},
            "devices": self._devices,
        }
        kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
        await send(
            self._transport, "POST", path, {**kind, "metadata": {"name": slice_name}, "spec": spec}
        )

    def _unattached(self, claim: JsonObject) -> list[JsonObject]:
        """The allocated devices of a claim whose binding conditions are not set yet."""
        status = claim.get("status") or {}
        known = {(one["pool"], one["device"]) for one in status.get("devices") or ()}
        results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
        return [
            one
            for one in results
            if one["driver"] == self._name
            and one.get("bindingConditions")
            and (one["pool"], one["device"]) not in known
        ]

    async def _attach(self, key: str) -> None:
        claim = self._claims.objects.get(key)
        results = [] if claim is None else self._unattached(claim)
        if claim is None or not results:
            return
        at = rfc3339(self._clock.wall())
        devices = list((claim.get("status") or {}).get("devices") or ())
        for one in results:
            conditions = [
                {
                    "type": condition,
                    "status": "True",
                    "reason": "Attached",
                    "message": "",
                    "lastTransitionTime": at,
                }
                for condition in one["bindingConditions"]
            ]
            device = {name: one[name] for name in ("driver", "pool", "device")}
            devices.append({**device, "conditions": conditions})
        meta = claim["metadata"]
        path = f"{_GROUP}/namespaces/{meta['namespace']}/resourceclaims/{meta['name']}/status"
        await send(self._transport, "PATCH", path, {"status": {"devices": devices}}, MERGE_PATCH)
