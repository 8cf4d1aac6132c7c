from __future__ import annotations

from collections import Counter

import pytest

from bench.gang_cases import CASES, FRAGMENTS, GATES, RACK, gang_name

parts = pytest.mark.parametrize("part", [1, 5])


def test_every_pod_of_a_case_has_a_name_of_its_own_and_names_a_group_that_is_made() -> None:
    for case in CASES.values():
        groups = {one["metadata"]["name"]: one["spec"] for one in case.objects()}
        names = Counter[str]()
        sizes = Counter[str]()
        for gang, body in case.members():
            names[body["metadata"]["name"]] += 1
            sizes[gang] += 1
            assert body["spec"]["schedulingGroup"] == {"podGroupName": gang}
        assert max(names.values()) == 1
        assert len(names) == case.pods
        for gang, spec in groups.items():
            assert spec["schedulingPolicy"]["gang"]["minCount"] == sizes[gang]


@parts
def test_four_of_five_cpus_are_in_use_where_the_cluster_is_full(part: int) -> None:
    case = CASES["full-100x30"].smaller(part)
    used = [
        int(one["spec"]["containers"][0]["resources"]["requests"]["cpu"]) for one in case.fillers()
    ]
    assert len(used) == case.nodes
    assert sum(used) == 0.8 * case.nodes * case.node_cpu
    assert min(case.node_cpu - cpu for cpu in FRAGMENTS) < int(case.cpu)
    slots = sum((case.node_cpu - cpu) // int(case.cpu) for cpu in used)
    assert slots > max(one.smaller(part).pods for one in CASES.values() if one.fragments)


@parts
def test_a_gang_that_must_stay_in_a_rack_fits_in_one(part: int) -> None:
    case = CASES["rack-1x1000"].smaller(part)
    racks = Counter(case.node(index)["metadata"]["labels"][RACK] for index in range(case.nodes))
    assert len(racks) == 100
    assert min(racks.values()) * case.node_cpu >= case.pods * int(case.cpu)
    [group] = case.objects()
    assert group["spec"]["schedulingConstraints"] == {"topology": [{"key": RACK}]}


@parts
def test_gangs_that_evict_fit_only_without_the_pods_that_run(part: int) -> None:
    for name in ("evict-10x10", "evict-1x500"):
        case = CASES[name].smaller(part)
        free = case.node_cpu - case.evictable_per_node * case.evictable_cpu
        assert 0 <= free < int(case.cpu)
        assert case.nodes * (case.node_cpu // int(case.cpu)) >= case.pods
        assert all(one["spec"]["priorityClassName"] == "high" for _, one in case.members())
        assert next(case.fillers())["spec"]["priorityClassName"] == "low"
        assert set(case.gates) > set(GATES)


def test_a_smaller_case_has_fewer_gangs_or_smaller_ones() -> None:
    few, large = CASES["empty-10x300"].smaller(5), CASES["perf-1x10000"].smaller(5)
    assert (few.name, few.gangs, few.size, few.nodes) == ("empty 2x300", 2, 300, 1000)
    assert (large.name, large.gangs, large.size, large.nodes) == ("perf 1x2000", 1, 2000, 200)


def test_names_sort_like_numbers() -> None:
    assert gang_name(7) < gang_name(12)
