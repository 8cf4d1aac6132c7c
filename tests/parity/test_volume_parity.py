"""Random pods with volumes, decided by a real kube-scheduler and by ksched on the same objects.

Of a pod that stays pending, ``ksched explain`` must say the same too.

The cluster of a seed stays; its pods come one after the other, and what a placed pod changed of
claims and volumes is put back. ``make parity SEEDS=1000-1019`` plays other seeds than those of
every run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from functools import partial
from random import Random
from typing import Any

import msgspec
import pytest

from ksched.api.decoding import decoder
from ksched.api.objects import Node, Pod
from ksched.api.resources import NODES, PODS, ApiResource
from ksched.api.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from ksched.api.watched_kinds import watched_kind
from ksched.configuration.model import SchedulerConfiguration
from lab.control_plane import ControlPlane
from lab.decider import Decider
from lab.parity.arena import ONE_BY_ONE
from lab.parity.explained import explained
from lab.parity.influences import (
    VOLUME_PLUGINS,
    Influences,
    Removal,
    profiles_to_compare,
)
from lab.parity.kube_scheduler_log import ScoreLog
from lab.parity.tally import Tally
from lab.parity.verdicts import Decision, Outcome, difference
from lab.random_volumes import CLAIMS, ZONE, RandomVolumes
from lab.seeds import asked_seeds

pytestmark = [pytest.mark.real, pytest.mark.real_time]

NAMES = ("n0", "n1", "n2", "n3")
NAMESPACE = "alpha"
SEEDS, PODS_PER_SEED = 12, 10
BOUND, IMMEDIATE, WAITING = (
    f"Volume* of {kind} claims" for kind in ("bound", "immediate", "WaitForFirstConsumer")
)
OTHER_SOURCES = "Volume* of other sources"
EVERYTHING = (*VOLUME_PLUGINS, BOUND, IMMEDIATE, WAITING, OTHER_SOURCES)
CONFIGURATION = SchedulerConfiguration.model_validate(
    {
        "profiles": [
            {"schedulerName": "default-scheduler"},
            *profiles_to_compare(VOLUME_PLUGINS),
        ]
    }
)
SETTLE_SECONDS = 0.3
"""Each kind of object comes on a watch of its own; the pod's must not overtake the others."""

KINDS: dict[type[Any], ApiResource] = {
    kind: watched_kind(kind).resource
    for kind in (
        StorageClass,
        CSINode,
        CSIDriver,
        CSIStorageCapacity,
        PersistentVolume,
        PersistentVolumeClaim,
        VolumeAttachment,
    )
}
KINDS |= {Node: NODES, Pod: PODS}


