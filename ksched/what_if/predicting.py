"""Predicts what becomes of the pods of a cluster after some changes."""

from __future__ import annotations

from collections.abc import Iterator

from ksched.api.objects import Pod
from ksched.explain.cluster_copy import ClusterCopy
from ksched.explain.text_tables import counted
from ksched.redaction import without_credentials
from ksched.what_if.changes import Changes
from ksched.what_if.counting import count_copies
from ksched.what_if.node_use import headroom, node_states, node_uses
from ksched.what_if.prediction import Prediction
from ksched.what_if.scenario import Scenario
from ksched.what_if.settling import Settling


async def predict(
    cluster: ClusterCopy, changes: Changes, *, more_of: Pod | None = None
) -> Prediction:
    """Make changes in a cluster that was read, and place every pod that has no node then.

    Workloads that are scaled are read now; copies of the pod ``more_of`` are counted in the end.
    The copy of the cluster is used up.
    """
    before = node_states(cluster.cache)
    num_pods = len(cluster.cache.pods()) + len(cluster.pending)
    scenario = Scenario(cluster)
    await scenario.apply(changes)
    settling = Settling(scenario)
    await settling.run()
    after = node_states(cluster.cache)
    capacity = None
    if more_of is not None:
        capacity = await count_copies(cluster, scenario.new_pods, more_of)
    return Prediction(
        changes=changes.sentences(),
        notes=[*scenario.notes, *_notes(cluster, scenario)],
        num_nodes=len(before),
        num_pods=num_pods,
        fates=[subject.fate for subject in scenario.subjects],
        evictions=settling.evictions,
        departures=scenario.departures,
        staying=scenario.staying,
        nodes=node_uses(before, after),
        headroom=headroom(before, after),
        capacity=capacity,
    )


def _notes(cluster: ClusterCopy, scenario: Scenario) -> Iterator[str]:
    for extender in cluster.configuration.extenders:
        yield f"extender {without_credentials(extender.url_prefix)} is not called"
    terminating = sum(pod.is_terminating for pod in cluster.cache.pods())
    if terminating:
        yield f"{counted(terminating, 'pod')} terminating now still count on their nodes"
    held = [one for one in scenario.subjects if cluster.waiting.get(one.pod.uid) is not None]
    if held:
        yield f"{counted(len(held), 'pod')} would be held at Permit, and are shown as placed"
    if any(cluster.groups.of(one.pod.uid) is not None for one in scenario.subjects):
        yield "pods of groups are decided one by one, not as a group"
