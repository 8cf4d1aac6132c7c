"""The limit of every drain: how fast the API server takes bindings that cost no thought."""

from __future__ import annotations

from time import monotonic

from bench.load_generator import EVENTS, PODS, LoadGenerator, Metadata, share_out
from bench.workloads import NAMESPACE, Object, pod
from ksched.clock import LoopClock, rfc3339_micro

CONCURRENCY = 64


async def bind_limit(load: LoadGenerator, pods: int, *, with_events: bool) -> float:
    """Bind pods round robin, each followed by an Event if asked; return pods a second."""
    await load.clear_pods()
    await load.create_pods(pod(index, "basic") for index in range(pods))
    pending, nodes = await load.pods(), await load.node_names()

    async def bind(numbered: tuple[int, Metadata]) -> None:
        index, metadata = numbered
        node_name = nodes[index % len(nodes)]
        await load.post(f"{PODS}/{metadata.name}/binding", binding(metadata, node_name))
        if with_events:
            await load.post(EVENTS, _event(metadata, node_name, LoopClock().wall()))

    started = monotonic()
    await share_out(enumerate(pending), CONCURRENCY, bind)
    return len(pending) / (monotonic() - started)


def binding(metadata: Metadata, node_name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": metadata.name, "namespace": NAMESPACE, "uid": metadata.uid},
        "target": {"kind": "Node", "name": node_name},
    }


def _event(metadata: Metadata, node_name: str, wall_seconds: float) -> Object:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{metadata.name}.{metadata.uid}", "namespace": NAMESPACE},
        "eventTime": rfc3339_micro(wall_seconds),
        "type": "Normal",
        "reason": "Scheduled",
        "action": "Binding",
        "note": f"Successfully assigned {NAMESPACE}/{metadata.name} to {node_name}",
        "reportingController": "bench",
        "reportingInstance": "bench",
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": NAMESPACE,
            "name": metadata.name,
            "uid": metadata.uid,
        },
    }
