"""The output of SIGUSR2: the queue, and differences between cache and API server."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from itertools import islice
from typing import Final, TypeVar

from msgspec import Raw

from ksched.api.decoding import decode_node, decode_pod
from ksched.api.resources import NODES, PODS, ApiResource
from ksched.cache.compare import Differences, compare
from ksched.client.rest import EVERYTHING, Selection
from ksched.daemon.logs import DAEMON
from ksched.errors import ApiError, InvalidObject
from ksched.queue.places import ABSENT
from ksched.scheduling.scheduler import NOT_TERMINAL, Scheduler

# The user requested these lines, so they appear at every verbosity.
log = logging.getLogger(DAEMON)

PODS_SHOWN: Final = 500
SETTLE_SECONDS: Final = 2.0

T = TypeVar("T")


def log_queue(scheduler: Scheduler) -> None:
    """Log every place with its first pods, then pods held elsewhere.

    kube-scheduler: CacheDumper.dumpSchedulingQueue.
    """
    counts = scheduler.queue.statistics().by_place()
    for place, pods in scheduler.queue.pending_pods().items():
        log.info("queue", extra={"place": place.value, "pods": counts[place]})
        for queued in islice(pods, PODS_SHOWN):
            log.info(
                "queued pod",
                extra={
                    "place": place.value,
                    "pod": queued.key,
                    "attempts": queued.attempts,
                    "rejected_by": ",".join(sorted(queued.rejector_plugins)),
                },
            )
    now = scheduler.clock.now()
    for waiting in islice(scheduler.waiting, PODS_SHOWN):
        for hold in waiting.holds():
            log.info(
                "pod waits on permit",
                extra={
                    "pod": waiting.pod.key,
                    "node": waiting.node_name,
                    "plugin": hold.plugin,
                    "state": hold.holding.value,
                    "since_seconds": round(now - hold.since, 3),
                    "at_most_seconds": round(hold.until - now, 3),
                },
            )
    for pod, until in islice(scheduler.pods.quarantined(), PODS_SHOWN):
        fields = {"pod": pod.key, "at_most_seconds": round(until - now, 3)}
        log.info("pod is quarantined", extra=fields)


async def compare_with_api_server(scheduler: Scheduler) -> Differences | None:
    """List the API server and log differences; ``None`` if it cannot be listed.

    A difference counts if it persists in a second comparison: the first may be an event in flight.

    kube-scheduler: CacheComparer.Compare, CacheDebugger.
    """
    try:
        differences = await _differences(scheduler)
        if differences:
            await scheduler.clock.sleep(SETTLE_SECONDS)
            differences &= await _differences(scheduler)
    except ApiError as error:
        log.warning("cache comparison failed", extra={"err": str(error)})
        return None
    sizes = scheduler.cache.statistics()
    if not differences:
        log.info(
            "cache agrees with the API server", extra={"nodes": sizes.nodes, "pods": sizes.pods}
        )
        return differences
    log.warning(
        "cache differs from the API server",
        extra={
            "missed_nodes": _some(differences.missed_nodes),
            "redundant_nodes": _some(differences.redundant_nodes),
            "missed_pods": _some(differences.missed_pods),
            "redundant_pods": _some(differences.redundant_pods),
        },
    )
    return differences


async def _differences(scheduler: Scheduler) -> Differences:
    nodes = [node async for node in _listed(scheduler, NODES, EVERYTHING, decode_node)]
    pods = [pod async for pod in _listed(scheduler, PODS, NOT_TERMINAL, decode_pod)]
    queue, quarantined = scheduler.queue, scheduler.pods.quarantine_ends
    return compare(
        scheduler.cache,
        lambda uid: queue.place_of(uid) is not ABSENT or uid in quarantined,
        nodes,
        pods,
        scheduler.profiles,
    )


async def _listed(
    scheduler: Scheduler, resource: ApiResource, selection: Selection, decode: Callable[[Raw], T]
) -> AsyncIterator[T]:
    token = ""
    while True:
        page = await scheduler.client.list_page(resource, selection, continue_token=token)
        for raw in page.items:
            try:
                yield decode(raw)
            except InvalidObject:
                continue  # logged by the watch already
        token = page.metadata.continue_token
        if not token:
            return


def _some(names: frozenset[str]) -> str:
    shown = sorted(names)[:PODS_SHOWN]
    rest = len(names) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")
