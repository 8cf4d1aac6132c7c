"""Comparison of the cache with the API server, on demand; a correct cache has no differences.

The caller compares twice, each time with a new list: a change between list and comparison differs
once, a lost update differs in both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from msgspec import Struct

from ksched.api.objects import Node, Pod
from ksched.cache.cache import SchedulerCache


class Differences(Struct, frozen=True):
    """Entries of one side only: ``missed`` of the API server, ``redundant`` of the cache."""

    missed_nodes: frozenset[str] = frozenset()
    redundant_nodes: frozenset[str] = frozenset()
    missed_pods: frozenset[str] = frozenset()
    redundant_pods: frozenset[str] = frozenset()

    def __and__(self, other: Differences) -> Differences:
        """Return the differences found in both comparisons."""
        return Differences(
            self.missed_nodes & other.missed_nodes,
            self.redundant_nodes & other.redundant_nodes,
            self.missed_pods & other.missed_pods,
            self.redundant_pods & other.redundant_pods,
        )

    def __bool__(self) -> bool:
        return any((self.missed_nodes, self.redundant_nodes, self.missed_pods, self.redundant_pods))


def compare(
    cache: SchedulerCache,
    is_pending: Callable[[str], bool],
    nodes: Iterable[Node],
    pods: Iterable[Pod],
    scheduler_names: Collection[str],
) -> Differences:
    """Compare with a list of all nodes and all non-terminal pods.

    ``is_pending`` is true for the UID of a pod that waits to be scheduled. A pod on another node
    than in the cache is both missed (there) and redundant (here).

    kube-scheduler: CompareNodes, ComparePods, compareStrings.
    """
    listed_nodes = {node.metadata.name for node in nodes}
    cached_nodes = set(cache.node_names())
    listed: dict[str, str] = {}
    missed: set[str] = set()
    for pod in pods:
        uid, node_name = pod.metadata.uid, pod.spec.node_name
        listed[uid] = node_name
        known = cache.get_pod(uid)
        if node_name:
            is_known = known is not None and known.node_name == node_name
        elif pod.spec.scheduler_name in scheduler_names:
            is_known = known is not None or is_pending(uid)
        else:
            continue
        if not is_known:
            missed.add(_shown(pod.metadata.key, uid, node_name))
    redundant = {
        _shown(pod.key, pod.uid, pod.node_name)
        for pod in cache.pods()
        # An unassigned pod is one whose bind is in progress.
        if listed.get(pod.uid) not in ("", pod.node_name)
    }
    return Differences(
        missed_nodes=frozenset(listed_nodes - cached_nodes),
        redundant_nodes=frozenset(cached_nodes - listed_nodes),
        missed_pods=frozenset(missed),
        redundant_pods=frozenset(redundant),
    )


def _shown(key: str, uid: str, node_name: str) -> str:
    return f"{key} ({uid}) on {node_name}" if node_name else f"{key} ({uid})"
