"""Preemptions of a real kube-scheduler v1.36, made again.

Each recorded pod was decided three times by kube-scheduler on the same cluster. ksched must choose
a node and victims that kube-scheduler chose too, or give the same reasons against all nodes.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ksched.api.objects import Node, Pod, PodDisruptionBudget
from lab.decider import Decider

RECORDED = Path(__file__).parent / "data" / "preemption.jsonl.gz"


def _recordings() -> list[Any]:
    with gzip.open(RECORDED) as lines:
        return [json.loads(line) for line in lines]


RECORDINGS = _recordings()


def _pod(recorded: Any, priorities: dict[str, int]) -> Pod:
    """What the API server makes of a pod: its priority, and when it started."""
    metadata, spec = recorded["metadata"], dict(recorded["spec"])
    name = spec.pop("priorityClassName")
    spec["priority"] = priorities[name]
    spec["preemptionPolicy"] = "Never" if name.endswith("n") else "PreemptLowerPriority"
    status = {"startTime": recorded["start"]} if "start" in recorded else {}
    uid = {"uid": f"uid:{metadata['name']}"}
    return msgspec.convert({"metadata": metadata | uid, "spec": spec, "status": status}, Pod)


def _budget(recorded: Any) -> PodDisruptionBudget:
    status = {"disruptionsAllowed": recorded["allowed"]}
    return msgspec.convert({**recorded, "status": status}, PodDisruptionBudget)


def test_all_kinds_of_outcomes_were_recorded() -> None:
    outcomes = [outcome for one in RECORDINGS for outcome in one["outcomes"]]

    assert len(RECORDINGS) == 159
    assert {outcome["result"] for outcome in outcomes} == {"bound", "no"}
    assert any(recording["pdbs"] for recording in RECORDINGS)


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda one: f"seed {one['seed']}")
@pytest.mark.parametrize("seed", [0, 1])
async def test_preempts_as_kube_scheduler_did(recording: Any, seed: int) -> None:
    decider = Decider(seed=seed)
    for budget in recording["pdbs"]:
        decider.listers.require(PodDisruptionBudget).put(_budget(budget))
    priorities = recording["priorities"]
    decider.set_cluster(
        [msgspec.convert(node, Node) for node in recording["nodes"]],
        [_pod(pod, priorities) for pod in recording["pods"]],
    )

    verdict = await decider.decide(_pod(recording["pod"], priorities))

    got: dict[str, Any]
    if verdict.feasible:
        got = {"bound": verdict.best, "victims": set()}
    elif verdict.nominated:
        victims = {key.partition("/")[2] for key in verdict.victims}
        got = {"bound": {verdict.nominated}, "victims": victims}
    else:
        got = {"no": verdict.message, "victims": {*verdict.victims}}
    assert any(_agrees(outcome, got) for outcome in recording["outcomes"]), got


def _agrees(outcome: Any, got: dict[str, Any]) -> bool:
    if set(outcome["victims"]) != got["victims"]:
        return False
    if outcome["result"] == "bound":
        return outcome["node_or_message"] in got.get("bound", ())
    # These messages were recorded without what DynamicResources says.
    message = got.get("no", "").replace(" no new claims to deallocate,", "")
    return bool(outcome["node_or_message"] == message)
