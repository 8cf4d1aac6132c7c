"""What the reference says about a pod, from the API server's objects alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from msgspec import Raw, Struct

from ksched.api.decoding import decode_node, decode_pod, decoder
from ksched.api.objects import Namespace, Node, Pod
from ksched.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from ksched.apiserver import served_resources as resources
from ksched.framework.status import joined
from ksched.testing.harness import Cluster
from lab.reference import DEFAULT_PROFILE, Decision, OtherObjects, decide

T = TypeVar("T", bound=Struct)
_TERMINAL = ("Succeeded", "Failed")
POST_FILTER_SENTENCES = (" no new claims to deallocate,", " not found")
"""What PostFilter plugins add to the message; the reference covers filters only."""
_BY_KIND = {row.kind: row for row in resources.RESOURCES}


class World:
    """The objects of a cluster at one moment."""

    def __init__(self, cluster: Cluster) -> None:
        store = cluster.server.store

        def raw(resource: Any) -> list[Raw]:
            return [Raw(entry.raw) for entry in store.collection(resource).entries.values()]

        def all_of(kind: type[T]) -> Sequence[T]:
            decode = decoder(kind)
            return [decode(one) for one in raw(_BY_KIND[kind.__name__])]

        self.nodes: list[Node] = [decode_node(one) for one in raw(resources.NODES)]
        self.by_node: dict[str, list[Pod]] = {}
        self.nominated = 0
        for pod in map(decode_pod, raw(resources.PODS)):
            if pod.status.phase in _TERMINAL:
                continue
            self.nominated += bool(pod.status.nominated_node_name)
            assumed = cluster.scheduler.cache.get_pod(pod.metadata.uid)
            node_name = pod.spec.node_name or (assumed.node_name if assumed else "")
            if node_name:
                self.by_node.setdefault(node_name, []).append(pod)
        self.others = OtherObjects(
            namespaces=all_of(Namespace),
            volumes=all_of(PersistentVolume),
            claims=all_of(PersistentVolumeClaim),
            storage_classes=all_of(StorageClass),
            csi_nodes=all_of(CSINode),
        )

    def decide(self, pod: Pod) -> Decision:
        return decide(self.nodes, self.by_node, pod, DEFAULT_PROFILE, self.others)


def disagreement(expected: Decision, node_name: str, message: str) -> str:
    """How an outcome differs from the reference's decision; empty if it does not."""
    if expected.best:
        if node_name in expected.best:
            return ""
        got = f"placed on {node_name}" if node_name else f"not placed: {message[:500]}"
        scores = {name: dict(by_plugin) for name, by_plugin in expected.scores.items()}
        return f"{got}; the reference chose among {sorted(expected.best)}: {scores}"
    if node_name:
        return f"placed on {node_name}; the reference says: {expected.message[:500]}"
    said = message.partition(" preemption: ")[0]
    for sentence in POST_FILTER_SENTENCES:
        said = said.removesuffix(sentence)
    head, _, reasons = expected.message.removesuffix(".").partition(": ")
    if said in (expected.message, f"{head}: {joined(reasons.split(', '))}."):
        return ""
    return f"said {said[:500]!r}; the reference says {expected.message[:500]!r}"
