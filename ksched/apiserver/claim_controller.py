"""A simulated controller of resource claims, as kube-controller-manager has one.

Makes the claims that pods ask for by template, releases the claims of pods that ended or are gone,
and takes back the devices that no pod uses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from ksched.apiserver.controller_requests import send
from ksched.apiserver.object_cache import ObjectCache, key_of
from ksched.apiserver.served_resources import JsonObject
from ksched.clock import Clock
from ksched.errors import Unavailable
from ksched.transport import MERGE_PATCH, Transport

POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
FINALIZER = "resource.kubernetes.io/delete-protection"

_RETRY_SECONDS = 1.0
_ENDED = ("Succeeded", "Failed")
_PODS = "/api/v1/pods"
_CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
_TEMPLATES = "/apis/resource.k8s.io/v1/resourceclaimtemplates"


class ClaimController:
    """Makes, releases and deletes claims; ``run`` it inside a task group."""

    def __init__(self, transport: Transport, clock: Clock) -> None:
        self._transport, self._clock = transport, clock
        self._pods = ObjectCache(transport, clock, _PODS, self._on_pod)
        self._claims = ObjectCache(transport, clock, _CLAIMS, self._on_claim)
        self._templates = ObjectCache(transport, clock, _TEMPLATES, self._on_template)
        self._todo: dict[str, None] = {}
        self._wake = asyncio.Event()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for cache in (self._templates, self._claims, self._pods):
                tasks.create_task(cache.run(), name="claims: watch")
            tasks.create_task(self._work(), name="claims: work")

    def _on_pod(self, pod: JsonObject, present: bool) -> None:
        if present and not _has_ended(pod):
            self._mark(f"pod {key_of(pod)}")
        for claim in self._claims.objects.values():
            if any(uid == pod["metadata"]["uid"] for uid in _users(claim)):
                self._mark(f"claim {key_of(claim)}")

    def _on_claim(self, claim: JsonObject, present: bool) -> None:
        if present:
            self._mark(f"claim {key_of(claim)}")

    def _on_template(self, template: JsonObject, present: bool) -> None:
        for key in self._pods.objects:
            self._mark(f"pod {key}")

    def _mark(self, item: str) -> None:
        self._todo[item] = None
        self._wake.set()

    async def _work(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._todo:
                item = next(iter(self._todo))
                del self._todo[item]
                kind, _, key = item.partition(" ")
                try:
                    await (self._pod(key) if kind == "pod" else self._claim(key))
                except Unavailable:
                    self._mark(item)
                    await self._clock.sleep(_RETRY_SECONDS)

    # -- one step for one object -------------------------------------------------------------------

    async def _pod(self, key: str) -> None:
        """Make the claims that a pod has templates for."""
        pod = self._pods.objects.get(key)
        if pod is None or _has_ended(pod) or pod["metadata"].get("deletionTimestamp"):
            return
        known = {
            one["name"]: one for one in pod.get("status", {}).get("resourceClaimStatuses") or []
        }
        made = {}
        for entry in pod["spec"].get("resourceClaims") or []:
            template = entry.get("resourceClaimTemplateName")
            if template and entry["name"] not in known:
                claim = await self._claim_of(pod, entry["name"], template)
                if claim is not None:
                    name = claim["metadata"]["name"]
                    made[entry["name"]] = {"name": entry["name"], "resourceClaimName": name}
        if made:
            status = {"resourceClaimStatuses": list({**known, **made}.values())}
            await self._patch(f"{_path(pod, 'pods')}/status", {"status": status}, self._pods)

    async def _claim_of(self, pod: JsonObject, entry: str, template_name: str) -> JsonObject | None:
        meta = pod["metadata"]
        for claim in self._claims.objects.values():
            annotations = claim["metadata"].get("annotations") or {}
            owners = (one["uid"] for one in _owners(claim))
            if annotations.get(POD_CLAIM_NAME) == entry and meta["uid"] in owners:
                return claim
        template = self._templates.objects.get(f"{meta['namespace']}/{template_name}")
        if template is None:
            return None
        wanted = template["spec"].get("metadata") or {}
        owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
        metadata = {
            "generateName": generated_prefix(meta["name"], entry),
            "namespace": meta["namespace"],
            "labels": wanted.get("labels") or {},
            "annotations": {**(wanted.get("annotations") or {}), POD_CLAIM_NAME: entry},
            "ownerReferences": [{**owner, "controller": True}],
        }
        kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
        body = {**kind, "metadata": metadata, "spec": template["spec"]["spec"]}
        group = "/apis/resource.k8s.io/v1"
        path = f"{group}/namespaces/{meta['namespace']}/resourceclaims"
        created = await send(self._transport, "POST", path, body)
        if created is not None:
            self._claims.apply(created, True)
        return created

    async def _claim(self, key: str) -> None:
        """Release a claim for pods that ended; without users it loses its devices."""
        claim = self._claims.objects.get(key)
        if claim is None:
            return
        path, status = _path(claim, "resourceclaims"), claim.get("status") or {}
        namespace = claim["metadata"]["namespace"]
        reserved = status.get("reservedFor") or []
        kept = [one for one in reserved if await self._is_alive(namespace, one)]
        owners = _owners(claim)
        is_orphan = bool(owners)
        for one in owners:
            is_orphan = is_orphan and not await self._is_alive(namespace, one)
        is_unused = not kept and (bool(reserved) or "deletionTimestamp" in claim["metadata"])
        if is_unused and status.get("allocation"):
            empty = {"reservedFor": None, "allocation": None, "devices": None}
            await self._patch(f"{path}/status", {"status": empty}, self._claims)
        elif len(kept) < len(reserved):
            await self._patch(f"{path}/status", {"status": {"reservedFor": kept}}, self._claims)
        elif not status.get("allocation") and FINALIZER in claim["metadata"].get("finalizers", ()):
            rest = [one for one in claim["metadata"]["finalizers"] if one != FINALIZER]
            await self._patch(path, {"metadata": {"finalizers": rest}}, self._claims)
        elif is_orphan and not kept and "deletionTimestamp" not in claim["metadata"]:
            await send(self._transport, "DELETE", path)

    async def _is_alive(self, namespace: str, reference: JsonObject) -> bool:
        """Whether a pod exists and has not ended.

        The watch of pods may be behind that of claims, so a pod that it has not shown is read.
        """
        pod = self._pods.objects.get(f"{namespace}/{reference['name']}")
        if pod is None or pod["metadata"]["uid"] != reference["uid"]:
            path = f"/api/v1/namespaces/{namespace}/pods/{reference['name']}"
            pod = await send(self._transport, "GET", path)
        return (
            pod is not None and pod["metadata"]["uid"] == reference["uid"] and not _has_ended(pod)
        )

    # -- writes ------------------------------------------------------------------------------------

    async def _patch(self, path: str, patch: JsonObject, cache: ObjectCache) -> None:
        stored = await send(self._transport, "PATCH", path, patch, MERGE_PATCH)
        if stored is not None:
            cache.apply(stored, True)


def generated_prefix(pod: str, entry: str) -> str:
    """``<pod>-<entry>-``, both cut where that would leave no room for what makes it unique."""
    whole = f"{pod}-{entry}-"
    if len(whole) <= 57:
        return whole
    cut = len(pod) * 57 // len(whole), len(entry) * 57 // len(whole)
    return f"{pod[: cut[0]]}-{entry[: cut[1]]}".rstrip("-") + "-"


def _has_ended(pod: JsonObject) -> bool:
    return (pod.get("status") or {}).get("phase") in _ENDED


def _users(claim: JsonObject) -> Iterator[str]:
    yield from (one["uid"] for one in (claim.get("status") or {}).get("reservedFor") or ())
    yield from (one["uid"] for one in _owners(claim))


def _owners(claim: JsonObject) -> list[JsonObject]:
    owners = claim["metadata"].get("ownerReferences") or ()
    return [one for one in owners if one.get("controller")]


def _path(obj: JsonObject, plural: str) -> str:
    meta = obj["metadata"]
    group = "/api/v1" if plural == "pods" else "/apis/resource.k8s.io/v1"
    return f"{group}/namespaces/{meta['namespace']}/{plural}/{meta['name']}"
