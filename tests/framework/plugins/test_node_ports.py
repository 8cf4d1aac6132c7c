"""plugins/nodeports/node_ports.go and framework/types.go: HostPortInfo."""

from __future__ import annotations

import pytest

from ksched.framework import (
    SUCCESS,
    Action,
    ClusterEvent,
    QueueingHint,
    Resource,
    Status,
    unschedulable,
)
from ksched.framework.plugins.node_ports import NodePorts
from ksched.testing.builders import PodBuilder, make_node, make_pod
from ksched.testing.plugin_runner import run_filter, run_hint

TAKEN = unschedulable("node(s) didn't have free ports for the requested pod ports")
POD_DELETE = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
NODE_ADD = ClusterEvent(Resource.NODE, Action.ADD)

HTTP = make_pod().host_port(80)


def _sidecar_with_port(name: str, port: int) -> PodBuilder:
    container = {"name": "s", "restartPolicy": "Always", "ports": [{"hostPort": port}]}
    return make_pod(name).merge({"spec": {"initContainers": [container]}})


def _init_with_port(name: str, port: int) -> PodBuilder:
    container = {"name": "i", "ports": [{"hostPort": port}]}
    return make_pod(name).merge({"spec": {"initContainers": [container]}})


@pytest.mark.parametrize(
    ("pod", "running", "status"),
    [
        pytest.param(make_pod(), HTTP, SUCCESS, id="wants no port"),
        pytest.param(HTTP, make_pod(), SUCCESS, id="nobody has ports"),
        pytest.param(HTTP, HTTP, TAKEN, id="same port"),
        pytest.param(HTTP, make_pod().host_port(81), SUCCESS, id="other port"),
        pytest.param(HTTP, make_pod().host_port(80, "UDP"), SUCCESS, id="other protocol"),
        pytest.param(
            make_pod().host_port(80, host_ip="10.0.0.1"),
            make_pod().host_port(80, host_ip="10.0.0.2"),
            SUCCESS,
            id="other address",
        ),
        pytest.param(
            make_pod().host_port(80, host_ip="10.0.0.1"),
            make_pod().host_port(80, host_ip="10.0.0.1"),
            TAKEN,
            id="same address",
        ),
        pytest.param(
            make_pod().host_port(80, host_ip="10.0.0.1"), HTTP, TAKEN, id="taken on all addresses"
        ),
        pytest.param(
            HTTP, make_pod().host_port(80, host_ip="10.0.0.1"), TAKEN, id="wanted on all addresses"
        ),
        pytest.param(
            make_pod().host_port(79).host_port(80), HTTP, TAKEN, id="one of several ports"
        ),
        pytest.param(_sidecar_with_port("p", 80), HTTP, TAKEN, id="a sidecar wants it"),
        pytest.param(HTTP, _sidecar_with_port("p", 80), TAKEN, id="a sidecar has it"),
        pytest.param(HTTP, _init_with_port("p", 80), SUCCESS, id="init containers do not count"),
    ],
)
def test_a_host_port_is_given_once(pod: PodBuilder, running: PodBuilder, status: Status) -> None:
    nodes = [make_node("n").obj(), make_node("empty").obj()]
    existing = [running.uid("running").node("n").obj()]

    answer = run_filter(NodePorts(), pod.obj(), nodes, existing)

    assert answer == {"n": status, "empty": SUCCESS}


@pytest.mark.parametrize(
    ("deleted", "hint"),
    [
        pytest.param(HTTP.node("n"), QueueingHint.QUEUE, id="frees the port"),
        pytest.param(HTTP.nominated("n"), QueueingHint.QUEUE, id="was to get the port"),
        pytest.param(HTTP, QueueingHint.SKIP, id="was on no node"),
        pytest.param(make_pod().node("n"), QueueingHint.SKIP, id="had no port"),
        pytest.param(make_pod().host_port(81).node("n"), QueueingHint.SKIP, id="had another port"),
    ],
)
def test_a_deleted_pod_that_frees_the_port_wakes_the_pod(
    deleted: PodBuilder, hint: QueueingHint
) -> None:
    assert run_hint(NodePorts(), POD_DELETE, HTTP.obj(), deleted.obj(), None) is hint


def test_every_new_node_wakes_the_pod() -> None:
    answer = run_hint(NodePorts(), NODE_ADD, HTTP.obj(), None, make_node().obj())

    assert answer is QueueingHint.QUEUE
