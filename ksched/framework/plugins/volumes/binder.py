"""Assumes volumes for a pod, writes them to the API server and waits until the claims are bound.

Follows plugins/volumebinding/binder.go: AssumePodVolumes, BindPodVolumes (v1.36). Claims and
volumes are read before they are written, because ksched decodes only the fields it needs and the
API server expects complete objects; an object that is no longer the version of the decision is a
conflict, as in kube-scheduler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from ksched.api.objects import Node
from ksched.api.storage import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    ObjectReference,
    PersistentVolume,
    PersistentVolumeClaim,
)
from ksched.errors import ApiError, Conflict
from ksched.framework import SUCCESS, Handle, NodeInfo, PodInfo, Status, error
from ksched.framework.assumed_volumes import NotAssumed
from ksched.framework.node_columns import NodeTable, ResourceAxis
from ksched.framework.plugins.volumes.finding import Placement, VolumeFinder
from ksched.framework.plugins.volumes.matching import CannotMatch

LOOK_AGAIN_SECONDS = 1.0
"""Longest time between two checks; changes of the claims and volumes are noticed at once."""

_MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)

Json = dict[str, Any]


class StaticBinding:
    """A volume assumed for a claim. ``written`` is its version once it is written.

    kube-scheduler: BindingInfo.
    """

    def __init__(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        reference = ObjectReference(
            kind="PersistentVolumeClaim",
            api_version="v1",
            namespace=claim.metadata.namespace,
            name=claim.metadata.name,
            uid=claim.metadata.uid,
            resource_version=claim.metadata.resource_version,
        )
        known = volume.spec.claim_ref
        is_same = known is not None and known.uid == reference.uid and volume.is_bound_to(claim)
        annotations = volume.metadata.annotations
        # The controller must not release a volume that a user reserved for the claim.
        if not volume.is_bound_to(claim):
            annotations = {BOUND_BY_CONTROLLER: "yes", **annotations}
        self.claim = claim
        self.is_changed = not is_same
        self.volume = volume
        if self.is_changed:
            self.volume = replace(
                volume,
                metadata=replace(volume.metadata, annotations=annotations),
                spec=replace(volume.spec, claim_ref=reference),
            )
        self.written = "" if self.is_changed else volume.metadata.resource_version

    def apply(self, raw: Json) -> None:
        """Apply the change to the complete object."""
        raw["spec"]["claimRef"] = msgspec.to_builtins(self.volume.spec.claim_ref)
        if BOUND_BY_CONTROLLER in self.volume.metadata.annotations:
            _annotate(raw, BOUND_BY_CONTROLLER, "yes")


class Provisioning:
    """A claim to be provisioned for a node; ``written`` as above.

    kube-scheduler: DynamicProvision.
    """

    def __init__(self, claim: PersistentVolumeClaim, node_name: str) -> None:
        annotations = {**claim.metadata.annotations, SELECTED_NODE: node_name}
        self.claim = replace(claim, metadata=replace(claim.metadata, annotations=annotations))
        self.written = ""

    def apply(self, raw: Json) -> None:
        _annotate(raw, SELECTED_NODE, self.claim.metadata.annotations[SELECTED_NODE])


class PodVolumes:
    """The assumed volumes and claims of one pod on one node."""

    def __init__(self, placement: Placement, node_name: str) -> None:
        self.static = [StaticBinding(claim, volume) for claim, volume in placement.static]
        # A claim that the pod names twice is written once: the second write would be a conflict.
        provisioned = {claim.metadata.key: claim for claim in placement.provisioned}
        self.provisioned = [Provisioning(claim, node_name) for claim in provisioned.values()]


class Unbound(Exception):
    """The volumes will not be bound as assumed; the pod must be scheduled again."""


class VolumeBinder:
    """Assumes, writes and awaits bindings. kube-scheduler: SchedulerVolumeBinder."""

    def __init__(self, handle: Handle, finder: VolumeFinder, bind_timeout_seconds: float) -> None:
        self._handle = handle
        self._finder = finder
        self._volumes = finder.volumes.volumes
        self._claims = finder.volumes.claims
        self._bind_timeout_seconds = bind_timeout_seconds
        self._axis = ResourceAxis()

    # -- assumed objects ------------------------------------------------------------------------

    def assume(self, pod_volumes: PodVolumes) -> Status:
        """Assume everything or nothing. kube-scheduler: AssumePodVolumes."""
        try:
            for binding in pod_volumes.static:
                if binding.is_changed:
                    self._volumes.assume(binding.volume)
            for provisioning in pod_volumes.provisioned:
                self._claims.assume(provisioning.claim)
        except NotAssumed as problem:
            self.revert(pod_volumes)
            return error(str(problem))
        return SUCCESS

    def revert(self, pod_volumes: PodVolumes) -> None:
        """Drop assumed objects. Written ones stay assumed until the watch delivers them.

        kube-scheduler: RevertAssumedPodVolumes, revertAssumedPVs, revertAssumedPVCs.
        """
        for binding in pod_volumes.static:
            if not binding.written:
                self._volumes.restore(binding.volume)
        for provisioning in pod_volumes.provisioned:
            if not provisioning.written:
                self._claims.restore(provisioning.claim)

    # -- writing --------------------------------------------------------------------------------

    async def bind(self, pod: PodInfo, node_name: str, pod_volumes: PodVolumes) -> Status:
        """Write the assumed objects and wait until every claim is bound.

        kube-scheduler: BindPodVolumes.
        """
        losses = self._finder.volumes.losses
        try:
            await self._write(pod_volumes)
        except ApiError as problem:
            return error(problem.message)
        try:
            await self._wait(pod, node_name, pod_volumes, losses)
        except Unbound as problem:
            return error(f"binding volumes: {problem}")
        return SUCCESS

    async def _write(self, pod_volumes: PodVolumes) -> None:
        """kube-scheduler: bindAPIUpdate."""
        client = self._handle.client
        for binding in pod_volumes.static:
            meta = binding.volume.metadata
            if binding.is_changed:
                raw = await client.read_volume(meta.name)
                body = _changed(raw, meta.resource_version, "persistentvolumes", binding.apply)
                binding.written = _version(await client.update_volume(meta.name, body))
        for provisioning in pod_volumes.provisioned:
            meta = provisioning.claim.metadata
            raw = await client.read_claim(meta.namespace, meta.name)
            kind = "persistentvolumeclaims"
            body = _changed(raw, meta.resource_version, kind, provisioning.apply)
            answer = await client.update_claim(meta.namespace, meta.name, body)
            provisioning.written = _version(answer)

    # -- waiting --------------------------------------------------------------------------------

    async def _wait(
        self, pod: PodInfo, node_name: str, pod_volumes: PodVolumes, losses: int
    ) -> None:
        clock = self._handle.clock
        deadline = clock.now() + self._bind_timeout_seconds
        claims = [one.claim.metadata.key for one in pod_volumes.static]
        claims += [one.claim.metadata.key for one in pod_volumes.provisioned]
        volumes = [binding.volume.metadata.name for binding in pod_volumes.static]
        changed = asyncio.Event()
        with (
            self._claims.lister.notifying(claims, changed.set),
            self._volumes.lister.notifying(volumes, changed.set),
        ):
            while not self._is_bound(pod, node_name, pod_volumes):
                remaining = deadline - clock.now()
                if remaining <= 0:
                    raise Unbound("context deadline exceeded")
                changed.clear()
                try:
                    async with asyncio.timeout(min(remaining, LOOK_AGAIN_SECONDS)):
                        await changed.wait()
                except TimeoutError:
                    pass
                if self._finder.volumes.losses != losses:
                    raise Unbound("the API server lost what was written")

    def _is_bound(self, pod: PodInfo, node_name: str, pod_volumes: PodVolumes) -> bool:
        """Whether every claim is bound; raises ``Unbound`` if that can no longer happen.

        Reads the objects from the watch, not the assumed ones: the controllers decide.

        kube-scheduler: checkBindings.
        """
        node = self._handle.node(node_name)
        if node is None:
            raise Unbound(f'failed to get node "{node_name}": node "{node_name}" not found')
        if not self._handle.has_pod(pod.uid):
            raise Unbound(f'pod does not exist any more: pod "{pod.name}" not found')
        return all(self._is_static_bound(one, node) for one in pod_volumes.static) and all(
            self._is_provisioned(one, node) for one in pod_volumes.provisioned
        )

    def _is_static_bound(self, binding: StaticBinding, node: Node) -> bool:
        name = binding.volume.metadata.name
        volume = self._volumes.lister.get(name)
        if volume is None:
            raise Unbound(f'failed to check binding: persistentvolumes "{name}" not found')
        claim = self._claim(binding.claim, "failed to check binding")
        if _is_older(volume.metadata.resource_version, binding.written):
            return False
        self._check_reachable(volume, node)
        if volume.spec.claim_ref is None or not volume.spec.claim_ref.uid:
            raise Unbound(f'ClaimRef got reset for pv "{name}"')
        return claim.is_fully_bound

    def _is_provisioned(self, provisioning: Provisioning, node: Node) -> bool:
        claim = self._claim(provisioning.claim, "failed to check provisioning pvc")
        if _is_older(claim.metadata.resource_version, provisioning.written):
            return False
        name, annotations = claim.metadata.name, claim.metadata.annotations
        if not annotations:
            raise Unbound(f'selectedNode annotation reset for PVC "{name}"')
        # A provisioner that failed removes the annotation to have another node selected.
        if annotations.get(SELECTED_NODE) != node.metadata.name:
            raise Unbound(f'provisioning failed for PVC "{name}"')
        if claim.spec.volume_name:
            volume = self._volumes.lister.get(claim.spec.volume_name)
            if volume is None:
                # The claim's watch event may arrive before its volume's.
                return False
            self._check_reachable(volume, node)
        return claim.is_fully_bound

    def _claim(self, claim: PersistentVolumeClaim, activity: str) -> PersistentVolumeClaim:
        known = self._claims.lister.get(claim.metadata.name, claim.metadata.namespace)
        if known is None:
            key = claim.metadata.key
            raise Unbound(f'{activity}: persistentvolumeclaims "{key}" not found')
        return known

    def _check_reachable(self, volume: PersistentVolume, node: Node) -> None:
        info = NodeInfo(node.metadata.name, self._axis)
        info.set_node(node)
        try:
            reachable = self._finder.is_reachable(volume, NodeTable.of([info], self._axis).all())
        except CannotMatch as problem:
            raise Unbound(f"failed to translate pv to csi: {problem}") from problem
        if not reachable[0]:
            pair = f'pv "{volume.metadata.name}" node affinity doesn\'t match node'
            raise Unbound(f'{pair} "{node.metadata.name}": no matching NodeSelectorTerms')


def _changed(raw: bytes, version: str, plural: str, change: Callable[[Json], None]) -> bytes:
    """Return the complete object with a change; raises ``Conflict`` for another version."""
    obj: Json = msgspec.json.decode(raw)
    if obj["metadata"].get("resourceVersion") != version:
        what = f'Operation cannot be fulfilled on {plural} "{obj["metadata"]["name"]}"'
        raise Conflict(409, "Conflict", f"{what}: {_MODIFIED}")
    change(obj)
    return msgspec.json.encode(obj)


def _annotate(raw: Json, key: str, value: str) -> None:
    raw["metadata"]["annotations"] = {**(raw["metadata"].get("annotations") or {}), key: value}


def _version(raw: bytes) -> str:
    version: str = msgspec.json.decode(raw)["metadata"]["resourceVersion"]
    return version


def _is_older(version: str, other: str) -> bool:
    """Whether the watch has yet to bring what was written."""
    if version.isdecimal() and other.isdecimal():
        return int(version) < int(other)
    return version != other
