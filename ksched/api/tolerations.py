"""Which taints a pod puts up with (``component-helpers/scheduling/corev1``, v1.36)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ksched.api.objects import Taint, Toleration

NO_SCHEDULE = "NoSchedule"
PREFER_NO_SCHEDULE = "PreferNoSchedule"
NO_EXECUTE = "NoExecute"

DO_NOT_SCHEDULE = frozenset({NO_SCHEDULE, NO_EXECUTE})
"""Effects that keep a pod off a node."""

TAINT_NODE_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
UNSCHEDULABLE_TAINT = Taint(key=TAINT_NODE_UNSCHEDULABLE, effect=NO_SCHEDULE)
"""What a cordoned node is taken to carry, whether or not the taint is there."""


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Tell whether the toleration covers the taint. Unknown operators cover nothing.

    An empty effect or key covers all of them; the value still has to be equal unless the operator
    is ``Exists``.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"


def find_untolerated(
    taints: Iterable[Taint],
    tolerations: Sequence[Toleration],
    effects: Collection[str] = DO_NOT_SCHEDULE,
) -> Taint | None:
    """Return the first taint with one of the effects that no toleration covers."""
    for taint in taints:
        if taint.effect in effects and not _is_tolerated(taint, tolerations):
            return taint
    return None


def count_intolerable_prefer_no_schedule(
    taints: Iterable[Taint], tolerations: Sequence[Toleration]
) -> int:
    """Count the PreferNoSchedule taints that no toleration covers."""
    return sum(
        taint.effect == PREFER_NO_SCHEDULE and not _is_tolerated(taint, tolerations)
        for taint in taints
    )


def _is_tolerated(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    return any(tolerates(toleration, taint) for toleration in tolerations)
