"""How many more of a pod fit, and what runs out: pods are placed one by one until one is rejected.

Nothing is evicted for them, and afterwards they are taken off the cluster again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from ksched.api.objects import Pod
from ksched.cache.pod_info import PodInfo
from ksched.errors import KschedError
from ksched.explain.cluster_copy import ClusterCopy
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.framework.runtime.guard import PluginFailure
from ksched.framework.runtime.profiles import Profile
from ksched.framework.status import Status
from ksched.scheduling.scheduling_cycle import Placed, Rejected, unreserve_and_forget
from ksched.what_if.new_pods import NewPods
from ksched.what_if.prediction import Capacity, Shortage

MAX_COPIES: Final = 10_000


async def count_copies(
    cluster: ClusterCopy, new_pods: NewPods, pod: Pod, at_most: int = MAX_COPIES
) -> Capacity:
    """Count how many copies of a pod fit; raises ``KschedError`` for a pod that has no copies."""
    pod, profile = _checked(cluster, pod)
    first = await _statuses(cluster, profile, pod)
    placed: list[Placed] = []
    message = ""
    try:
        while len(placed) < at_most and not message:
            name = f"{pod.metadata.name}-{len(placed) + 1}"
            copy = cluster.cache.pod_info(new_pods.named(pod, name))
            outcome = await cluster.cycle.run(QueuedPodInfo(copy, 0.0))
            if isinstance(outcome, Rejected):
                message = outcome.message
                cluster.victims.by_preemptor.clear()
            else:
                placed.append(outcome)
        last = await _statuses(cluster, profile, pod) if message else {}
    finally:
        for one in placed:
            unreserve_and_forget(cluster.cache, one)
    took = Counter(one.node_name for one in placed)
    had_room = {name for name, status in first.items() if status.is_success}
    return Capacity(
        pod=pod.metadata.key,
        fits=len(placed),
        is_complete=bool(message),
        by_node=dict(sorted(took.items())),
        runs_out=_grouped({name: one for name, one in last.items() if name in had_room}),
        never=_grouped({name: one for name, one in first.items() if name not in had_room}),
        message=message,
    )


def _checked(cluster: ClusterCopy, pod: Pod) -> tuple[Pod, Profile]:
    if pod.spec.resource_claims:
        raise KschedError(
            f"--capacity: pod {pod.metadata.key} uses resource claims; copies would need their own"
        )
    name, profiles = pod.spec.scheduler_name, cluster.profiles
    if name not in profiles:
        if len(profiles) > 1:
            known = ", ".join(profiles)
            raise KschedError(f"--capacity: schedulerName is {name}, profiles: {known}")
        (name,) = profiles
    spec = replace(pod.spec, scheduler_name=name, node_name="", scheduling_gates=[])
    return replace(pod, spec=spec), profiles[name]


async def _statuses(cluster: ClusterCopy, profile: Profile, pod: Pod) -> Mapping[str, Status]:
    """What the filters say of each node."""
    cluster.cache.update_snapshot()
    info: PodInfo = cluster.cache.pod_info(pod)
    infos = cluster.cache.snapshot.table.infos
    try:
        statuses = await cluster.cycle.judge_everywhere(profile, info)
    except PluginFailure as failed:
        return {one.name: failed.status for one in infos}
    return {one.name: statuses.get(one.name) for one in infos}


def _grouped(statuses: Mapping[str, Status]) -> list[Shortage]:
    nodes: dict[str, list[str]] = {}
    for name, status in statuses.items():
        for reason in status.reasons:
            nodes.setdefault(reason, []).append(name)
    grouped = [Shortage(reason, sorted(names)) for reason, names in nodes.items()]
    return sorted(grouped, key=lambda one: (-len(one.nodes), one.reason))
