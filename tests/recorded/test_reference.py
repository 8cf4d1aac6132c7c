"""The reference, by which ksched is judged elsewhere, judged by a real kube-scheduler v1.36."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from ksched.api.objects import Namespace, Node, Pod, Service
from lab.recordings import NOTHING_TO_SCORE, read_recordings
from lab.reference import DEFAULT_PROFILE, Decision, OtherObjects, decide

RECORDINGS = read_recordings(Path(__file__).parent / "data" / "filter-and-score.jsonl.gz")


def _decide(cluster: Any, pod: Any) -> Decision:
    by_node: dict[str, list[Pod]] = {}
    for running in msgspec.convert(cluster["pods"], list[Pod]):
        by_node.setdefault(running.spec.node_name, []).append(running)
    others = OtherObjects(
        namespaces=msgspec.convert(cluster["namespaces"], list[Namespace]),
        services=msgspec.convert(cluster["services"], list[Service]),
    )
    nodes = msgspec.convert(cluster["nodes"], list[Node])
    return decide(nodes, by_node, msgspec.convert(pod, Pod), DEFAULT_PROFILE, others)


# A quarter of the clusters, 300 decisions: the reference is slow, and changes rarely.
@pytest.mark.parametrize("recording", RECORDINGS[::4], ids=lambda one: f"seed {one['seed']}")
def test_the_reference_decides_as_kube_scheduler_did(recording: Any) -> None:
    left_out = {"total", *NOTHING_TO_SCORE}
    for decision in recording["decisions"]:
        got = _decide(recording["cluster"], decision["pod"])
        wanted, name = decision["verdict"], decision["pod"]["metadata"]["name"]
        if "node" not in wanted:
            message = wanted["message"].split(" no new claims")[0].removesuffix(" not found")
            assert got.message == message, name
        elif decision["scores"]:
            assert got.scores == {
                node: {
                    plugin: score for plugin, score in by_plugin.items() if plugin not in left_out
                }
                for node, by_plugin in decision["scores"].items()
            }, name
            assert wanted["node"] in got.best, name
        else:
            assert set(got.scores) == {wanted["node"]}, name
