"""Candidate nodes of preemption, and the choice of the cheapest."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from ksched.framework import PodInfo

PRIORITY_OFFSET = 1 << 31
"""Makes every priority positive, so that an additional victim always costs something."""


class Candidate(Struct, frozen=True):
    """A node, and the pods to evict from it, the most important first."""

    node_name: str
    victims: tuple[PodInfo, ...]
    num_pdb_violations: int = 0
    num_broken_groups: int = 0
    """How many pod groups lose all members, those on other nodes included."""


def start_time(pod: PodInfo) -> str:
    """Return when a pod started, comparable as text: all times are in UTC and whole seconds.

    A pod that has not started yet sorts after all others.

    kube-scheduler: GetPodStartTime.
    """
    return pod.pod.status.start_time or "not yet"


def by_importance(pods: Iterable[PodInfo], breaking: frozenset[str] = frozenset()) -> list[PodInfo]:
    """Sort by importance: highest priority first, then the longest running.

    Of equal priorities, pods whose eviction would take others of their group with them
    (``breaking``) come before all others.

    kube-scheduler: MoreImportantPod.
    """
    return sorted(pods, key=lambda pod: (-pod.priority, pod.uid not in breaking, start_time(pod)))


def earliest_start_time(victims: Sequence[PodInfo]) -> str:
    """Return the earliest start among the victims of the highest priority.

    kube-scheduler: GetEarliestPodStartTime.
    """
    highest = max(victim.priority for victim in victims)
    return min(start_time(one) for one in victims if one.priority == highest)


def pick_one_node_for_preemption(candidates: Sequence[Candidate], rng: random.Random) -> Candidate:
    """Choose where to preempt (preemption.go: pickOneNodeForPreemption, v1.36).

    Each criterion leaves the best and passes ties on: the fewest violated disruption budgets, the
    lowest highest priority, the fewest broken groups (not in kube-scheduler), the lowest sum of
    priorities, the fewest victims, the latest start of the most important ones. Among the remaining
    ones the choice is random.

    kube-scheduler: SelectCandidate, OrderedScoreFuncs.
    """
    criteria: tuple[Callable[[Candidate], int], ...] = (
        lambda one: one.num_pdb_violations,
        lambda one: one.victims[0].priority,
        lambda one: one.num_broken_groups,
        lambda one: sum(victim.priority + PRIORITY_OFFSET for victim in one.victims),
        lambda one: len(one.victims),
    )
    for criterion in criteria:
        if len(candidates) == 1:
            return candidates[0]
        lowest = min(map(criterion, candidates))
        candidates = [one for one in candidates if criterion(one) == lowest]
    starts = [earliest_start_time(one.victims) for one in candidates]
    latest = max(starts)
    return rng.choice(
        [one for one, start in zip(candidates, starts, strict=True) if start == latest]
    )
