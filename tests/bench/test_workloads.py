from __future__ import annotations

import json
from collections import Counter

import pytest

from bench.workloads import WORKLOADS, node, pod, stuck_pod


@pytest.mark.parametrize("workload", WORKLOADS)
def test_pods_of_a_workload_differ_by_name(workload: str) -> None:
    names = {pod(index, workload)["metadata"]["name"] for index in range(50)}

    assert len(names) == 50


def test_mixed_has_equal_shares_of_five_workloads() -> None:
    apps = Counter(pod(index, "mixed")["metadata"]["labels"]["app"] for index in range(100))

    assert set(apps.values()) == {20}
    assert set(apps) == {"basic", "spread", "affinity", "nodeaffinity", "prefaffinity"}


def test_anti_affinity_groups_have_two_hundred_pods() -> None:
    groups = Counter(pod(i, "antiaffinity")["metadata"]["labels"]["grp"] for i in range(600))

    assert groups == {"g0": 200, "g1": 200, "g2": 200}


def test_stuck_pod_asks_for_more_than_any_node_has() -> None:
    asked = stuck_pod(0)["spec"]["containers"][0]["resources"]["requests"]["cpu"]

    assert int(asked) > int(node(0)["status"]["allocatable"]["cpu"])


def test_objects_share_nothing_that_one_could_change_for_all() -> None:
    pod(0, "antiaffinity")["metadata"]["labels"]["app"] = "changed"

    assert "changed" not in json.dumps(pod(0, "antiaffinity"))
