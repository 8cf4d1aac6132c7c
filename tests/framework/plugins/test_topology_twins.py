"""Incremental counters against counting anew, after every step of a random life of a cluster.

Nodes come, are relabelled, tainted and go; pods come, are relabelled, terminate and go; namespaces,
services and replica sets change. After each step several kinds of pod are judged by the plugins,
whose counters live through all steps, and by the reference, which remembers nothing.
"""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ksched.api.objects import Namespace, Node, Pod, ReplicaSet, Service
from ksched.configuration.loading import load_config
from ksched.framework import CycleState, NodeInfo, Status
from ksched.framework.runtime import codes, filter_columns, score_columns
from ksched.testing.virtual_time import run
from lab.decider import Decider
from lab.random_topology import RandomTopology
from lab.reference import OtherObjects, ReferenceProfile, World, decide
from lab.reference.filters import FILTERS
from lab.reference.label_matching import is_empty

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
      - {name: PodTopologySpread, weight: 2}
      - {name: InterPodAffinity, weight: 3}
      - {name: NodeDeclaredFeatures}
      - {name: SelectorSpread, weight: 1}
  pluginConfig:
  - name: InterPodAffinity
    args: {hardPodAffinityWeight: %d, ignorePreferredTermsOfExistingPods: %s}
"""
NAMES = [f"n{number}" for number in range(7)]


class Life:
    """A cluster that changes, known to both sides."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.source = RandomTopology(self.random)
        hard_weight, ignores = self.random.choice((0, 1, 7)), self.random.random() < 0.3
        self.decider = Decider(load_config(CONFIG % (hard_weight, str(ignores).lower())))
        self.profile = ReferenceProfile(
            filters=("PodTopologySpread", "InterPodAffinity", "NodeDeclaredFeatures"),
            weights={"PodTopologySpread": 2, "InterPodAffinity": 3, "SelectorSpread": 1},
            hard_pod_affinity_weight=hard_weight,
            ignore_preferred_terms_of_existing_pods=ignores,
        )
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.namespaces: dict[str, Namespace] = {}
        self.services: dict[str, Service] = {}
        self.replica_sets: dict[str, ReplicaSet] = {}
        self.made = 0
        for name in NAMES[:5]:
            self.put_node(self.source.node(name))
        for _ in range(8):
            self.add_pod()

    # -- events ---------------------------------------------------------------------------------

    def step(self) -> None:
        events = (
            *([self.add_pod] * 4),
            *([self.change_node] * 3),
            self.remove_node,
            self.relabel_pod,
            self.terminate_pod,
            self.delete_pod,
            self.change_namespace,
            self.change_service,
            self.change_replica_set,
        )
        self.random.choice(events)()

    def put_node(self, node: Node) -> None:
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
        """On a node that is there, or will come, or was there."""
        self.made += 1
        # Few names, so that the same pod comes back later, and templates have twins.
        twin = Random(self.made % 5)
        source = RandomTopology(twin) if self.random.random() < 0.5 else self.source
        self.put_pod(source.pod(f"p{self.made}", self.random.choice(NAMES)))

    def put_pod(self, pod: Pod) -> None:
        self.pods[pod.metadata.uid] = pod
        self.decider.cache.add_pod(self.decider.cache.pod_info(pod))

    def relabel_pod(self) -> None:
        if self.pods:
            pod = self.random.choice(list(self.pods.values()))
            meta = msgspec.structs.replace(pod.metadata, labels=self.source.pod_labels())
            self.put_pod(msgspec.structs.replace(pod, metadata=meta))

    def terminate_pod(self) -> None:
        if self.pods:
            pod = self.random.choice(list(self.pods.values()))
            meta = msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
            self.put_pod(msgspec.structs.replace(pod, metadata=meta))

    def delete_pod(self) -> None:
        if self.pods:
            uid = self.random.choice(list(self.pods))
            del self.pods[uid]
            self.decider.cache.remove_pod(uid)

    def change_namespace(self) -> None:
        namespace = self.source.namespace()
        lister = self.decider.listers.require(Namespace)
        if self.random.random() < 0.3 and namespace.metadata.key in self.namespaces:
            lister.remove(self.namespaces.pop(namespace.metadata.key))
        else:
            self.namespaces[namespace.metadata.key] = namespace
            lister.put(namespace)

    def change_service(self) -> None:
        service = self.source.service()
        self.services[service.metadata.key] = service
        self.decider.listers.require(Service).put(service)

    def change_replica_set(self) -> None:
        replica_set = self.source.replica_set()
        self.replica_sets[replica_set.metadata.key] = replica_set
        self.decider.listers.require(ReplicaSet).put(replica_set)

    # -- both sides -----------------------------------------------------------------------------

    @property
    def others(self) -> OtherObjects:
        return OtherObjects(
            namespaces=list(self.namespaces.values()),
            services=list(self.services.values()),
            replica_sets=list(self.replica_sets.values()),
        )

    def by_node(self) -> dict[str, list[Pod]]:
        by_node: dict[str, list[Pod]] = {}
        for pod in self.pods.values():
            by_node.setdefault(pod.spec.node_name, []).append(pod)
        return by_node

    def incoming(self) -> list[Pod]:
        """Pods that have been judged before, and one that has not."""
        known = [RandomTopology(Random(number)).pod(f"twin{number}") for number in range(5)]
        return [*known, self.source.pod("new")]

    async def compare(self) -> None:
        by_node, nodes = self.by_node(), list(self.nodes.values())
        for pod in self.incoming():
            wanted = decide(nodes, by_node, pod, self.profile, self.others)
            got = await self.decider.decide(pod)
            assert got.feasible == set(wanted.scores), pod
            if not got.feasible:
                assert got.message == wanted.message, pod
            elif len(got.feasible) > 1:
                assert got.scores == wanted.scores, pod


