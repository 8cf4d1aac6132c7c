"""What kube-scheduler thought of each node, read from its log at ``-v=10``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeAlias

Scores: TypeAlias = dict[str, dict[str, int]]
"""Per node and plugin the normalised and weighted score."""

_POD = rb'(?: podGroup="[^"]*")? pod="([^"]*)" '
_SCORED = re.compile(
    rb'"Plugin scored node for pod"' + _POD + rb'plugin="([^"]*)" node="([^"]*)" score=(-?\d+)$'
)
_TOTAL = re.compile(
    rb'"Calculated node\'s final score for pod"' + _POD + rb'node="([^"]*)" score=(-?\d+)$'
)


class ScoreLog:
    """Follows the log file of a running kube-scheduler."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""
        self._scores: dict[str, Scores] = {}
        self._totals: dict[str, dict[str, int]] = {}

    def take(self, pod: str) -> tuple[Scores, dict[str, int]]:
        """Return and forget the scores and their totals of a pod (``namespace/name``).

        Both are empty when no scores were needed: fewer than two nodes were feasible. The scores
        are in the log before the pod is bound.
        """
        self._read()
        return self._scores.pop(pod, {}), self._totals.pop(pod, {})

    def _read(self) -> None:
        with self._path.open("rb") as log:
            log.seek(self._offset)
            text = self._rest + log.read()
            self._offset = log.tell()
        *lines, self._rest = text.split(b"\n")
        for line in lines:
            if found := _SCORED.search(line):
                pod, plugin, node, score = (group.decode() for group in found.groups())
                self._scores.setdefault(pod, {}).setdefault(node, {})[plugin] = int(score)
            elif found := _TOTAL.search(line):
                pod, node, score = (group.decode() for group in found.groups())
                self._totals.setdefault(pod, {})[node] = int(score)
