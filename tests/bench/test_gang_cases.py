from __future__ import annotations

from collections import Counter

from bench.gang_cases import CASES, FRAGMENTS, GATES, RACK, gang_name


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


def test_four_of_five_cpus_are_in_use_where_the_cluster_is_full() -> None:
    case = CASES["full-100x30"]
    used = [
        int(one["spec"]["containers"][0]["resources"]["requests"]["cpu"]) for one in case.fillers()
    ]
    assert len(used) == case.nodes
    assert sum(used) == 0.8 * case.nodes * case.node_cpu
    assert min(case.node_cpu - cpu for cpu in FRAGMENTS) < int(case.cpu)
    slots = sum((case.node_cpu - cpu) // int(case.cpu) for cpu in used)
    assert slots > max(one.pods for one in CASES.values() if one.fragments)


def test_a_gang_that_must_stay_in_a_rack_fits_in_one() -> None:
    case = CASES["rack-1x1000"]
    racks = Counter(case.node(index)["metadata"]["labels"][RACK] for index in range(case.nodes))
    assert len(racks) == 100
    assert min(racks.values()) * case.node_cpu >= case.pods * int(case.cpu)
    [group] = case.objects()
    assert group["spec"]["schedulingConstraints"] == {"topology": [{"key": RACK}]}


def test_gangs_that_evict_fit_only_without_the_pods_that_run() -> None:
    for name in ("evict-10x10", "evict-1x500"):
        case = CASES[name]
        free = case.node_cpu - case.evictable_per_node * case.evictable_cpu
        assert 0 <= free < int(case.cpu)
        assert case.nodes * (case.node_cpu // int(case.cpu)) >= case.pods
        assert all(one["spec"]["priorityClassName"] == "high" for _, one in case.members())
        assert next(case.fillers())["spec"]["priorityClassName"] == "low"
        assert set(case.gates) > set(GATES)


def test_names_sort_like_numbers() -> None:
    assert gang_name(7) < gang_name(12)
