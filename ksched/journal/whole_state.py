"""Everything that a scheduler knows at one moment, as items of a journal.

Collected at once, as references to objects that do not change; the items are made as they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ksched.api.objects import Node
from ksched.api.watched_kinds import WatchedKind, watched_kind
from ksched.cache.cache import SchedulerCache
from ksched.cache.node_info import NodeInfo
from ksched.cache.storage.volumes import Volumes
from ksched.devices.claim_store import ClaimStore
from ksched.journal.encoding import AssumedPod, ClaimsItem, Item, ObjectItem, VolumesItem
from ksched.journal.records import Nominated
from ksched.scheduling.scheduler import Scheduler


def state_of(
    scheduler: Scheduler, is_left_out: Callable[[WatchedKind[Any]], bool]
) -> Iterator[Item]:
    """Nodes, pods, and the objects that plugins look up, but for kinds that are left out."""
    cache = scheduler.cache
    objects = [
        (kind, list(lister))
        for kind, lister in scheduler.listers.required().items()
        if not is_left_out(kind)
    ]
    infos = list(_in_order(cache))
    nodes = [info.node for info in infos]
    pods = [pod for info in infos for pod in info.pods.values()]
    if len(pods) < cache.statistics().pods:
        # The rest is on nodes that are gone.
        known = {pod.uid for pod in pods}
        pods += [pod for pod in cache.pods() if pod.uid not in known]
    assumed = frozenset(cache.assumed())
    pending = list(scheduler.pending)
    node_kind = watched_kind(Node)

    def items() -> Iterator[Item]:
        for kind, found in objects:
            for obj in found:
                yield ObjectItem(kind, obj)
        for node in nodes:
            yield ObjectItem(node_kind, node)
        for pod in pending:
            yield pod
        for pod in pods:
            yield AssumedPod(pod) if pod.uid in assumed else pod

    return items()


def _in_order(cache: SchedulerCache) -> Iterator[NodeInfo]:
    """Nodes in the order of the snapshot, which a search over a part of them follows."""
    snapshot = cache.snapshot
    names = [snapshot.table.infos[row].name for row in snapshot.order.tolist()]
    for name in dict.fromkeys((*names, *cache.node_names())):
        info = cache.get_node(name)
        if info is not None:
            yield info


def promises_of(scheduler: Scheduler) -> Iterator[Item]:
    """What the API server does not show: nominations, claims and volumes that are assumed.

    To be applied after the state.
    """
    listers = scheduler.listers
    claims, volumes = listers.known_view(ClaimStore), listers.known_view(Volumes)
    items: list[Item] = [
        Nominated(node, [pod.uid for pod in pods])
        for node, pods in scheduler.nominator.by_node().items()
    ]
    if claims is not None:
        items.append(ClaimsItem(dict(claims.in_flight), dict(claims.assumed)))
    if volumes is not None:
        items.append(VolumesItem(dict(volumes.volumes.assumed), dict(volumes.claims.assumed)))
    return iter(items)
