"""Which pods leave a drained node, by the rules of ``kubectl drain``.

It cordons the node and evicts its pods. Pods of DaemonSets stay (``--ignore-daemonsets``): their
controller would make them again on the same node. Mirror pods stay: the kubelet runs them from a
file. A pod without a controller is deleted only by force and nobody makes it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from ksched.api.label_selectors import InvalidSelector, compile_selector
from ksched.api.objects import Node, Pod, PodDisruptionBudget, Taint
from ksched.what_if.new_pods import controller_of

UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
NO_SCHEDULE: Final = "NoSchedule"
MIRROR: Final = "kubernetes.io/config.mirror"
DAEMON_SET: Final = "DaemonSet"


def cordoned(node: Node) -> Node:
    """The node marked unschedulable, with the taint that the node controller adds for it."""
    taints = list(node.spec.taints)
    if not any((one.key, one.effect) == (UNSCHEDULABLE, NO_SCHEDULE) for one in taints):
        taints.append(Taint(key=UNSCHEDULABLE, effect=NO_SCHEDULE))
    return replace(node, spec=replace(node.spec, unschedulable=True, taints=taints))


def reason_to_stay(pod: Pod) -> str:
    """Why a drain leaves a pod on its node; empty if it does not."""
    if MIRROR in pod.metadata.annotations:
        return "mirror pod"
    controller = controller_of(pod)
    if controller is not None and controller.kind == DAEMON_SET:
        return f"DaemonSet {controller.name}"
    return ""


def reason_to_be_lost(pod: Pod) -> str:
    """Why nobody makes an evicted pod again; empty if its controller does."""
    if pod.metadata.deletion_timestamp is not None:
        return "terminating already"
    if controller_of(pod) is None:
        return "no controller: kubectl drain deletes it only with --force"
    return ""


def budget_notes(budgets: Iterable[PodDisruptionBudget], evicted: Sequence[Pod]) -> Iterator[str]:
    """Disruption budgets that make the drain wait: they decide when, not whether."""
    for budget in sorted(budgets, key=lambda one: one.metadata.key):
        try:
            selector = compile_selector(budget.spec.selector)
        except InvalidSelector:
            continue
        namespace = budget.metadata.namespace
        count = sum(
            pod.metadata.namespace == namespace and selector.matches(pod.metadata.labels)
            for pod in evicted
        )
        allowed = budget.status.disruptions_allowed
        if count > allowed:
            yield (
                f"disruption budget {budget.metadata.key} allows {allowed} now, {count} of its "
                "pods are drained: the drain waits until replacements are ready"
            )
