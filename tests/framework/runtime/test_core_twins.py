"""The columnar, template-cached core against the naive reference, step by step.

A random sequence of cluster events goes to the cache; after each one every kind of pending pod is
judged both ways and must get the same verdict, the same reasons and the same scores. What the core
keeps between decisions is kept across all steps, so a stale verdict has nowhere to hide.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ksched.api.objects import ContainerImage, Node, Pod
from ksched.configuration.loading import load_config
from ksched.testing import make_node, make_pod
from ksched.testing.builders import NodeBuilder
from lab.decider import Decider
from lab.reference import ReferenceProfile, decide

T = TypeVar("T")

PLUGINS = (
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "NodeResourcesBalancedAllocation",
    "ImageLocality",
    "PrioritySort",
    "DefaultBinder",
)
CONFIG = f"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {{leaderElect: false}}
profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint:
      disabled: [{{name: "*"}}]
      enabled: [{", ".join(f"{{name: {name}}}" for name in PLUGINS)}]
"""
WEIGHTS = dict.fromkeys(
    (
        "TaintToleration",
        "NodeAffinity",
        "NodeResourcesFit",
        "NodeResourcesBalancedAllocation",
        "ImageLocality",
    ),
    1,
)

PINNED = {
    "spec": {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchFields": [
                                {"key": "metadata.name", "operator": "In", "values": ["n1"]}
                            ]
                        }
                    ]
                }
            }
        }
    }
}
# Several differ from "small" in one thing only: what is kept must not be shared between them.
KINDS_OF_POD = (
    make_pod("plain"),
    make_pod("small").req(cpu="500m", memory="1Gi"),
    make_pod("small-too").req(cpu="500m", memory="1Gi").label(app="other"),
    make_pod("huge").req(cpu="64"),
    make_pod("gpu").req({"example.com/gpu": "1"}, cpu="1"),
    make_pod("ssd").req(cpu="500m", memory="1Gi").node_selector(disk="ssd"),
    make_pod("tolerant").req(cpu="500m", memory="1Gi").toleration(key="team", value="a"),
    make_pod("port").req(cpu="500m", memory="1Gi").host_port(8080),
    make_pod("image").req(cpu="500m", memory="1Gi").image("app:1"),
    make_pod("likes-zone-a")
    .req(cpu="1")
    .preferred_node_affinity(10, ("zone", "In", ["a"]))
    .required_node_affinity(("disk", "Exists")),
    make_pod("pinned").req(cpu="1").merge(PINNED),
)
NAMES = [f"n{number}" for number in range(6)]
CPUS = st.sampled_from(["1", "2", "4", "3500m"])
MEMORIES = st.sampled_from(["2Gi", "4Gi", "5000M"])


def run_now(decision: Coroutine[Any, Any, T]) -> T:
    """Drive a coroutine that has no reason to suspend."""
    try:
        decision.send(None)
    except StopIteration as done:
        answer: T = done.value
        return answer
    raise AssertionError("a columnar decision suspended")


