"""The volume plugins against the reference, after every step of a random life of a cluster.

Nodes, pods, claims, volumes, classes, drivers, limits, capacities and attachments come, change and
go. After each step several pods are judged by the plugins, whose counters and indexes live through
all steps, and by the reference, which remembers nothing. Volumes promised to a pod look promised to
both.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from ksched.api.objects import Node, Pod
from ksched.api.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from ksched.configuration.loading import load_config
from ksched.framework import CycleState, PodInfo
from ksched.framework.plugins.volumes.volume_binding import VolumeBinding, _Attempt
from ksched.testing.virtual_time import run
from lab.decider import Decider
from lab.random_volumes import CLAIMS, NAMESPACES, RandomVolumes
from lab.reference import OtherObjects, ReferenceProfile, World, decide
from lab.reference.filters import FILTERS
from lab.reference.volume_binding import match_claims
from lab.reference.volumes import named_claims

PLUGINS = ("VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone")
LEGACY_LIMITS = {
    "EBSLimits": "attachable-volumes-aws-ebs",
    "GCEPDLimits": "attachable-volumes-gce-pd",
    "AzureDiskLimits": "attachable-volumes-azure-disk",
}
CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint:
      disabled: [{name: "*"}]
      enabled:
      - {name: PrioritySort}
      - {name: DefaultBinder}
      %s
"""
NAMES = tuple(f"n{number}" for number in range(6))
PROFILE = ReferenceProfile(filters=PLUGINS, weights={})
LEGACY_PROFILE = ReferenceProfile(
    filters=("VolumeRestrictions", *LEGACY_LIMITS, "VolumeBinding"), weights={}
)