class Scene:
    """The objects of one seed, on a real API server."""

    def __init__(self, plane: ControlPlane, seed: int) -> None:
        self.plane = plane
        self.random = Random(seed)
        self.source = RandomVolumes(self.random, NAMES)
        self.made: list[tuple[type[Any], dict[str, Any]]] = []
        for name in NAMES:
            self.create(Node, self._zoned(self.source.node(name)))
        for obj in self._storage():
            is_zoned = type(obj) is PersistentVolume
            self.create(type(obj), self._zoned(obj) if is_zoned else msgspec.to_builtins(obj))
        for number in range(5):
            node = self.random.choice(NAMES)
            self.create(Pod, self.pod(f"running{number}", node))

    def _zoned(self, obj: Any) -> dict[str, Any]:
        """An object that often has a zone: otherwise VolumeZone would rarely have a say."""
        made: dict[str, Any] = msgspec.to_builtins(obj)
        if self.source.sometimes():
            made["metadata"]["labels"].setdefault(ZONE, self.source.one_of(("za", "zb")))
        return made

    def _storage(self) -> Iterator[Any]:
        source = self.source
        # Later objects of a name replace earlier ones, as they would in time.
        makers = (
            [source.storage_class] * 12
            + [source.csi_node] * 6
            + [source.csi_driver] * 3
            + [source.capacity] * 5
            + [source.volume] * 24
            + [lambda name=name: source.claim(name, NAMESPACE) for name in CLAIMS]
            + [source.attachment] * 3
        )
        found: dict[tuple[type[Any], str], Any] = {}
        for make in makers:
            obj = make()
            found[type(obj), obj.metadata.key] = obj
        yield from found.values()

    def pod(self, name: str, node_name: str = "") -> dict[str, Any]:
        while True:
            pod = msgspec.to_builtins(self.source.pod(name, node_name))
            volumes = pod["spec"]["volumes"]
            sources = [str({**one, "name": ""}) for one in volumes]
            # kube-scheduler writes a claim that is named twice twice, and calls that a conflict.
            if len({*sources}) == len(sources) and not any("ephemeral" in one for one in volumes):
                break
        pod["metadata"]["namespace"] = NAMESPACE
        for volume in volumes:
            if len(volume) == 1:
                volume["emptyDir"] = {}
        return pod

    # -- the API server -------------------------------------------------------------------------

    def create(self, kind: type[Any], obj: dict[str, Any]) -> dict[str, Any]:
        meta, resource = obj["metadata"], KINDS[kind]
        for field in ("resourceVersion", "uid", "deletionTimestamp"):
            meta.pop(field, None)
        if meta.get("namespace") == "beta":
            meta["namespace"] = NAMESPACE
        obj = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
        _make_valid(kind, obj)
        namespace = meta.get("namespace", "")
        answer = self.plane.request("POST", resource.path(namespace), obj)
        assert answer.status == 201, (kind, obj, answer.body)
        if kind in (PersistentVolume, PersistentVolumeClaim, Node) and obj.get("status"):
            path = resource.path(namespace, meta["name"], "status")
            status = {"status": obj["status"]}
            merge = "application/merge-patch+json"
            answer = self.plane.request("PATCH", path, status, content_type=merge)
            assert answer.status == 200, answer.body
        self.made.append((kind, obj))
        return dict(answer.body)

    def delete(self, kind: type[Any], obj: dict[str, Any]) -> None:
        meta = obj["metadata"]
        path = KINDS[kind].path(meta.get("namespace", ""), meta["name"])
        # Protection finalizers wait for a controller that is not there.
        merge, free = "application/merge-patch+json", {"metadata": {"finalizers": None}}
        self.plane.request("PATCH", path, free, content_type=merge)
        self.plane.request("DELETE", f"{path}?gracePeriodSeconds=0")

    def objects(self, kind: type[Any]) -> list[Any]:
        return list(self.plane.request("GET", KINDS[kind].path()).body["items"] or ())

    def clear(self) -> None:
        for kind in reversed(KINDS):
            for obj in self.objects(kind):
                self.delete(kind, obj)

    # -- both sides -----------------------------------------------------------------------------

    def decider(self) -> Decider:
        """ksched on the objects as they are; ask before kube-scheduler changes them."""
        decider = Decider(CONFIGURATION)
        for kind in KINDS:
            if kind not in (Node, Pod):
                for obj in self.objects(kind):
                    decider.listers.require(kind).put(_decoded(kind, obj))
        decider.set_cluster(
            [_decoded(Node, one) for one in self.objects(Node)],
            [_decoded(Pod, one) for one in self.objects(Pod)],
        )
        return decider

    async def decide(
        self, name: str, score_log: ScoreLog
    ) -> tuple[dict[str, Any], Decision, Outcome]:
        """A new pod, what both make of it, and how it is explained; it is gone afterwards."""
        await asyncio.sleep(SETTLE_SECONDS)
        decider, removals = self.decider(), self.removals()
        stored = self.create(Pod, self.pod(name))
        verdict = await decider.decide(_decoded(Pod, stored))
        node = min(verdict.best, default="")
        ours = Outcome(node, verdict.message, verdict.scores)
        influences = Influences(decider.cycle, decider.cache, decider.profiles, VOLUME_PLUGINS)
        mattered = await influences.on(stored, removals)
        theirs = await self.verdict(name)
        told = await explained(self.plane, NAMESPACE, name) if theirs.message else theirs
        scores, _ = score_log.take(f"{NAMESPACE}/{name}")
        self.delete(Pod, stored)
        self.restore()
        theirs = msgspec.structs.replace(theirs, scores=scores if theirs.node else {})
        return stored, Decision(theirs, ours, frozenset(mattered)), told

    def removals(self) -> Mapping[str, Removal]:
        """Ways to take the volumes of one kind out of a pod."""
        modes = {
            one["metadata"]["name"]: one["volumeBindingMode"] for one in self.objects(StorageClass)
        }
        kinds = {"": OTHER_SOURCES}
        for claim in self.objects(PersistentVolumeClaim):
            mode = modes.get(claim["spec"].get("storageClassName", ""), "Immediate")
            unbound = WAITING if mode == "WaitForFirstConsumer" else IMMEDIATE
            kinds[claim["metadata"]["name"]] = BOUND if claim["spec"].get("volumeName") else unbound

        def without(kind: str, pod: dict[str, Any]) -> None:
            pod["spec"]["volumes"] = [
                volume
                for volume in pod["spec"]["volumes"]
                if kinds.get(volume.get("persistentVolumeClaim", {}).get("claimName", "")) != kind
            ]

        return {kind: partial(without, kind) for kind in (BOUND, IMMEDIATE, WAITING, OTHER_SOURCES)}

    async def verdict(self, name: str) -> Outcome:
        """The node that kube-scheduler chose, bound yet or not, or its message."""
        path = PODS.path(NAMESPACE, name)
        for _ in range(200):
            pod = self.plane.request("GET", path).body
            chosen = pod["spec"].get("nodeName") or pod["status"].get("nominatedNodeName")
            if chosen:
                return Outcome(chosen)
            for condition in pod["status"].get("conditions") or ():
                if condition["type"] == "PodScheduled" and condition["status"] == "False":
                    return Outcome(message=condition["message"])
            await asyncio.sleep(0.05)
        raise AssertionError(f"kube-scheduler did not decide about {name}")

    def restore(self) -> None:
        """Put back the claims and volumes that a placed pod changed."""
        for kind in (PersistentVolume, PersistentVolumeClaim):
            now = {one["metadata"]["name"]: one for one in self.objects(kind)}
            before, self.made = self.made, [one for one in self.made if one[0] is not kind]
            for _, obj in (one for one in before if one[0] is kind):
                known = now[obj["metadata"]["name"]]
                wanted = obj["metadata"].get("annotations") or {}
                if (known["metadata"].get("annotations") or {}) == wanted:
                    self.made.append((kind, obj))
                else:
                    self.delete(kind, obj)
                    self.create(kind, obj)


