"""Candidate nodes of preemption, and the choice of the cheapest."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from functools import cached_property

from msgspec import Struct

from ksched.framework import PodInfo

PRIORITY_OFFSET = 1 << 31
"""Makes every priority positive, so that an additional victim always costs something."""


class Candidate(Struct, frozen=True, dict=True):
    """A node, and the pods to evict from it, the most important first."""

    node_name: str
    victims: tuple[PodInfo, ...]
    num_pdb_violations: int = 0
    num_broken_groups: int = 0
    """How many pod groups lose all members, those on other nodes included."""

    @cached_property
    def cost(self) -> tuple[int, ...]:
        """Violated budgets, the highest priority, broken groups, and the sum of priorities."""
        return (
            self.num_pdb_violations,
            self.victims[0].priority,
            self.num_broken_groups,
            sum(victim.priority + PRIORITY_OFFSET for victim in self.victims),
        )

    @cached_property
    def earliest_start_time(self) -> str:
        """The earliest start among the victims of the highest priority.

        kube-scheduler: GetEarliestPodStartTime.
        """
        highest = max(victim.priority for victim in self.victims)
        return min(start_time(one) for one in self.victims if one.priority == highest)


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


def pick_one_node_for_preemption(candidates: Sequence[Candidate], rng: random.Random) -> Candidate:
    """Choose where to preempt (preemption.go: pickOneNodeForPreemption, v1.36).

    Each criterion leaves the best and passes ties on: the fewest violated disruption budgets, the
    lowest highest priority, the fewest broken groups (not in kube-scheduler), the lowest sum of
    priorities, the fewest victims, the latest start of the most important ones. Among the remaining
    ones the choice is random.

    kube-scheduler: SelectCandidate, OrderedScoreFuncs.
    """
    lowest = min(one.cost for one in candidates)
    candidates = [one for one in candidates if one.cost == lowest]
    if len(candidates) == 1:
        return candidates[0]
    fewest = min(len(one.victims) for one in candidates)
    candidates = [one for one in candidates if len(one.victims) == fewest]
    latest = max(one.earliest_start_time for one in candidates)
    return rng.choice([one for one in candidates if one.earliest_start_time == latest])