class Life:
    """A cluster that changes, known to both sides."""

    def __init__(self, seed: int, profile: ReferenceProfile = PROFILE) -> None:
        self.random = Random(seed)
        self.source = RandomVolumes(self.random, NAMES)
        self.profile = profile
        enabled = "\n      ".join(f"- {{name: {plugin}}}" for plugin in profile.filters)
        self.decider = Decider(load_config(CONFIG % enabled))
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.objects: dict[type, dict[str, Any]] = {}
        self.reserved: list[tuple[CycleState, PodInfo, str, list[Any]]] = []
        self.made = 0
        for name in NAMES[:4]:
            self.put_node(self.source.node(name))
        for make, number in (
            (self.source.storage_class, 8),
            (self.source.csi_node, 6),
            (self.source.csi_driver, 2),
            (self.source.capacity, 4),
            (self.source.volume, 20),
            (self.source.attachment, 2),
        ):
            for _ in range(number):
                self.put(make())
        for namespace in NAMESPACES:
            for name in CLAIMS:
                self.put(self.source.claim(name, namespace))
        for _ in range(6):
            self.add_pod()

    # -- events ---------------------------------------------------------------------------------

    def step(self) -> None:
        source = self.source
        events = (
            *([lambda: self.put(source.claim())] * 4),
            *([lambda: self.put(source.volume())] * 4),
            *([self.add_pod] * 3),
            lambda: self.put(source.csi_node()),
            lambda: self.put(source.attachment()),
            lambda: self.put(source.storage_class()),
            lambda: self.put(source.capacity()),
            lambda: self.put(source.csi_driver()),
            *([self.reserve] * 2),
            *([self.end_reservation] * 2),
            self.make_ephemeral_claim,
            self.remove_object,
            self.remove_object,
            self.delete_pod,
            self.change_node,
            self.remove_node,
        )
        self.random.choice(events)()

    def put(self, obj: Any) -> None:
        self.objects.setdefault(type(obj), {})[obj.metadata.key] = obj
        self.decider.listers.require(type(obj)).put(obj)

    def remove_object(self) -> None:
        kind = self.random.choice(list(self.objects))
        if self.objects[kind] and (kind is not PersistentVolumeClaim or self.random.random() < 0.3):
            key = self.random.choice(list(self.objects[kind]))
            self.decider.listers.require(kind).remove(self.objects[kind].pop(key))

    def make_ephemeral_claim(self) -> None:
        pods = [*self.pods.values(), *self.incoming()]
        found = [(pod, one) for pod in pods for one in pod.spec.volumes if one.ephemeral]
        if found:
            pod, volume = self.random.choice(found)
            meta = pod.metadata
            claim = self.source.claim(f"{meta.name}-{volume.name}", meta.namespace)
            owner = {"name": meta.name, "uid": meta.uid, "controller": True}
            builtins = msgspec.to_builtins(claim)
            builtins["metadata"]["ownerReferences"] = [owner]
            self.put(msgspec.convert(builtins, PersistentVolumeClaim))

    def put_node(self, node: Node) -> None:
        if self.profile is LEGACY_PROFILE:
            amounts = {
                resource: str(self.random.randint(0, 2))
                for resource in LEGACY_LIMITS.values()
                if self.random.random() < 0.7
            }
            status = msgspec.structs.replace(
                node.status, allocatable={**node.status.allocatable, **amounts}
            )
            node = msgspec.structs.replace(node, status=status)
        self.nodes[node.metadata.name] = node
        self.decider.cache.add_node(node)

    def change_node(self) -> None:
        self.put_node(self.source.node(self.random.choice(NAMES)))

    def remove_node(self) -> None:
        if len(self.nodes) > 1:
            name = self.random.choice(list(self.nodes))
            del self.nodes[name]
            self.decider.cache.remove_node(name)

    def add_pod(self) -> None:
        self.made += 1
        pod = self.source.pod(f"p{self.made}", self.random.choice(NAMES))
        self.pods[pod.metadata.uid] = pod
        self.decider.cache.add_pod(self.decider.cache.pod_info(pod))

    def delete_pod(self) -> None:
        if self.pods:
            uid = self.random.choice(list(self.pods))
            del self.pods[uid]
            self.decider.cache.remove_pod(uid)

    # -- promises -------------------------------------------------------------------------------

    def reserve(self) -> None:
        """A pod is placed: its volumes are promised, and look so to everybody after it."""
        pod, plugin = self.random.choice(self.incoming()), self.plugin
        snapshot = self.decider.cache.update_snapshot()
        info, state = self.decider.cache.pod_info(pod), CycleState()
        if not plugin.pre_filter(state, info, snapshot).is_success:
            return
        fits = plugin.filter_nodes(state, info, snapshot.table.all()).codes == 0
        names = [one.name for one, fit in zip(snapshot.table.infos, fits, strict=True) if fit]
        if not names:
            return
        name = self.random.choice(names)
        world = World(list(self.nodes.values()), {}, pod, PROFILE, self.others)
        matched, provisioned = match_claims(world, self.nodes[name])
        assert plugin.reserve(state, info, name).is_success
        volumes = state.read(plugin.name, _Attempt).volumes
        got = [] if volumes is None else volumes.static
        pairs = [(one.claim.metadata.key, one.volume.metadata.name) for one in got]
        assert pairs == [(claim.metadata.key, volume.metadata.name) for claim, volume in matched]
        made = [] if volumes is None else [one.claim for one in volumes.provisioned]
        wanted = dict.fromkeys(one.metadata.key for one in provisioned)
        assert [one.metadata.key for one in made] == list(wanted)
        promised: list[Any] = [*(one.volume for one in got if one.is_changed), *made]
        for obj in promised:
            self.objects[type(obj)][obj.metadata.key] = obj
        self.reserved.append((state, info, name, promised))

    def end_reservation(self) -> None:
        """The promises are taken back, or the watch brings them."""
        if not self.reserved:
            return
        state, info, name, promised = self.reserved.pop()
        is_confirmed = self.random.random() < 0.5
        for obj in promised:
            kind, meta = type(obj), obj.metadata
            newest: Any = self.objects[kind].get(meta.key)
            if newest is not obj:
                continue
            if is_confirmed:
                version = str(self.random.randrange(10**9))
                meta = msgspec.structs.replace(meta, resource_version=version)
                self.put(msgspec.structs.replace(obj, metadata=meta))
            else:
                known = self.decider.listers.require(kind).get(meta.name, meta.namespace)
                self.objects[kind][meta.key] = known
        if not is_confirmed:
            self.plugin.unreserve(state, info, name)

    @property
    def plugin(self) -> VolumeBinding:
        framework = self.decider.profiles["default-scheduler"].framework
        plugin: VolumeBinding = framework.plugins["VolumeBinding"]
        return plugin

    # -- both sides -----------------------------------------------------------------------------

    def of(self, kind: type) -> list[Any]:
        return list(self.objects.get(kind, {}).values())

    @property
    def others(self) -> OtherObjects:
        return OtherObjects(
            volumes=self.of(PersistentVolume),
            claims=self.of(PersistentVolumeClaim),
            storage_classes=self.of(StorageClass),
            csi_nodes=self.of(CSINode),
            csi_drivers=self.of(CSIDriver),
            capacities=self.of(CSIStorageCapacity),
            attachments=self.of(VolumeAttachment),
        )

    def by_node(self) -> dict[str, list[Pod]]:
        by_node: dict[str, list[Pod]] = {}
        for pod in self.pods.values():
            by_node.setdefault(pod.spec.node_name, []).append(pod)
        return by_node

    def has_exclusive_claim(self, pod: Pod) -> bool:
        keys = {f"{pod.metadata.namespace}/{name}" for name in named_claims(pod)}
        return any(
            "ReadWriteOncePod" in claim.spec.access_modes and claim.metadata.key in keys
            for claim in self.of(PersistentVolumeClaim)
        )

    def incoming(self) -> list[Pod]:
        """Pods that have been judged before, and one that has not."""
        known = [RandomVolumes(Random(number), NAMES).pod(f"twin{number}") for number in range(5)]
        return [*known, self.source.pod("new")]

    async def compare(self) -> None:
        by_node, nodes = self.by_node(), list(self.nodes.values())
        for pod in self.incoming():
            wanted = decide(nodes, by_node, pod, self.profile, self.others)
            got = await self.decider.decide(pod)
            assert got.feasible == set(wanted.scores), (pod, got.message, wanted.message)
            if not got.feasible:
                assert got.message == wanted.message, pod


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_plugins_agree_with_the_reference_after_every_step(seed: int) -> None:
    _live_and_compare(seed, PROFILE)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_limits_of_old_disks_agree_with_the_reference_after_every_step(seed: int) -> None:
    _live_and_compare(seed, LEGACY_PROFILE)


