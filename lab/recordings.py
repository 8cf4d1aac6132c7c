"""Decisions that a real kube-scheduler made, read back to be made again.

A line of a recording is one cluster and the decisions made on it, each alone. ``disagreements``
says what ksched does differently, leaving out what plugins add that ksched has not.
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

NOT_SCORED_HERE = frozenset({"DynamicResources"})
"""Plugins of the recorded profile that do not score in ksched (docs/deviations.md)."""

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
        text = verdict["message"].replace(" no new claims to deallocate,", "")
        if text.endswith(". not found"):
            # DynamicResources' answer to a pod rejected at PreFilter: preemption was not asked.
            text, message = text.removesuffix(" not found"), message.split(" preemption: ")[0]
        if got.feasible:
            return [f"wanted: {text}", f"got:    feasible {sorted(got.feasible)}"]
        return [] if message == text else [f"wanted: {text}", f"got:    {message}"]
    if not wanted["scores"]:
        if got.feasible == {verdict["node"]}:
            return []
        return [f"wanted: only {verdict['node']}", f"got:    {sorted(got.feasible)} {message}"]
    found = []
    for node in sorted(wanted["scores"].keys() | got.feasible):
        scores = wanted["scores"].get(node)
        if scores is not None:
            scores = {k: v for k, v in scores.items() if k not in {"total", *NOT_SCORED_HERE}}
        if scores != got.scores.get(node):
            found += [f"{node} wanted: {scores}", f"{node} got:    {got.scores.get(node)}"]
    if not found and verdict["node"] not in got.best:
        found = [f"wanted: {verdict['node']}", f"got:    {sorted(got.best)}"]
    return found
