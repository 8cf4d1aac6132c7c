"""plugins/queuesort/priority_sort.go: Less."""

from __future__ import annotations

from ksched.framework import QueuedPodInfo
from ksched.framework.plugins.priority_sort import PrioritySort
from ksched.testing.builders import PodBuilder, make_pod
from ksched.testing.plugin_runner import PluginBench


def test_pods_are_ordered_by_priority_and_then_by_arrival() -> None:
    bench = PluginBench(nodes=[])

    def queued(pod: PodBuilder, timestamp: float) -> QueuedPodInfo:
        return QueuedPodInfo(bench.pod_info(pod.obj()), timestamp)

    waiting = [
        queued(make_pod("none-late"), 9.0),
        queued(make_pod("below").priority(-1), 1.0),
        queued(make_pod("none-early"), 3.0),
        queued(make_pod("zero").priority(0), 5.0),
        queued(make_pod("high").priority(10), 8.0),
    ]

    names = [one.pod.name for one in sorted(waiting, key=PrioritySort().sort_key)]

    assert names == ["high", "none-early", "zero", "none-late", "below"]