class CoreTwins(RuleBasedStateMachine):
    """One random life of a small cluster."""

    @initialize()
    def start(self) -> None:
        self.decider = Decider(load_config(CONFIG))
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.made = 0
        self.profile = ReferenceProfile(weights=WEIGHTS)
        for name in NAMES[:3]:
            self.put(make_node(name).label(zone="a", disk="ssd").capacity(cpu="4", memory="4Gi"))

    # -- nodes ----------------------------------------------------------------------------------

    def put(self, node: NodeBuilder | Node) -> None:
        obj = node if isinstance(node, Node) else node.obj()
        # A dictionary keeps the place of a replaced entry; the cache, too, keeps a node's age.
        self.nodes[obj.metadata.name] = obj
        self.decider.cache.add_node(obj)

    @rule(name=st.sampled_from(NAMES), cpu=CPUS, memory=MEMORIES, zone=st.sampled_from("abc"))
    def add_or_resize_node(self, name: str, cpu: str, memory: str, zone: str) -> None:
        node = make_node(name).capacity(cpu=cpu, memory=memory, pods="4").label(zone=zone)
        if zone != "c":
            node = node.label(disk="ssd").capacity({"example.com/gpu": "2"})
        self.put(node)

    @precondition(lambda self: self.nodes)
    @rule(data=st.data(), disk=st.sampled_from(["ssd", "hdd", None]))
    def relabel_node(self, data: st.DataObject, disk: str | None) -> None:
        node = self.any_node(data)
        labels = {key: value for key, value in node.metadata.labels.items() if key != "disk"}
        if disk is not None:
            labels["disk"] = disk
        meta = msgspec.structs.replace(node.metadata, labels=labels)
        self.put(msgspec.structs.replace(node, metadata=meta))

    @precondition(lambda self: self.nodes)
    @rule(
        data=st.data(),
        key=st.sampled_from(["team", "spot"]),
        effect=st.sampled_from(["NoSchedule", "PreferNoSchedule", ""]),
    )
    def taint_node(self, data: st.DataObject, key: str, effect: str) -> None:
        node = self.any_node(data)
        taints = make_node("x").taint(key, "a", effect).obj().spec.taints if effect else []
        spec = msgspec.structs.replace(node.spec, taints=taints)
        self.put(msgspec.structs.replace(node, spec=spec))

    @precondition(lambda self: self.nodes)
    @rule(data=st.data())
    def cordon_or_uncordon_node(self, data: st.DataObject) -> None:
        node = self.any_node(data)
        spec = msgspec.structs.replace(node.spec, unschedulable=not node.spec.unschedulable)
        self.put(msgspec.structs.replace(node, spec=spec))

    @precondition(lambda self: self.nodes)
    @rule(data=st.data(), megabytes=st.sampled_from([0, 300]))
    def pull_or_drop_image(self, data: st.DataObject, megabytes: int) -> None:
        node = self.any_node(data)
        images = [ContainerImage(names=["app:1"], size_bytes=megabytes << 20)] if megabytes else []
        status = msgspec.structs.replace(node.status, images=images)
        self.put(msgspec.structs.replace(node, status=status))

    @precondition(lambda self: self.nodes)
    @rule(data=st.data())
    def remove_node(self, data: st.DataObject) -> None:
        node = self.any_node(data)
        del self.nodes[node.metadata.name]
        self.decider.cache.remove_node(node.metadata.name)

    def any_node(self, data: st.DataObject) -> Node:
        return self.nodes[data.draw(st.sampled_from(sorted(self.nodes)), label="node")]

    # -- pods -----------------------------------------------------------------------------------

    @rule(kind=st.sampled_from(KINDS_OF_POD), name=st.sampled_from(NAMES))
    def bind_elsewhere(self, kind: Any, name: str) -> None:
        """Somebody else's pod appears on a node, be the node known or not."""
        self.made += 1
        pod = kind.uid(f"u{self.made}").node(name).obj()
        self.pods[pod.metadata.uid] = pod
        self.decider.cache.add_pod(self.decider.cache.pod_info(pod))

    @precondition(lambda self: self.nodes)
    @rule(
        data=st.data(),
        kind=st.sampled_from(KINDS_OF_POD),
        end=st.sampled_from(["confirmed", "confirmed elsewhere", "failed", "left assumed"]),
    )
    def assume(self, data: st.DataObject, kind: Any, end: str) -> None:
        """A pod is placed; its binding succeeds, lands elsewhere, fails, or has not ended yet."""
        self.made += 1
        cache = self.decider.cache
        name = self.any_node(data).metadata.name
        pod = kind.uid(f"u{self.made}").node(name).obj()
        info = cache.pod_info(pod)
        cache.assume_pod(info)
        self.pods[pod.metadata.uid] = pod
        if end == "left assumed":
            return
        run_now(self.decider.decide(KINDS_OF_POD[1].obj()))
        if end == "failed":
            cache.forget_pod(info)
            del self.pods[pod.metadata.uid]
            return
        if end == "confirmed elsewhere":
            pod = kind.uid(f"u{self.made}").node(self.any_node(data).metadata.name).obj()
        self.pods[pod.metadata.uid] = pod
        cache.add_pod(cache.pod_info(pod))

    @precondition(lambda self: self.pods)
    @rule(data=st.data(), app=st.sampled_from(["web", "db"]))
    def relabel_or_resize_pod(self, data: st.DataObject, app: str) -> None:
        uid = self.any_pod(data)
        pod = self.pods[uid]
        meta = msgspec.structs.replace(pod.metadata, labels={"app": app})
        spec = pod.spec
        if app == "db":
            larger = make_pod("x").req(cpu="750m").obj().spec.containers
            spec = msgspec.structs.replace(spec, containers=larger)
        self.pods[uid] = msgspec.structs.replace(pod, metadata=meta, spec=spec)
        self.decider.cache.update_pod(self.decider.cache.pod_info(self.pods[uid]))

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def delete_pod(self, data: st.DataObject) -> None:
        uid = self.any_pod(data)
        del self.pods[uid]
        self.decider.cache.remove_pod(uid)

    def any_pod(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.pods)), label="pod")

    # -- the twins ------------------------------------------------------------------------------

    @invariant()
    def both_decide_the_same(self) -> None:
        if not self.nodes:
            return
        by_node: dict[str, list[Pod]] = {}
        for pod in self.pods.values():
            by_node.setdefault(pod.spec.node_name, []).append(pod)
        for kind in KINDS_OF_POD:
            pod = kind.obj()
            wanted = decide(list(self.nodes.values()), by_node, pod, self.profile)
            got = run_now(self.decider.decide(pod))
            assert got.feasible == set(wanted.scores), pod.metadata.name
            if not got.feasible:
                assert got.message == wanted.message, pod.metadata.name
            elif len(got.feasible) > 1:
                assert got.scores == wanted.scores, pod.metadata.name


CoreTwins.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestCoreTwins = CoreTwins.TestCase
