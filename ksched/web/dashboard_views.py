"""What only the dashboard reads: counts of the whole scheduler, and every node in a few numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

import msgspec

from ksched import __version__
from ksched.cache.node_info import NodeInfo
from ksched.cache.node_order import ZONE_KEYS
from ksched.clock import rfc3339_micro
from ksched.metrics import Metrics
from ksched.scheduling.scheduler import Scheduler
from ksched.web.views import View, place_counts

FLOW_SECONDS: Final = 5.0
"""How far back changes of place are counted."""
_FIXED_RESOURCES: Final = ("cpu", "memory")
_OTHER_RESOURCES_SHOWN: Final = 6
_NOT_SHOWN: Final = ("ephemeral-storage", "hugepages-")
_CORDONED: Final = 1
_OLD_ZONE, _ZONE = ZONE_KEYS


def overview_view(
    scheduler: Scheduler, metrics: Metrics, election: Callable[[], View] | None
) -> View:
    """Return counts, rates and times of the whole scheduler."""
    cache = scheduler.cache.statistics()
    return {
        "at": rfc3339_micro(scheduler.clock.wall()),
        "version": __version__,
        "profiles": sorted(scheduler.profiles),
        "election": None if election is None else election(),
        "nodes": cache.nodes,
        "pods": cache.pods,
        "assumedPods": cache.assumed_pods,
        "places": place_counts(scheduler),
        "flowSeconds": FLOW_SECONDS,
        "flows": [
            {"from": source.value, "to": target.value, "pods": pods}
            for (source, target), pods in scheduler.queue.flows(FLOW_SECONDS).items()
        ],
        "attempts": _attempts(metrics),
        "eventLoopLag": metrics.event_loop_lag.of().buckets(),
        "plugins": _plugins(scheduler, metrics),
    }


def _attempts(metrics: Metrics) -> dict[str, float]:
    totals: dict[str, float] = defaultdict(float)
    for (result, _profile), count in metrics.schedule_attempts.values().items():
        totals[result] += count
    return totals


def _plugins(scheduler: Scheduler, metrics: Metrics) -> list[View]:
    """Every plugin that was measured or that rejects pods now, with times by extension point."""
    rejected: dict[str, int] = defaultdict(int)
    for (plugin, _profile), pods in scheduler.queue.rejections().items():
        rejected[plugin] += pods
    points: dict[str, dict[str, tuple[int, float]]] = defaultdict(dict)
    for (plugin, point, _status), series in metrics.plugin_execution_duration.series().items():
        calls, seconds = points[plugin].get(point, (0, 0.0))
        points[plugin][point] = (calls + series.count, seconds + series.sum)
    held = scheduler.waiting.held_by
    return [
        {
            "plugin": plugin,
            "rejectedPods": rejected.get(plugin, 0),
            "heldPods": held.get(plugin, 0),
            "points": [
                {"point": point, "calls": calls, "seconds": round(seconds, 6)}
                for point, (calls, seconds) in sorted(points[plugin].items())
            ],
        }
        for plugin in sorted({*points, *rejected, *held})
    ]


def nodes_pieces(scheduler: Scheduler) -> Iterator[bytes]:
    """Yield JSON: the resources, and per node its name, zone, state, pods and use in thousandths.

    A node is one short array: there are thousands, and the page reads them every few seconds.
    """
    cache = scheduler.cache
    names = cache.node_names()
    first = cache.get_node(names[0]) if names else None
    resources = _resources(first)
    yield b'{"resources": %s, "nodes": [' % msgspec.json.encode(list(resources))
    positions = [first.axis.find(name) for name in resources] if first is not None else []
    separator = b"\n"
    for name in names:
        info = cache.get_node(name)
        if info is not None:
            yield separator + msgspec.json.encode(_row(info, positions))
            separator = b",\n"
    yield b"]}\n"


def _resources(info: NodeInfo | None) -> tuple[str, ...]:
    if info is None:
        return _FIXED_RESOURCES
    others = (
        name
        for name in info.axis.values
        if name not in _FIXED_RESOURCES and not name.startswith(_NOT_SHOWN)
    )
    return (*_FIXED_RESOURCES, *islice(others, _OTHER_RESOURCES_SHOWN))


def _row(info: NodeInfo, positions: list[int]) -> list[Any]:
    node = info.node
    assert node is not None
    state = _CORDONED if node.spec.unschedulable else 0
    used = [_thousandths(info, one) for one in positions]
    return [info.name, _zone(info), state, info.num_pods, info.allowed_pods, *used]


def _zone(info: NodeInfo) -> str:
    return info.labels.get(_ZONE) or info.labels.get(_OLD_ZONE, "")


def _thousandths(info: NodeInfo, position: int) -> int:
    """Return the use of a resource, -1 where the node does not offer it."""
    allocatable, requested = info.allocatable, info.requested
    if position >= len(allocatable) or not allocatable[position]:
        return -1
    return 1000 * requested[position] // allocatable[position] if position < len(requested) else 0


def node_view(scheduler: Scheduler, name: str, limit: int) -> View | None:
    """Return one node and the first ``limit`` of its pods; ``None`` if it is not known."""
    info = scheduler.cache.get_node(name)
    if info is None or info.node is None:
        return None
    resources = [one for one in info.axis.values if info.allocatable_of(one)]
    pods = list(islice(info.pods.values(), limit))
    return {
        "node": name,
        "zone": _zone(info),
        "unschedulable": info.node.spec.unschedulable,
        "taints": [f"{one.key}={one.value}:{one.effect}" for one in info.node.spec.taints],
        "podCount": info.num_pods,
        "allowedPods": info.allowed_pods,
        "resources": [
            {
                "resource": one,
                "requested": info.requested_of(one),
                "allocatable": info.allocatable_of(one),
            }
            for one in resources
        ],
        "pods": [
            {"pod": pod.key, "priority": pod.priority, "requests": dict(pod.demand.requests)}
            for pod in pods
        ],
    }
