"""plugins/noderesources/fit.go: fitsRequest."""

from __future__ import annotations

import pytest

from ksched.configuration.plugin_args import NodeResourcesFitArgs
from ksched.framework import SUCCESS, Status, unresolvable, unschedulable
from ksched.framework.plugins.node_resources.fit import NodeResourcesFit
from ksched.testing.builders import NodeBuilder, PodBuilder, make_node, make_pod
from ksched.testing.plugin_runner import run_filter

GPU = "example.com/gpu"
NODE = make_node("n").capacity(cpu="4", memory="8Gi", pods="3").capacity({GPU: 2})
HALF_USED = [make_pod("half").req(cpu="2", memory="4Gi").req({GPU: 1}).node("n").obj()]


@pytest.mark.parametrize(
    ("pod", "status"),
    [
        pytest.param(make_pod(), SUCCESS, id="asks for nothing"),
        pytest.param(make_pod().req(cpu="2", memory="4Gi"), SUCCESS, id="fits exactly"),
        pytest.param(
            make_pod().req(cpu="2001m"), unschedulable("Insufficient cpu"), id="one milli too much"
        ),
        pytest.param(
            make_pod().req(memory=4 * 2**30 + 1),
            unschedulable("Insufficient memory"),
            id="one byte too much",
        ),
        pytest.param(
            make_pod().req(cpu="3", memory="5Gi"),
            unschedulable("Insufficient cpu", "Insufficient memory"),
            id="every shortage is named",
        ),
        pytest.param(
            make_pod().req(cpu="4001m"),
            unresolvable("Insufficient cpu"),
            id="more than the node has at all",
        ),
        pytest.param(
            make_pod().req(cpu="3", memory="9Gi"),
            unresolvable("Insufficient cpu", "Insufficient memory"),
            id="one hopeless shortage is enough",
        ),
        pytest.param(
            make_pod().req(ephemeral_storage="1"),
            unresolvable("Insufficient ephemeral-storage"),
            id="a node without ephemeral storage",
        ),
        pytest.param(
            make_pod().req({GPU: 2}), unschedulable(f"Insufficient {GPU}"), id="extended resource"
        ),
        pytest.param(
            make_pod().req({"example.com/tpu": 1}),
            unresolvable("Insufficient example.com/tpu"),
            id="extended resource nobody has",
        ),
        pytest.param(make_pod().req({"example.com/tpu": 0}), SUCCESS, id="none of it"),
        pytest.param(
            make_pod().req({"hugepages-2Mi": "2Mi"}),
            unresolvable("Insufficient hugepages-2Mi"),
            id="huge pages",
        ),
        pytest.param(make_pod().req({"tpu": 1}), SUCCESS, id="a name nodes keep no account of"),
        pytest.param(
            make_pod().init(cpu="3"), unschedulable("Insufficient cpu"), id="init container"
        ),
        pytest.param(
            make_pod().req(cpu="1500m").init(cpu="600m", sidecar=True),
            unschedulable("Insufficient cpu"),
            id="sidecar on top",
        ),
        pytest.param(
            make_pod().req(cpu="2").overhead(cpu="1m"),
            unschedulable("Insufficient cpu"),
            id="overhead on top",
        ),
        pytest.param(
            make_pod().req(cpu="3").pod_level_req(cpu="2"), SUCCESS, id="pod-level requests instead"
        ),
    ],
)
def test_requests_must_fit_into_what_is_free(pod: PodBuilder, status: Status) -> None:
    assert run_filter(NodeResourcesFit(), pod.obj(), [NODE.obj()], HALF_USED) == {"n": status}


@pytest.mark.parametrize(
    ("node", "running", "status"),
    [
        pytest.param(NODE, 2, SUCCESS, id="one place left"),
        pytest.param(NODE, 3, unschedulable("Too many pods"), id="full"),
        pytest.param(
            NODE.capacity(pods="0"), 0, unschedulable("Too many pods"), id="no places at all"
        ),
        pytest.param(
            NODE.merge({"status": {"allocatable": {"pods": None}}}),
            0,
            unschedulable("Too many pods"),
            id="places unknown",
        ),
    ],
)
def test_places_for_pods_are_limited_and_never_hopeless(
    node: NodeBuilder, running: int, status: Status
) -> None:
    existing = [make_pod(f"p{number}").node("n").obj() for number in range(running)]

    answer = run_filter(NodeResourcesFit(), make_pod("new").obj(), [node.obj()], existing)

    assert answer == {"n": status}


