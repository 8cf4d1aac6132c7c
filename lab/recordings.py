"""Decisions that a real kube-scheduler made, read back to be made again.

A line of a recording is one cluster and the decisions made on it, each alone. ``disagreements``
says what ksched does differently.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ksched.api.objects import Namespace, Node, Pod, Service
from ksched.api.storage import (
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from lab.decider import Decider, Verdict

NOTHING_TO_SCORE = {"DynamicResources": 0}
"""kube-scheduler's score of a pod without claims, which ksched leaves out."""

_LISTED: dict[str, type[Any]] = {
    "namespaces": Namespace,
    "services": Service,
    "storageclasses": StorageClass,
    "csinodes": CSINode,
}
_KINDS: dict[str, type[Any]] = {
    "PersistentVolume": PersistentVolume,
    "PersistentVolumeClaim": PersistentVolumeClaim,
}


def read_recordings(path: Path) -> list[Any]:
    """Read a file of gzipped JSON lines."""
    with gzip.open(path) as lines:
        return [json.loads(line) for line in lines]


def scoring_plugins(recordings: Sequence[Any]) -> set[str]:
    """Names under which the recorded scores were given."""
    return {
        plugin
        for recording in recordings
        for decision in recording["decisions"]
        for scores in decision["scores"].values()
        for plugin in scores
    } - {"total"}


def build_decider(cluster: Any) -> Decider:
    """A decider that knows a recorded cluster."""
    decider = Decider()
    for name, kind in _LISTED.items():
        for obj in cluster.get(name, ()):
            decider.listers.require(kind).put(msgspec.convert(obj, kind))
    decider.set_cluster(
        [msgspec.convert(node, Node) for node in cluster["nodes"]],
        [msgspec.convert(pod, Pod) for pod in cluster["pods"]],
    )
    return decider


async def find_disagreements(decider: Decider, decision: Any) -> list[str]:
    """Make one decision again and return what differs, a line each; none if all agrees.

    Objects recorded with the decision exist while it is made.
    """
    objects = [msgspec.convert(one, _KINDS[one["kind"]]) for one in decision.get("objects", ())]
    for obj in objects:
        decider.listers.require(type(obj)).put(obj)
    got = await decider.decide(msgspec.convert(decision["pod"], Pod))
    for obj in objects:
        decider.listers.require(type(obj)).remove(obj)
    found = _disagreements(decision, got)
    if not found:
        return []
    spec = json.dumps(decision["pod"]["spec"], indent=1)
    return [f"pod {decision['pod']['metadata']['name']}:", *(f"  {line}" for line in found), spec]


def _disagreements(wanted: Any, got: Verdict) -> list[str]:
    verdict = wanted["verdict"]
    message = got.message
    if "node" not in verdict:
        text = verdict["message"]
        if got.feasible:
            return [f"wanted: {text}", f"got:    feasible {sorted(got.feasible)}"]
        return [] if message == text else [f"wanted: {text}", f"got:    {message}"]
    if not wanted["scores"]:
        if got.feasible == {verdict["node"]}:
            return []
        return [f"wanted: only {verdict['node']}", f"got:    {sorted(got.feasible)} {message}"]
    return score_disagreements(wanted, got)


def score_disagreements(wanted: Any, got: Verdict) -> list[str]:
    """Compare the scores of a decision, plugin by plugin, and the node that was chosen."""
    found = []
    for node in sorted(wanted["scores"].keys() | got.feasible):
        scores = wanted["scores"].get(node)
        if scores is not None:
            scores = {plugin: score for plugin, score in scores.items() if plugin != "total"}
        mine = NOTHING_TO_SCORE | got.scores[node] if node in got.scores else None
        if scores != mine:
            found += [f"{node} wanted: {scores}", f"{node} got:    {mine}"]
    chosen = wanted["verdict"]["node"]
    if not found and chosen not in got.best:
        found = [f"wanted: {chosen}", f"got:    {sorted(got.best)}"]
    return found
