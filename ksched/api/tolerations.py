"""Taints and tolerations (``component-helpers/scheduling/corev1``, v1.36)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ksched.api.objects import Taint, Toleration

NO_SCHEDULE = "NoSchedule"
PREFER_NO_SCHEDULE = "PreferNoSchedule"
NO_EXECUTE = "NoExecute"

DO_NOT_SCHEDULE = frozenset({NO_SCHEDULE, NO_EXECUTE})
"""Effects that keep a pod off a node."""

TAINT_NODE_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
UNSCHEDULABLE_TAINT = Taint(key=TAINT_NODE_UNSCHEDULABLE, effect=NO_SCHEDULE)
"""The taint of a cordoned node, assumed whether or not it is present."""


class Tolerations:
    """The tolerations of a pod, indexed for look-up: there may be thousands of either.

    Unknown operators tolerate nothing. An empty effect or key matches all of them; the value has to
    be equal unless the operator is ``Exists``.
    """

    __slots__ = ("_covered",)

    def __init__(self, tolerations: Iterable[Toleration]) -> None:
        self._covered = frozenset(
            (
                one.key or None,
                None if one.operator == "Exists" else one.value,
                one.effect or None,
            )
            for one in tolerations
            if one.operator in ("", "Equal", "Exists")
        )
        """Key, value and effect; ``None`` stands for any."""

    def cover(self, taint: Taint) -> bool:
        covered = self._covered
        if not covered:
            return False
        return any(
            (key, value, effect) in covered
            for key in (taint.key, None)
            for value in (taint.value, None)
            for effect in (taint.effect, None)
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tolerations) and self._covered == other._covered

    def __hash__(self) -> int:
        return hash(self._covered)


def find_untolerated(
    taints: Iterable[Taint],
    tolerations: Tolerations,
    effects: Collection[str] = DO_NOT_SCHEDULE,
) -> Taint | None:
    """Return the first taint with one of the effects that is not tolerated."""
    for taint in taints:
        if taint.effect in effects and not tolerations.cover(taint):
            return taint
    return None


def count_intolerable_prefer_no_schedule(taints: Iterable[Taint], tolerations: Tolerations) -> int:
    """Count the PreferNoSchedule taints that are not tolerated."""
    return sum(
        taint.effect == PREFER_NO_SCHEDULE and not tolerations.cover(taint) for taint in taints
    )
