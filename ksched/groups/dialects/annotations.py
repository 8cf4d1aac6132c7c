"""Groups by annotations alone, for clusters without any PodGroup.

``ksched.dev/group`` names the group, ``ksched.dev/group-min`` how many pods must be placed at once.
Optional are ``ksched.dev/group-timeout`` (``60s``) and ``ksched.dev/group-topology``: label keys of
nodes from coarse to fine, separated by commas. The nodes of the group have one value of each; for a
key that ends with ``:preferred``, if possible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

from ksched.api.label_syntax import qualified_name_problems
from ksched.api.objects import Pod
from ksched.configuration.durations import parse_duration
from ksched.groups.group import (
    DEFAULT_TIMEOUT_SECONDS,
    Group,
    GroupKey,
    Mark,
    Terms,
    TopologyLevel,
)
from ksched.groups.registry import ANNOTATIONS
from ksched.groups.report import Report

NAME = "ksched.dev/group"
MINIMUM = "ksched.dev/group-min"
TIMEOUT = "ksched.dev/group-timeout"
TOPOLOGY = "ksched.dev/group-topology"

MOST_LEVELS = 8
"""Labels of a topology: the sets of nodes are formed for each number of levels."""
MOST_CHARACTERS = 4096
"""Of one annotation. What is read from it is remembered."""
TOO_LONG = Terms(problem=f"the pod's group annotations have more than {MOST_CHARACTERS} characters")

_PREFERRED = ":preferred"
_TERMS_KEPT = 4096


class Annotations:
    """Reads groups from the annotations of their pods."""

    name = ANNOTATIONS

    def __init__(self, plugin: str) -> None:
        self.plugin = plugin

    def mark_of(self, pod: Pod) -> Mark | None:
        annotations = pod.metadata.annotations
        name = annotations.get(NAME) if annotations else None
        if not name:
            return None
        terms = read_terms(
            annotations.get(MINIMUM), annotations.get(TIMEOUT), annotations.get(TOPOLOGY)
        )
        return Mark(GroupKey(ANNOTATIONS, pod.metadata.namespace, name), terms=terms)

    def terms_of(self, key: GroupKey) -> Terms | None:
        return None

    def follow(self, changed: Callable[[GroupKey], None]) -> None:
        """Do nothing: groups of this dialect have no object."""

    def report(self, group: Group, wall: float) -> Report | None:
        return None


def read_terms(minimum: str | None, timeout: str | None, topology: str | None) -> Terms:
    """Return the terms in the annotations; the same object for equal texts."""
    texts = (minimum, timeout, topology)
    return _read(*texts) if are_short(texts) else TOO_LONG


def are_short(texts: Iterable[str | None]) -> bool:
    return all(text is None or len(text) <= MOST_CHARACTERS for text in texts)


@lru_cache(_TERMS_KEPT)
def _read(minimum: str | None, timeout: str | None, topology: str | None) -> Terms:
    try:
        return Terms(
            minimum=_minimum(minimum),
            timeout_seconds=_timeout(timeout),
            topology=_levels(topology) if topology else (),
        )
    except ValueError as problem:
        return Terms(problem=str(problem))


def _minimum(text: str | None) -> int:
    if text is None:
        raise ValueError(f"annotation {MINIMUM}: missing, wanted how many pods start together")
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and 1 <= int(text) < 2**31):
        raise ValueError(f"annotation {MINIMUM}: got {text[:50]!r}, wanted a number of at least 1")
    return int(text)


def _timeout(text: str | None) -> float:
    if text is None:
        return DEFAULT_TIMEOUT_SECONDS
    try:
        seconds = parse_duration(text)
    except ValueError as problem:
        raise ValueError(f"annotation {TIMEOUT}: {problem}, wanted one like 90s") from None
    if seconds <= 0:
        raise ValueError(f"annotation {TIMEOUT}: got {text!r}, wanted more than 0s")
    return seconds


def _levels(text: str) -> tuple[TopologyLevel, ...]:
    keys = text.split(",")
    if len(keys) > MOST_LEVELS:
        wanted = f"{MOST_LEVELS} at most"
        raise ValueError(f"annotation {TOPOLOGY}: got {len(keys)} keys, wanted {wanted}")
    return tuple(map(_level, keys))


def _level(text: str) -> TopologyLevel:
    key = text.strip()
    is_required = not key.endswith(_PREFERRED)
    key = key.removesuffix(_PREFERRED)
    if qualified_name_problems(key):
        raise ValueError(f"annotation {TOPOLOGY}: got {text[:50]!r}, wanted a label key of nodes")
    return TopologyLevel(key, is_required)
