"""Decisions of a real kube-scheduler v1.36, made again.

Each recorded cluster was judged by kube-scheduler's default profile, pod by pod; ksched must give
the same verdict, the same message and the same score of every plugin on every node.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ksched.api.objects import Namespace, Node, Pod, Service
from ksched.framework.plugins.in_tree import IN_TREE
from ksched.testing.decider import Decider, Verdict

RECORDED = Path(__file__).parent / "data" / "filter-and-score.jsonl.gz"

NOT_HERE = {"DynamicResources"}
"""Plugins of the recorded profile that ksched leaves out (docs/deviations.md)."""


def _recordings() -> list[Any]:
    with gzip.open(RECORDED) as lines:
        return [json.loads(line) for line in lines]


RECORDINGS = _recordings()


def _decider(cluster: Any) -> Decider:
    decider = Decider()
    for namespace in cluster["namespaces"]:
        decider.listings.want(Namespace).put(msgspec.convert(namespace, Namespace))
    for service in cluster["services"]:
        decider.listings.want(Service).put(msgspec.convert(service, Service))
    decider.set_cluster(
        [msgspec.convert(node, Node) for node in cluster["nodes"]],
        [msgspec.convert(pod, Pod) for pod in cluster["pods"]],
    )
    return decider


def _wanted_message(text: str) -> str:
    """The message without what DynamicResources and preemption add to it."""
    text = text.split(" no new claims to deallocate")[0]
    return text.removesuffix(". not found") + ("." if text.endswith(". not found") else "")


def _disagreements(wanted: Any, got: Verdict) -> list[str]:
    """What differs between a recorded decision and ours, one line each."""
    verdict = wanted["verdict"]
    message = got.message.split(" preemption: ")[0]
    if "node" not in verdict:
        text = _wanted_message(verdict["message"])
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
            scores = {k: v for k, v in scores.items() if k not in {"total", *NOT_HERE}}
        if scores != got.scores.get(node):
            found += [f"{node} wanted: {scores}", f"{node} got:    {got.scores.get(node)}"]
    if not found and verdict["node"] not in got.best:
        found = [f"wanted: {verdict['node']}", f"got:    {sorted(got.best)}"]
    return found


def test_every_recorded_plugin_is_compared() -> None:
    scored = {
        plugin
        for recording in RECORDINGS
        for decision in recording["decisions"]
        for scores in decision["scores"].values()
        for plugin in scores
    }

    assert scored - IN_TREE.keys() == {"total", *NOT_HERE}
    assert sum(len(recording["decisions"]) for recording in RECORDINGS) == 1200


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda one: f"seed {one['seed']}")
async def test_decides_as_kube_scheduler_did(recording: Any) -> None:
    decider = _decider(recording["cluster"])
    report = []
    for decision in recording["decisions"]:
        got = await decider.decide(msgspec.convert(decision["pod"], Pod))
        differences = _disagreements(decision, got)
        if differences:
            spec = json.dumps(decision["pod"]["spec"], indent=1)
            name = decision["pod"]["metadata"]["name"]
            report += [f"pod {name}:", *(f"  {line}" for line in differences), f"  {spec}"]

    assert not report, "\n" + "\n".join(report)