def test_too_many_pods_comes_first_and_does_not_hide_hopelessness() -> None:
    pod = make_pod().req(memory="99Gi", cpu="5").req({GPU: 3, "a.example.com/x": 1})

    status = run_filter(NodeResourcesFit(), pod.obj(), [NODE.capacity(pods="0").obj()])["n"]

    assert status == unresolvable(
        "Too many pods",
        "Insufficient cpu",
        "Insufficient memory",
        "Insufficient a.example.com/x",
        f"Insufficient {GPU}",
    )


def test_each_node_has_its_own_combination_of_reasons() -> None:
    nodes = {
        "roomy": make_node("roomy"),
        "slow": make_node("slow").capacity(cpu="1"),
        "small": make_node("small").capacity(memory="1Gi"),
        "tiny": make_node("tiny").capacity(cpu="1", memory="1Gi"),
        "slow too": make_node("slow too").capacity(cpu="1"),
        "busy": make_node("busy"),
    }
    busy = make_pod("other").req(cpu="3").node("busy").obj()
    pod = make_pod().req(cpu="2", memory="2Gi").obj()

    answer = run_filter(NodeResourcesFit(), pod, [node.obj() for node in nodes.values()], [busy])

    assert answer == {
        "roomy": SUCCESS,
        "slow": unresolvable("Insufficient cpu"),
        "small": unresolvable("Insufficient memory"),
        "tiny": unresolvable("Insufficient cpu", "Insufficient memory"),
        "slow too": unresolvable("Insufficient cpu"),
        "busy": unschedulable("Insufficient cpu"),
    }


def test_an_overcommitted_node_takes_pods_that_do_not_ask_for_what_it_lacks() -> None:
    over = [make_pod("over").req(cpu="6").node("n").obj()]

    answer = run_filter(NodeResourcesFit(), make_pod().req(memory="1Gi").obj(), [NODE.obj()], over)

    assert answer == {"n": SUCCESS}


def test_the_number_of_resources_is_not_limited_by_the_width_of_an_integer() -> None:
    many = [f"example.com/r{number:02}" for number in range(70)]
    node = NODE.capacity(dict.fromkeys(many[:-1], 1)).obj()
    pod = make_pod().req(dict.fromkeys(many, 1)).obj()

    assert run_filter(NodeResourcesFit(), pod, [node]) == {
        "n": unresolvable("Insufficient example.com/r69")
    }


def test_what_no_node_offers_is_missing_on_all_of_them_in_the_order_of_names() -> None:
    many = [f"example.com/r{number:02}" for number in range(70)]
    rich = make_node("rich").capacity(dict.fromkeys(many, 2)).obj()
    poor = make_node("poor").capacity(dict.fromkeys(many, 1)).obj()
    pod = make_pod().req({"a.example.com/x": 1, "z.example.com/x": 1, **dict.fromkeys(many, 2)})

    answer = run_filter(NodeResourcesFit(), pod.obj(), [rich, poor])

    first, last = "Insufficient a.example.com/x", "Insufficient z.example.com/x"
    assert answer["rich"] == unresolvable(first, last)
    assert answer["poor"] == unresolvable(first, *(f"Insufficient {one}" for one in many), last)


@pytest.mark.parametrize(
    ("args", "resource", "passes"),
    [
        pytest.param({"ignoredResources": [GPU]}, GPU, True, id="by name"),
        pytest.param({"ignoredResources": [GPU]}, "example.com/tpu", False, id="another name"),
        pytest.param({"ignoredResourceGroups": ["example.com"]}, GPU, True, id="by group"),
        pytest.param(
            {"ignoredResourceGroups": ["example"]}, GPU, False, id="a group is the whole prefix"
        ),
        pytest.param({"ignoredResources": ["cpu"]}, "cpu", False, id="only extended resources"),
        pytest.param(
            {"ignoredResources": ["hugepages-2Mi"]}, "hugepages-2Mi", False, id="not huge pages"
        ),
    ],
)
def test_ignored_resources_are_not_checked(
    args: dict[str, list[str]], resource: str, passes: bool
) -> None:
    plugin = NodeResourcesFit(NodeResourcesFitArgs.model_validate(args))
    pod = make_pod().req({resource: "99Gi"}).obj()

    assert run_filter(plugin, pod, [NODE.obj()])["n"].is_success is passes
