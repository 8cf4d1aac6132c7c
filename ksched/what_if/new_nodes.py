"""Nodes like an existing one, as an autoscaler would add them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Final

from msgspec.structs import replace

from ksched.api.objects import Node
from ksched.api.storage import CSINode
from ksched.api.watched_kinds import watched_kind
from ksched.explain.cluster_copy import ClusterCopy
from ksched.what_if.draining import reason_to_stay
from ksched.what_if.new_pods import NewPods

_OF_ITS_CONDITION: Final = "node.kubernetes.io/"
"""Taints that say how this node is, not of what kind it is."""


def add_nodes_like(cluster: ClusterCopy, new_pods: NewPods, like: Node, number: int) -> None:
    """Add nodes with the pods that run on each of their kind: of DaemonSets, and static ones."""
    name = like.metadata.name
    info = cluster.cache.get_node(name)
    assert info is not None
    own = [pod.pod for pod in info.pods.values() if not pod.is_terminating]
    for node in _copies(cluster, like, number):
        new_name = node.metadata.name
        cluster.cache.add_node(node)
        _copy_volume_limits(cluster, name, new_name)
        for pod in own:
            if reason_to_stay(pod):
                new = new_pods.named(pod, f"{pod.metadata.name}-{new_name}")
                cluster.put_pod(cluster.cache.pod_info(new).on_node(new_name))


def _copies(cluster: ClusterCopy, like: Node, number: int) -> Iterator[Node]:
    name, made = like.metadata.name, 0
    for suffix in count(1):
        if made == number:
            return
        new_name = f"{name}-new-{suffix}"
        if cluster.cache.get_node(new_name) is not None:
            continue
        made += 1
        # The host name, and whatever else names the node.
        labels = {
            key: new_name if value == name else value for key, value in like.metadata.labels.items()
        }
        taints = [one for one in like.spec.taints if not one.key.startswith(_OF_ITS_CONDITION)]
        yield replace(
            like,
            metadata=replace(
                like.metadata, name=new_name, uid=f"what-if-{new_name}", labels=labels
            ),
            spec=replace(like.spec, unschedulable=False, taints=taints),
            status=replace(like.status, images=[]),
        )


def _copy_volume_limits(cluster: ClusterCopy, name: str, new_name: str) -> None:
    limits = cluster.listers.required().get(watched_kind(CSINode))
    known: CSINode | None = limits.get(name) if limits is not None else None
    if limits is not None and known is not None:
        limits.put(replace(known, metadata=replace(known.metadata, name=new_name)))