@pytest.fixture
def many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat rows as a large cluster's are: all at once, however few."""
    for module in (codes, filter_columns, score_columns):
        monkeypatch.setattr(module, "FEW_ROWS", 0)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_counters_agree_with_counting_anew_after_every_step(seed: int) -> None:
    _live_and_compare(seed)


@pytest.mark.usefixtures("many_at_once")
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**32 - 1))
def test_so_they_do_where_many_rows_change_at_once(seed: int) -> None:
    _live_and_compare(seed)


def _live_and_compare(seed: int) -> None:
    async def live() -> None:
        life = Life(seed)
        await life.compare()
        for _ in range(12):
            # Now and then several things happen between two decisions.
            for _ in range(life.random.choice((1, 1, 1, 2, 5))):
                life.step()
            await life.compare()

    run(live())


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_dry_run_agrees_with_counting_anew(seed: int) -> None:
    """Some pods of one node are taken away, others are added, and the node is judged again."""

    async def live() -> None:
        life = Life(seed)
        for _ in range(8):
            life.step()
        # Pods being deleted count in a dry run although they did not before, upstream too.
        life.pods = {
            uid: pod for uid, pod in life.pods.items() if not pod.metadata.deletion_timestamp
        }
        for info in life.decider.cache.pods():
            if info.is_terminating:
                life.decider.cache.remove_pod(info.uid)
        snapshot = life.decider.cache.update_snapshot()
        pipeline = life.decider.profiles["default-scheduler"].pipeline
        for pod in life.incoming():
            if any(is_empty(one.label_selector) for one in pod.spec.topology_spread_constraints):
                # So does a pod under an empty selector.
                continue
            info, state = life.decider.cache.pod_info(pod), CycleState()
            await pipeline.run_pre_filter(state, info)
            for node in snapshot.table.infos:
                changed, changed_state = node.clone(), state.clone()
                by_node = life.by_node()
                here = by_node.setdefault(node.name, [])
                for victim in [one for one in here if life.random.random() < 0.5]:
                    here.remove(victim)
                    removed = node.pods[victim.metadata.uid]
                    pipeline.dry_run.remove_pod(changed_state, info, removed, changed)
                for number in range(life.random.randint(0, 2)):
                    nominated = life.source.pod(f"nominated{number}")
                    here.append(nominated)
                    added = life.decider.cache.pod_info(nominated)
                    pipeline.dry_run.add_pod(changed_state, info, added, changed)
                world = World(list(life.nodes.values()), by_node, pod, life.profile, life.others)
                _check(
                    pipeline.dry_run.filter_node(changed_state, info, changed), world, state, node
                )

    run(live())


def _check(got: Status, world: World, state: CycleState, node: NodeInfo) -> None:
    """A plugin that had no business with the pod stays out of the dry run, upstream too."""
    asked = [plugin for plugin in world.profile.filters if plugin not in state.skip_filter]
    assert node.node is not None
    wanted = next(filter(None, (FILTERS[plugin](world, node.node) for plugin in asked)), None)
    assert (got.code.value, [*got.reasons]) == (wanted or ("Success", [])), world.pod
