"""A simulated controller of volumes: it binds claims to volumes, and makes volumes for claims.

Plays both kube-controller-manager's PersistentVolume controller and every CSI provisioner. Volumes
of a class that waits for its first consumer are made when a scheduler has selected a node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

from ksched.api.quantity import to_nanos
from ksched.apiserver.controller_requests import send
from ksched.apiserver.object_cache import ObjectCache, key_of
from ksched.apiserver.served_resources import JsonObject
from ksched.clock import Clock
from ksched.errors import Unavailable
from ksched.transport import MERGE_PATCH, Transport

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
SELECTED_NODE = "volume.kubernetes.io/selected-node"

_NO_PROVISIONER = ("", "kubernetes.io/no-provisioner")
_RETRY_SECONDS = 1.0
_VOLUMES = "/api/v1/persistentvolumes"
_CLAIMS = "/api/v1/persistentvolumeclaims"
_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"


class VolumeController:
    """Binds and provisions; ``run`` it inside a task group.

    Making a volume takes ``provision_seconds``, binding takes ``bind_seconds``.
    """

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        *,
        provision_seconds: float = 0.0,
        bind_seconds: float = 0.0,
    ) -> None:
        self._transport, self._clock = transport, clock
        self._provision_seconds, self._bind_seconds = provision_seconds, bind_seconds
        self._volumes = ObjectCache(transport, clock, _VOLUMES, self._on_volume)
        self._claims = ObjectCache(transport, clock, _CLAIMS, self._on_claim)
        self._classes = ObjectCache(transport, clock, _CLASSES, self._on_class)
        self._due: dict[str, float] = {}
        self._provisioning: dict[str, float] = {}
        self._wake = asyncio.Event()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for cache in (self._classes, self._volumes, self._claims):
                tasks.create_task(cache.run(), name="volumes: watch")
            tasks.create_task(self._work(), name="volumes: work")

    # -- what a change makes worth looking at ------------------------------------------------------

    def _on_volume(self, volume: JsonObject, present: bool) -> None:
        if present:
            self._mark(f"volume {key_of(volume)}", self._bind_seconds)
        for claim in self._claims.objects.values():
            if not claim["spec"].get("volumeName"):
                self._mark(f"claim {key_of(claim)}", self._bind_seconds)

    def _on_claim(self, claim: JsonObject, present: bool) -> None:
        if present and _phase(claim) != "Bound":
            self._mark(f"claim {key_of(claim)}", self._bind_seconds)
        elif not present and claim["spec"].get("volumeName"):
            self._mark(f"volume {claim['spec']['volumeName']}", self._bind_seconds)

    def _on_class(self, storage_class: JsonObject, present: bool) -> None:
        for claim in self._claims.objects.values():
            self._on_claim(claim, present)

    def _mark(self, item: str, seconds: float) -> None:
        at = self._clock.now() + seconds
        self._due[item] = min(at, self._due.get(item, at))
        self._wake.set()

    async def _work(self) -> None:
        while True:
            now = self._clock.now()
            ready = [item for item, at in self._due.items() if at <= now]
            if not ready:
                await self._until_due()
            for item in ready:
                del self._due[item]
                kind, _, key = item.partition(" ")
                try:
                    await (self._volume(key) if kind == "volume" else self._claim(key))
                except Unavailable:
                    self._mark(item, _RETRY_SECONDS)

    async def _until_due(self) -> None:
        self._wake.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(min(self._due.values(), default=None)):
                await self._wake.wait()

    # -- one step for one object -------------------------------------------------------------------

    async def _volume(self, name: str) -> None:
        volume = self._volumes.objects.get(name)
        if volume is None:
            return
        reference = volume["spec"].get("claimRef")
        if reference is None:
            if _phase(volume) in ("", "Pending"):
                await self._set_status(volume, {"phase": "Available"})
            return
        claim = self._claims.objects.get(f"{reference['namespace']}/{reference['name']}")
        if claim is not None and _is_for(reference, claim) and _phase(claim) != "Bound":
            await self._bind(claim, volume)
        elif claim is None and _phase(volume) == "Bound":
            await self._set_status(volume, {"phase": "Released"})

    async def _claim(self, key: str) -> None:
        claim = self._claims.objects.get(key)
        if claim is None or _phase(claim) == "Bound" or claim["metadata"].get("deletionTimestamp"):
            return
        name = claim["spec"].get("volumeName")
        if name:
            volume = self._volumes.objects.get(name)
            reference = None if volume is None else volume["spec"].get("claimRef")
            if volume is not None and (reference is None or _is_for(reference, claim)):
                await self._bind(claim, volume)
            return
        storage_class = self._classes.objects.get(claim["spec"].get("storageClassName") or "")
        waits = (storage_class or {}).get("volumeBindingMode") == "WaitForFirstConsumer"
        if not waits:
            volume = min(self._fitting(claim), key=_size_of_volume, default=None)
            if volume is not None:
                await self._bind(claim, volume)
                return
        is_selected = SELECTED_NODE in (claim["metadata"].get("annotations") or {})
        if storage_class is not None and (is_selected or not waits):
            await self._provision(claim, storage_class)

    def _fitting(self, claim: JsonObject) -> Iterator[JsonObject]:
        spec = claim["spec"]
        for volume in self._volumes.objects.values():
            offered = volume["spec"]
            if (
                not offered.get("claimRef")
                and _phase(volume) == "Available"
                and (offered.get("storageClassName") or "") == (spec.get("storageClassName") or "")
                and set(spec.get("accessModes") or ()) <= set(offered.get("accessModes") or ())
                and _size_of_volume(volume) >= to_nanos(_request(claim))
            ):
                yield volume

    async def _bind(self, claim: JsonObject, volume: JsonObject) -> None:
        meta = claim["metadata"]
        reference = {
            "kind": "PersistentVolumeClaim",
            "apiVersion": "v1",
            "namespace": meta["namespace"],
            "name": meta["name"],
            "uid": meta["uid"],
        }
        await self._patch(volume, {"spec": {"claimRef": reference}})
        await self._set_status(volume, {"phase": "Bound"})
        bound = {"spec": {"volumeName": volume["metadata"]["name"]}}
        await self._patch(claim, {"metadata": {"annotations": {BIND_COMPLETED: "yes"}}, **bound})
        status = {"phase": "Bound", "capacity": volume["spec"]["capacity"]}
        modes = volume["spec"].get("accessModes") or []
        await self._set_status(claim, {**status, "accessModes": modes})

    async def _provision(self, claim: JsonObject, storage_class: JsonObject) -> None:
        """Provision a volume of the requested size, after a delay."""
        provisioner, meta = storage_class.get("provisioner", ""), claim["metadata"]
        if provisioner in _NO_PROVISIONER:
            return
        due = self._provisioning.setdefault(
            meta["uid"], self._clock.now() + self._provision_seconds
        )
        if self._clock.now() < due:
            self._mark(f"claim {key_of(claim)}", due - self._clock.now())
            return
        del self._provisioning[meta["uid"]]
        name = f"pvc-{meta['uid']}"
        reference = {"namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]}
        spec = {
            "capacity": {"storage": _request(claim)},
            "accessModes": claim["spec"].get("accessModes") or [],
            "storageClassName": storage_class["metadata"]["name"],
            "claimRef": {"kind": "PersistentVolumeClaim", "apiVersion": "v1", **reference},
            "csi": {"driver": provisioner, "volumeHandle": name},
        }
        kind = {"apiVersion": "v1", "kind": "PersistentVolume"}
        await send(
            self._transport, "POST", _VOLUMES, {**kind, "metadata": {"name": name}, "spec": spec}
        )

    # -- writes ------------------------------------------------------------------------------------

    async def _patch(self, obj: JsonObject, patch: JsonObject) -> None:
        stored = await send(self._transport, "PATCH", _path(obj), patch, MERGE_PATCH)
        if stored is not None:
            cache = self._claims if "namespace" in obj["metadata"] else self._volumes
            cache.apply(stored, True)

    async def _set_status(self, obj: JsonObject, status: JsonObject) -> None:
        await send(
            self._transport, "PATCH", f"{_path(obj)}/status", {"status": status}, MERGE_PATCH
        )


def _phase(obj: JsonObject) -> str:
    phase: str = (obj.get("status") or {}).get("phase") or ""
    return phase


def _is_for(reference: JsonObject, claim: JsonObject) -> bool:
    meta = claim["metadata"]
    same = (reference["name"], reference["namespace"]) == (meta["name"], meta["namespace"])
    return same and reference.get("uid") in (None, "", meta["uid"])


def _request(claim: JsonObject) -> str:
    requests = (claim["spec"].get("resources") or {}).get("requests") or {}
    request: str = requests.get("storage", "0")
    return request


def _size_of_volume(volume: JsonObject) -> int:
    return to_nanos((volume["spec"].get("capacity") or {}).get("storage", "0"))


def _path(obj: JsonObject) -> str:
    meta = obj["metadata"]
    if "namespace" in meta:
        return f"/api/v1/namespaces/{meta['namespace']}/persistentvolumeclaims/{meta['name']}"
    return f"{_VOLUMES}/{meta['name']}"