def _decoded(kind: type[Any], obj: dict[str, Any]) -> Any:
    return decoder(kind)(msgspec.json.encode(obj))


def _make_valid(kind: type[Any], obj: dict[str, Any]) -> None:
    """What an API server insists on and a scheduler does not read."""
    if kind is PersistentVolume:
        labels = obj["metadata"]["labels"]
        obj["metadata"]["labels"] = {key: value.rstrip("_") for key, value in labels.items()}
        reference = obj["spec"].get("claimRef")
        if reference is not None:
            reference["namespace"] = NAMESPACE
            reference.pop("uid", None)
        sources = ("csi", "awsElasticBlockStore", "cinder", "azureFile")
        if not any(source in obj["spec"] for source in sources):
            obj["spec"]["nfs"] = {"server": "s", "path": "/"}
    elif kind is CSINode:
        for driver in obj["spec"].get("drivers", ()):
            driver |= {"nodeID": "x", "topologyKeys": []}
            if not driver.get("allocatable"):
                driver.pop("allocatable", None)
    elif kind is VolumeAttachment:
        obj["spec"]["attacher"] = obj["spec"].get("attacher") or "none"
        obj["spec"]["source"] = obj["spec"].get("source") or {"persistentVolumeName": "none"}
    elif kind is Pod:
        for container in obj["spec"]["containers"]:
            container["image"] = "pause"
        for volume in obj["spec"]["volumes"]:
            if "iscsi" in volume:
                volume["iscsi"] |= {"iqn": "iqn.2026-01.example:i", "targetPortal": "h:1"}
    elif kind is StorageClass:
        terms = obj.get("allowedTopologies") or []
        unique = {str(term): term for term in terms if term.get("matchLabelExpressions")}
        obj["allowedTopologies"] = list(unique.values())


@pytest.mark.timeout(60 + 60 * len(asked_seeds(SEEDS)))
async def test_decides_about_volumes_as_kube_scheduler_does(
    control_plane: ControlPlane, tally: Tally
) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    control_plane.request("POST", "/api/v1/namespaces", namespace)
    tally.expect(EVERYTHING)
    seeds, differing, pending = asked_seeds(SEEDS), [], 0
    with control_plane.kube_scheduler(verbosity=10, flags=[ONE_BY_ONE]) as process:
        score_log = ScoreLog(process.log_path)
        for seed in seeds:
            scene = Scene(control_plane, seed)
            try:
                for number in range(PODS_PER_SEED):
                    pod, decision, told = await scene.decide(f"new{number}", score_log)
                    where = f"seed {seed}, decision {number}"
                    text = difference(where, pod, decision)
                    if not text and decision.theirs.message:
                        told_by_both = msgspec.structs.replace(decision, ours=told)
                        text = difference(f"{where}, explain", pod, told_by_both)
                        pending += 1
                    tally.add(decision.influences, differs=bool(text))
                    differing += [text] if text else []
            finally:
                scene.clear()
            print(f"seed {seed}: {pending} pending, {len(differing)} differ")  # noqa: T201
    assert not differing, "\n\n".join(differing)
    if len(seeds) >= SEEDS:
        assert tally.rarest(EVERYTHING) > 0