def _live_and_compare(seed: int, profile: ReferenceProfile) -> None:
    async def live() -> None:
        life = Life(seed, profile)
        await life.compare()
        for _ in range(15):
            # Now and then several things happen between two decisions.
            for _ in range(life.random.choice((1, 1, 1, 2, 5))):
                life.step()
            await life.compare()

    run(live())


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_dry_run_agrees_with_counting_anew(seed: int) -> None:
    """Some pods of one node are taken away, others are added, and the node is judged again."""

    async def live() -> None:
        life = Life(seed)
        for _ in range(6):
            life.step()
        snapshot = life.decider.cache.update_snapshot()
        pipeline = life.decider.profiles["default-scheduler"].pipeline
        for pod in life.incoming():
            info, state = life.decider.cache.pod_info(pod), CycleState()
            status, _, _ = await pipeline.run_pre_filter(state, info)
            if not status.is_success or life.has_exclusive_claim(pod):
                # In dry runs upstream counts users of exclusive claims in its own way.
                continue
            for node in snapshot.table.infos:
                changed, changed_state = node.clone(), state.clone()
                by_node = life.by_node()
                here = by_node.setdefault(node.name, [])
                for victim in [one for one in here if life.random.random() < 0.5]:
                    here.remove(victim)
                    removed = node.pods[victim.metadata.uid]
                    pipeline.dry_run.remove_pod(changed_state, info, removed, changed)
                added = life.source.pod("nominated")
                if added.metadata.namespace == pod.metadata.namespace:
                    here.append(added)
                    extra = life.decider.cache.pod_info(added)
                    pipeline.dry_run.add_pod(changed_state, info, extra, changed)
                world = World(list(life.nodes.values()), by_node, pod, PROFILE, life.others)
                asked = [plugin for plugin in PLUGINS if plugin not in state.skip_filter]
                assert node.node is not None
                verdicts = (FILTERS[plugin](world, node.node) for plugin in asked)
                wanted = next(filter(None, verdicts), None) or ("Success", [])
                got = pipeline.dry_run.filter_node(changed_state, info, changed)
                assert (got.code.value, [*got.reasons]) == wanted, (pod, node.name)

    run(live())
