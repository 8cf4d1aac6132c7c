"""How the demo ended: every pod's node or the reason why it has none."""

from __future__ import annotations

from collections import Counter
from typing import Any

from msgspec import Struct

from ksched.demo.scoreboard import Scoreboard
from ksched.scheduling.decisions import Result
from ksched.testing.harness import Cluster


class PodOutcome(Struct, frozen=True):
    """Where a pod is, or why it is nowhere; ``node`` and ``reason`` exclude each other."""

    namespace: str
    name: str
    node: str | None
    phase: str
    reason: str | None = None


class Outcome(Struct, frozen=True):
    """The whole cluster at the end, as ``--json`` prints it."""

    seed: int
    nodes: list[str]
    pods: list[PodOutcome]
    decisions: dict[str, int]
    """Attempts by result."""
    decision_seconds: dict[str, float]
    """How long choosing a node took: p50 and p99 of the last thousand decisions."""


def outcome(cluster: Cluster, board: Scoreboard, seed: int) -> Outcome:
    pods = [_pod_outcome(cluster, one) for one in cluster.pods()]
    latency = board.latency()
    return Outcome(
        seed,
        sorted(node["metadata"]["name"] for node in cluster.nodes()),
        sorted(pods, key=lambda pod: (pod.namespace, pod.name)),
        {result.value: board.results[result] for result in Result},
        {"p50": latency.p50_seconds, "p99": latency.p99_seconds},
    )


def summary(ended: Outcome) -> str:
    """The same for people."""
    phases = Counter(pod.phase for pod in ended.pods if pod.node)
    waiting = [pod for pod in ended.pods if not pod.node]
    placed = ", ".join(f"{count} {phase}" for phase, count in phases.most_common())
    decisions = sum(ended.decisions.values())
    p50, p99 = (ended.decision_seconds[name] * 1000 for name in ("p50", "p99"))
    lines = [
        f"{len(ended.pods)} pods on {len(ended.nodes)} nodes: {placed or 'none placed'}, "
        f"{len(waiting)} waiting",
        f"{decisions} decisions: {ended.decisions['scheduled']} scheduled, "
        f"{ended.decisions['unschedulable']} unschedulable, {ended.decisions['error']} errors; "
        f"p50 {p50:.2f} ms, p99 {p99:.2f} ms",
    ]
    lines += [f"  {pod.namespace}/{pod.name}: {pod.reason}" for pod in waiting]
    return "\n".join(lines)


def _pod_outcome(cluster: Cluster, pod: dict[str, Any]) -> PodOutcome:
    metadata = pod["metadata"]
    node = pod["spec"].get("nodeName") or None
    reason = None
    if node is None:
        reason = cluster.message(f"{metadata['namespace']}/{metadata['name']}")
        reason = reason or "not looked at yet"
    return PodOutcome(metadata["namespace"], metadata["name"], node, pod["status"]["phase"], reason)
