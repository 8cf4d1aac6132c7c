"""The order in which members of a group are placed."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from ksched.cache.pod_info import PodTemplate
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.framework.time_slices import TimeSlice
from ksched.scheduling.group_trial import Need
from ksched.scheduling.scheduling_cycle import Rejected

RANKS = (
    "jobset.sigs.k8s.io/job-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "batch.kubernetes.io/job-completion-index",
    "apps.kubernetes.io/pod-index",
)
"""Labels and annotations by which controllers number their pods, the most significant first."""
LONGEST_NUMBER = 18
"""In digits: an annotation may have thousands."""


async def in_order(
    members: Sequence[QueuedPodInfo], need: Need, turn: TimeSlice
) -> list[QueuedPodInfo]:
    """The order of placing: members of roles below their minimum first, then large before small.

    Equal ones as in kube-scheduler: by priority, then by age.
    """

    sizes: dict[PodTemplate, float] = {}

    def key(queued: QueuedPodInfo) -> tuple[object, ...]:
        template = queued.pod.template
        size = sizes.get(template)
        if size is None:
            requests = template.requests
            size = requests.get("cpu", 0) + requests.get("memory", 0) / 2**32
            sizes[template] = size
        first = queued.initial_attempt_timestamp
        return (
            need.role_of(queued.uid) not in need.by_role if need.by_role else False,
            -size,
            -queued.pod.priority,
            queued.timestamp if first is None else first,
            queued.key,
        )

    keyed = []
    for queued in members:
        keyed.append((key(queued), queued))
        if turn.is_over:
            await turn.give_way()
    keyed.sort(key=itemgetter(0))
    return [queued for _, queued in keyed]


def in_rank_order(members: Sequence[QueuedPodInfo]) -> list[QueuedPodInfo]:
    """Sort by the numbers that controllers gave: neighbours exchange the most data."""
    return sorted(members, key=_rank)


def _rank(queued: QueuedPodInfo) -> tuple[float, ...]:
    metadata = queued.pod.pod.metadata
    texts = (metadata.labels.get(key) or metadata.annotations.get(key) or "" for key in RANKS)
    return tuple(map(_number, texts))


def _number(text: str) -> float:
    is_number = text.isascii() and text.isdigit() and len(text) <= LONGEST_NUMBER
    return int(text) if is_number else float("inf")


def has_kinds(members: Sequence[QueuedPodInfo]) -> bool:
    first = members[0].pod.template if members else None
    return any(queued.pod.template is not first for queued in members)


def failed_first(
    misfits: Sequence[Rejected], order: Sequence[QueuedPodInfo]
) -> list[QueuedPodInfo]:
    """Put members whose templates did not fit first: another order may succeed."""
    failed = {one.queued.pod.template for one in misfits}
    return sorted(order, key=lambda queued: queued.pod.template not in failed)
