"""The reference itself: against a real kube-scheduler, and that it stays on its own."""

from __future__ import annotations

import ast
import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

import lab.reference
from ksched.api.objects import Node, Pod
from ksched.testing.builders import make_node, make_pod
from lab.reference import ReferenceProfile, Rejection, decide

RECORDED = Path(__file__).parents[1] / "recorded" / "data" / "filter-and-score.jsonl.gz"
WEIGHTS = ReferenceProfile().weights


def _recorded() -> Iterator[tuple[list[Node], dict[str, list[Pod]], Pod, dict[str, Any]]]:
    with gzip.open(RECORDED) as lines:
        for line in lines:
            scene = json.loads(line)
            nodes = msgspec.convert(scene["cluster"]["nodes"], list[Node])
            by_node: dict[str, list[Pod]] = {}
            for pod in msgspec.convert(scene["cluster"]["pods"], list[Pod]):
                by_node.setdefault(pod.spec.node_name, []).append(pod)
            for decision in scene["decisions"]:
                yield nodes, by_node, msgspec.convert(decision["pod"], Pod), decision


def test_the_reference_decides_as_a_real_kube_scheduler_did() -> None:
    """Decisions that depend on plugins the reference does not have are counted, not compared."""
    compared: Counter[str] = Counter()
    for nodes, by_node, pod, recorded in _recorded():
        decision = decide(nodes, by_node, pod)
        scores, verdict = recorded["scores"], recorded["verdict"]
        if verdict.get("node"):
            assert verdict["node"] in decision.scores
        if scores:
            # Other plugins may have rejected more nodes, which changes what is normalised.
            assert scores.keys() <= decision.scores.keys()
            if scores.keys() == decision.scores.keys():
                compared["scores"] += 1
                assert decision.scores == {
                    node: {plugin: one[plugin] for plugin in WEIGHTS if plugin in one}
                    for node, one in scores.items()
                }
        elif not decision.scores:
            compared["messages"] += 1
            assert verdict["message"].startswith(decision.message)
        else:
            compared["other plugins"] += 1

    assert compared["scores"] > 300, compared
    assert compared["messages"] > 400, compared


def test_the_reference_shares_nothing_with_what_it_checks() -> None:
    (folder,) = lab.reference.__path__
    for path in Path(folder).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ksched."):
                assert node.module is not None
                # Selectors are compared with upstream's own in tests/cel.
                is_selector = node.module in ("ksched.cel", "ksched.devices.device_selectors")
                assert is_selector or node.module.startswith("ksched.api."), path


def test_a_decision_reads_like_the_scheduler_s_own() -> None:
    nodes = [make_node("a").obj(), make_node("b").unschedulable().obj()]
    pod = make_pod().req(cpu="100m", memory="500Mi").obj()

    decision = decide(nodes, {}, pod)

    assert decision.rejections == {
        "b": Rejection(
            "NodeUnschedulable", "UnschedulableAndUnresolvable", ("node(s) were unschedulable",)
        )
    }
    assert decision.scores["a"] == {
        "TaintToleration": 300,
        "NodeResourcesFit": 97,
        "NodeResourcesBalancedAllocation": 74,
        "ImageLocality": 0,
    }
    assert (decision.totals, decision.best) == ({"a": 471}, {"a"})


def test_reasons_are_counted_and_sorted_as_text() -> None:
    nodes = [make_node(f"n{number}").unschedulable().obj() for number in range(10)]
    small = make_node("small").capacity(cpu="1", memory="1").obj()

    decision = decide([*nodes, small], {}, make_pod().req(cpu="2", memory="1Gi").obj())

    assert decision.message == (
        "0/11 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, "
        "10 node(s) were unschedulable."
    )
