"""Effective requests of pods."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ksched.api.label_syntax import qualified_name_problems
from ksched.api.objects import Pod, Quantity
from ksched.api.pod_resources import (
    DEFAULT_MEMORY_REQUEST,
    DEFAULT_MILLI_CPU_REQUEST,
    amounts,
    is_extended_resource_name,
    is_scalar_resource_name,
    non_missing_requests,
    non_missing_requests_with_status,
    pod_requests,
    pod_requests_with_status,
    scalar_resource_names,
)
from ksched.api.quantity import parse_quantity
from ksched.errors import InvalidObject
from ksched.testing import PodBuilder, make_pod

GI = 2**30


@pytest.mark.parametrize(
    ("name", "scalar", "extended"),
    [
        ("cpu", False, False),
        ("memory", False, False),
        ("ephemeral-storage", False, False),
        ("pods", False, False),
        ("widgets", False, False),
        ("nvidia.com/gpu", True, True),
        ("hugepages-2Mi", True, False),
        ("attachable-volumes-csi", True, False),
        ("kubernetes.io/batch-cpu", True, False),
        ("node.kubernetes.io/x", True, False),
        ("requests.example.com/x", False, False),
        ("example.com/not ok", False, False),
        (f"{'a' * 245}/x", False, False),
        (f"{'a' * 244}/x", True, True),
    ],
)
def test_names(name: str, scalar: bool, extended: bool) -> None:
    assert is_scalar_resource_name(name) is scalar
    assert is_extended_resource_name(name) is extended
    assert scalar_resource_names([name, "cpu"]) == ([name] if scalar else [])


NAME_PARTS = (
    *("a", "b.c", "example.com", "/", "kubernetes.io/", "requests.", "hugepages-", "-", "_", "."),
    *("\u00e9", "\n", "A", "9", "x" * 60, "y" * 200, "z" * 244, "w" * 40),
)


@given(st.lists(st.sampled_from(NAME_PARTS), max_size=6).map("".join))
def test_extended_resource_names_are_qualified_names_of_a_quota(name: str) -> None:
    is_native = "/" not in name or "kubernetes.io/" in name
    is_quota = name.startswith("requests.")
    is_qualified = not qualified_name_problems(f"requests.{name}")
    assert is_extended_resource_name(name) is (not is_native and not is_quota and is_qualified)


@pytest.mark.parametrize(
    ("pod", "requests"),
    [
        pytest.param(make_pod(), {}, id="asks for nothing"),
        pytest.param(
            make_pod().req(cpu="1", memory="1Gi"), {"cpu": 1000, "memory": GI}, id="one container"
        ),
        pytest.param(make_pod().req(cpu="0"), {"cpu": 0}, id="explicit zero stays"),
        pytest.param(
            make_pod().req(cpu="1").container(cpu="500m", memory="1k"),
            {"cpu": 1500, "memory": 1000},
            id="containers add up",
        ),
        pytest.param(
            make_pod().req(cpu="0.5m").container(cpu="0.5m"), {"cpu": 1}, id="rounded up once"
        ),
        pytest.param(make_pod().req(memory="1m"), {"memory": 1}, id="at least one byte"),
        pytest.param(
            make_pod().req({"nvidia.com/gpu": 2, "widgets": "3"}),
            {"nvidia.com/gpu": 2, "widgets": 3},
            id="all names are kept",
        ),
        pytest.param(
            make_pod().req(cpu="1").init(cpu="3").init(cpu="2", memory="1"),
            {"cpu": 3000, "memory": 1},
            id="the largest init container counts",
        ),
        pytest.param(
            make_pod().req(cpu="5").init(cpu="3"), {"cpu": 5000}, id="init containers only raise"
        ),
        pytest.param(
            make_pod().req(cpu="1").init(cpu="2", sidecar=True), {"cpu": 3000}, id="sidecars stay"
        ),
        pytest.param(
            make_pod().req(cpu="1").init(cpu="2", sidecar=True).init(cpu="4"),
            {"cpu": 6000},
            id="an init container runs beside earlier sidecars",
        ),
        pytest.param(
            make_pod().req(cpu="1").init(cpu="4").init(cpu="2", sidecar=True),
            {"cpu": 4000},
            id="but not beside later ones",
        ),
        pytest.param(
            make_pod().req(cpu="1").overhead(cpu="250m", memory="1Mi"),
            {"cpu": 1250, "memory": 2**20},
            id="overhead is added for every name",
        ),
        pytest.param(
            make_pod().req(cpu="1", memory="1Gi").pod_level_req(cpu="3"),
            {"cpu": 3000, "memory": GI},
            id="the pod's own request overrides",
        ),
        pytest.param(
            make_pod().req(cpu="4").pod_level_req(cpu="3"), {"cpu": 3000}, id="also downwards"
        ),
        pytest.param(
            make_pod().req(cpu="1").pod_level_req(cpu="3").overhead(cpu="1"),
            {"cpu": 4000},
            id="overhead comes on top",
        ),
        pytest.param(
            make_pod()
            .req(ephemeral_storage="1")
            .pod_level_req({"ephemeral-storage": "9", "hugepages-2Mi": "4Mi"}),
            {"ephemeral-storage": 1, "hugepages-2Mi": 2**22},
            id="only cpu, memory and huge pages can be asked for by the pod",
        ),
    ],
)
def test_requests(pod: PodBuilder, requests: dict[str, int]) -> None:
    assert pod_requests(pod.obj().spec) == requests
    assert pod_requests_with_status(pod.obj()) == requests


def resized(
    pod: PodBuilder, container: str = "c0", init: bool = False, **status: Any
) -> PodBuilder:
    field = "initContainerStatuses" if init else "containerStatuses"
    return pod.merge({"status": {field: [{"name": container, **status}]}})


ONE = make_pod().req(cpu="1", memory="1Gi")
INFEASIBLE = ("PodResizePending", "True", "Infeasible")


@pytest.mark.parametrize(
    ("pod", "requests"),
    [
        pytest.param(
            resized(ONE, resources={"requests": {"cpu": "2"}}),
            {"cpu": 2000, "memory": GI},
            id="shrinking: what is in use counts",
        ),
        pytest.param(
            resized(ONE, resources={}, allocatedResources={"cpu": "3"}),
            {"cpu": 3000, "memory": GI},
            id="what is allocated counts",
        ),
        pytest.param(
            resized(ONE, resources={"requests": {"cpu": "500m"}}, allocatedResources={"cpu": "1m"}),
            {"cpu": 1000, "memory": GI},
            id="growing: what is wanted counts",
        ),
        pytest.param(
            resized(ONE, allocatedResources={"cpu": "3"}),
            {"cpu": 1000, "memory": GI},
            id="a status without resources says nothing",
        ),
        pytest.param(
            resized(ONE, container="other", resources={"requests": {"cpu": "9"}}),
            {"cpu": 1000, "memory": GI},
            id="a status of another container",
        ),
        pytest.param(
            resized(ONE, resources={"requests": {"cpu": "500m"}}).condition(*INFEASIBLE),
            {"cpu": 500},
            id="infeasible growth does not count",
        ),
        pytest.param(
            resized(ONE, resources={"requests": {"cpu": "500m"}}).condition(
                "PodResizePending", "True", "Deferred"
            ),
            {"cpu": 1000, "memory": GI},
            id="deferred growth counts",
        ),
        pytest.param(
            ONE.condition(*INFEASIBLE), {"cpu": 1000, "memory": GI}, id="infeasible without status"
        ),
        pytest.param(
            resized(
                make_pod().init(cpu="1", sidecar=True),
                "init0",
                init=True,
                resources={"requests": {"cpu": "2"}},
            ),
            {"cpu": 2000},
            id="sidecars can be resized",
        ),
        pytest.param(
            resized(
                make_pod().init(cpu="1"), "init0", init=True, resources={"requests": {"cpu": "2"}}
            ),
            {"cpu": 1000},
            id="init containers cannot",
        ),
    ],
)
def test_requests_during_a_resize(pod: PodBuilder, requests: dict[str, int]) -> None:
    assert pod_requests_with_status(pod.obj()) == requests


POD_LEVEL = make_pod().req(cpu="1").pod_level_req(cpu="2")


@pytest.mark.parametrize(
    ("status", "condition", "cpu"),
    [
        pytest.param({"resources": {"requests": {"cpu": "3"}}}, None, 3000, id="in use"),
        pytest.param(
            {"resources": {}, "allocatedResources": {"cpu": "4"}}, None, 4000, id="allocated"
        ),
        pytest.param({"resources": {"requests": {"cpu": "1"}}}, None, 2000, id="wanted"),
        pytest.param({"allocatedResources": {"cpu": "4"}}, None, 2000, id="no resources reported"),
        pytest.param(
            {"resources": {"requests": {"cpu": "1500m"}}}, INFEASIBLE, 1500, id="infeasible"
        ),
    ],
)
def test_pod_level_requests_during_a_resize(
    status: dict[str, Any], condition: tuple[str, str, str] | None, cpu: int
) -> None:
    pod = POD_LEVEL.merge({"status": status})
    if condition:
        pod = pod.condition(*condition)
    assert pod_requests_with_status(pod.obj()) == {"cpu": cpu}


def test_pod_level_status_without_pod_level_requests_says_nothing() -> None:
    pod = make_pod().req(cpu="1").merge({"status": {"resources": {"requests": {"cpu": "9"}}}})
    assert pod_requests_with_status(pod.obj()) == {"cpu": 1000}


CPU, MEM = DEFAULT_MILLI_CPU_REQUEST, DEFAULT_MEMORY_REQUEST


@pytest.mark.parametrize(
    ("pod", "incoming", "assigned"),
    [
        pytest.param(make_pod(), (CPU, MEM), (CPU, MEM), id="nothing asked"),
        pytest.param(make_pod().req(cpu="0", memory="0"), (0, 0), (0, 0), id="zero asked"),
        pytest.param(make_pod().req(cpu="1"), (1000, MEM), (1000, MEM), id="memory missing"),
        pytest.param(
            make_pod().container(cpu="1").container(memory="1Gi"),
            (1000 + 2 * CPU, GI + 2 * MEM),
            (1000 + 2 * CPU, GI + 2 * MEM),
            id="each container on its own",
        ),
        pytest.param(make_pod().init(memory="1Gi"), (CPU, GI), (CPU, GI), id="init containers too"),
        pytest.param(
            make_pod().overhead(cpu="1"), (1000 + CPU, MEM), (1000 + CPU, MEM), id="overhead on top"
        ),
        pytest.param(
            make_pod().pod_level_req(cpu="2", memory="2Gi"),
            (CPU, MEM),
            (2000, 2 * GI),
            id="the scorer does not know pod-level requests",
        ),
        pytest.param(
            make_pod().pod_level_req(cpu="2"),
            (CPU, MEM),
            (2000, MEM),
            id="pod-level cpu, memory defaulted",
        ),
        pytest.param(
            make_pod().req(memory="1Gi").container(cpu="1").pod_level_req(cpu="2"),
            (1000 + CPU, GI + MEM),
            (2000, GI),
            id="no default for what the total has",
        ),
    ],
)
def test_defaults_for_missing_requests(
    pod: PodBuilder, incoming: tuple[int, int], assigned: tuple[int, int]
) -> None:
    assert non_missing_requests(pod.obj().spec) == incoming
    assert non_missing_requests_with_status(pod.obj()) == assigned


def test_assigned_pod_in_a_resize_counts_what_is_in_use() -> None:
    pod = resized(ONE, resources={"requests": {"cpu": "2"}}).obj()
    assert non_missing_requests_with_status(pod) == (2000, GI)
    assert non_missing_requests(pod.spec) == (1000, GI)


def test_amounts_of_a_node() -> None:
    assert amounts({"cpu": "3920m", "memory": "1Ki", "pods": "110", "nvidia.com/gpu": 1}) == {
        "cpu": 3920,
        "memory": 1024,
        "pods": 110,
        "nvidia.com/gpu": 1,
    }
    with pytest.raises(ValueError, match="memory: 'lots' is not a quantity"):
        amounts({"cpu": "1", "memory": "lots"})


def test_nonsense_names_container_and_resource() -> None:
    bad = make_pod("web", "shop").req(cpu="1").container(cpu="1", memory="2X").obj()
    with pytest.raises(ValueError, match="container c1: memory: '2X' is not a quantity"):
        pod_requests(bad.spec)
    for calculate in (pod_requests_with_status, non_missing_requests_with_status):
        with pytest.raises(InvalidObject, match="Pod shop/web: container c1: memory: '2X'"):
            calculate(bad)
    with pytest.raises(ValueError, match="overhead: cpu: 'x'"):
        pod_requests(make_pod().overhead(cpu="x").obj().spec)


# -- the rules again, in fractions and without cleverness -----------------------------------------


def vector(quantities: dict[str, Any], defaults: bool) -> dict[str, Fraction]:
    exact = {name: Fraction(parse_quantity(amount)) for name, amount in quantities.items()}
    if defaults:
        exact.setdefault("cpu", Fraction(CPU, 1000))
        exact.setdefault("memory", Fraction(MEM))
    return exact


def plus(a: dict[str, Fraction], b: dict[str, Fraction]) -> dict[str, Fraction]:
    return {name: a.get(name, Fraction(0)) + b.get(name, Fraction(0)) for name in {**a, **b}}


def slow_requests(pod: Pod, defaults: bool, pod_level: bool) -> dict[str, int]:
    total: dict[str, Fraction] = {}
    for container in pod.spec.containers:
        total = plus(total, vector(container.resources.requests, defaults))
    inits = [
        (container.restart_policy == "Always", vector(container.resources.requests, defaults))
        for container in pod.spec.init_containers
    ]
    for stays, requests in inits:
        total = plus(total, requests) if stays else total
    for index, (_, requests) in enumerate(inits):
        moment = requests
        for stays, earlier in inits[:index]:
            moment = plus(moment, earlier) if stays else moment
        for name, amount in moment.items():
            total[name] = max(total.get(name, amount), amount)
    if pod_level and pod.spec.resources:
        total |= vector(pod.spec.resources.requests, False)
    total = plus(total, vector(pod.spec.overhead, False))
    return {
        name: math.ceil(amount * 1000) if name == "cpu" else math.ceil(amount)
        for name, amount in total.items()
    }


quantities: st.SearchStrategy[dict[str, Quantity]] = st.dictionaries(
    st.sampled_from(["cpu", "memory", "hugepages-2Mi"]),
    st.sampled_from(["0", "1", "1500u", "250m", "1.5Ki", "2Mi", "1n", 3]),
)


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    pod = make_pod().req(draw(quantities))
    for requests in draw(st.lists(quantities, max_size=2)):
        pod = pod.container(requests)
    for requests, sidecar in draw(st.lists(st.tuples(quantities, st.booleans()), max_size=3)):
        pod = pod.init(requests, sidecar=sidecar)
    if draw(st.booleans()):
        pod = pod.pod_level_req(draw(quantities))
    return pod.overhead(draw(quantities)).obj()


@given(pods())
def test_agrees_with_the_rules(pod: Pod) -> None:
    expected = slow_requests(pod, defaults=False, pod_level=True)
    assert pod_requests(pod.spec) == expected
    assert pod_requests_with_status(pod) == expected
    with_defaults = slow_requests(pod, defaults=True, pod_level=False)
    assert non_missing_requests(pod.spec) == (with_defaults["cpu"], with_defaults["memory"])
