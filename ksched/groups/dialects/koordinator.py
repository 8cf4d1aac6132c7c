"""Koordinator's groups: a label and ``scheduling.sigs.k8s.io/v1alpha1`` PodGroup, or annotations.

The PodGroup is that of scheduler-plugins with more phases. The annotations
``gang.scheduling.koordinator.sh/name``, ``min-available``, ``total-number`` and ``waiting-time``
describe a group without one. Bundles of groups (``groups``), ``mode`` and ``match-policy`` have no
effect: a group is placed whole, by itself, and is satisfied once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from msgspec.structs import replace

from ksched.api.objects import Int32, Pod
from ksched.api.watched_kinds import WatchedKind
from ksched.cache.listers import Listers
from ksched.configuration.durations import parse_duration
from ksched.groups.dialects import scheduler_plugins
from ksched.groups.dialects.annotations import TOO_LONG, are_short
from ksched.groups.group import Group, GroupKey, Mark, Terms
from ksched.groups.registry import KOORDINATOR
from ksched.groups.report import Report

GROUP = "scheduling.sigs.k8s.io"
LABEL = "pod-group.scheduling.sigs.k8s.io"
NAME = "gang.scheduling.koordinator.sh/name"
MINIMUM = "gang.scheduling.koordinator.sh/min-available"
TOTAL = "gang.scheduling.koordinator.sh/total-number"
TIMEOUT = "gang.scheduling.koordinator.sh/waiting-time"

DEFAULT_TIMEOUT_SECONDS: Final = 600.0
SCHEDULED: Final = "Scheduled"
_TERMS_KEPT = 4096


class PodGroupStatus(scheduler_plugins.PodGroupStatus, frozen=True):
    scheduled: Int32 = 0


class PodGroup(scheduler_plugins.PodGroup, frozen=True):
    status: PodGroupStatus = PodGroupStatus()


KIND = WatchedKind.custom(
    PodGroup, group=GROUP, version="v1alpha1", plural="podgroups", kind="PodGroup"
)


class Koordinator:
    """Reads Koordinator's groups."""

    name = KOORDINATOR
    plugin = scheduler_plugins.PLUGIN

    def __init__(self, listers: Listers) -> None:
        self._lister = listers.require(KIND)

    def mark_of(self, pod: Pod) -> Mark | None:
        metadata = pod.metadata
        name = metadata.labels.get(LABEL)
        if name:
            return Mark(GroupKey(self.name, metadata.namespace, name))
        annotations = metadata.annotations
        name = annotations.get(NAME) if annotations else None
        if not name:
            return None
        terms = read_terms(
            annotations.get(MINIMUM), annotations.get(TOTAL), annotations.get(TIMEOUT)
        )
        return Mark(GroupKey(self.name, metadata.namespace, name), terms=terms)

    def terms_of(self, key: GroupKey) -> Terms | None:
        found = self._lister.get(key.name, key.namespace)
        if found is None:
            return None
        return scheduler_plugins.terms_of(found, DEFAULT_TIMEOUT_SECONDS)

    def follow(self, changed: Callable[[GroupKey], None]) -> None:
        self._lister.follow(lambda key: changed(GroupKey(self.name, *key.split("/", 1))))

    def report(self, group: Group, wall: float) -> Report | None:
        """The status of scheduler-plugins, with the number of members on nodes."""
        found = self._lister.get(group.key.name, group.key.namespace)
        if found is None:
            return None
        base = scheduler_plugins.report(KIND.resource, found, group, wall)
        status = dict(base.status)
        if status["phase"] == scheduler_plugins.SCHEDULING and group.is_bound:
            status["phase"] = SCHEDULED
        return replace(
            base,
            wanted=(base.wanted, status["phase"], group.placed),
            current=(base.current, found.status.phase, found.status.scheduled),
            status={**status, "scheduled": group.placed},
        )


def read_terms(minimum: str | None, total: str | None, timeout: str | None) -> Terms:
    """The terms in the annotations; equal texts give the same object."""
    texts = (minimum, total, timeout)
    return _read(*texts) if are_short(texts) else TOO_LONG


@lru_cache(_TERMS_KEPT)
def _read(minimum: str | None, total: str | None, timeout: str | None) -> Terms:
    try:
        return Terms(
            minimum=_number(MINIMUM, minimum),
            expected=0 if total is None else _number(TOTAL, total),
            timeout_seconds=DEFAULT_TIMEOUT_SECONDS if timeout is None else _seconds(timeout),
        )
    except ValueError as problem:
        return Terms(problem=str(problem))


def _number(annotation: str, text: str | None) -> int:
    is_number = text is not None and text.isascii() and text.isdigit() and len(text) <= 10
    if text is None or not (is_number and 1 <= int(text) < 2**31):
        got = "nothing" if text is None else repr(text[:50])
        raise ValueError(f"annotation {annotation}: got {got}, wanted a number of at least 1")
    return int(text)


def _seconds(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as problem:
        raise ValueError(f"annotation {TIMEOUT}: {problem}, wanted one like 600s") from None
