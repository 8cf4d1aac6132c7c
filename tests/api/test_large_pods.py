"""A large pod costs what is new in it, in small steps; covers ``ksched.steps`` too."""

from __future__ import annotations

import json
import sys
import weakref
from types import FrameType
from typing import Any

import msgspec
import pytest

from ksched.api import large_pods, pod_resources
from ksched.api.decoding import decode_pod, decode_pod_in_steps
from ksched.api.large_pods import LARGE_POD_BYTES, assigned, facts_of, unassigned
from ksched.api.objects import Pod
from ksched.api.pod_resources import (
    container_requests,
    non_missing_requests,
    non_missing_requests_with_status,
    pod_requests,
    pod_requests_with_status,
)
from ksched.api.whole_objects import WholePod, decode_whole_pod
from ksched.cache.pod_info import TemplateRegistry
from ksched.cache.resource_axis import ResourceAxis
from ksched.steps import Steps, at_once
from ksched.testing import make_pod
from lab.bulky import MOST, bulky_pod


def encoded(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def in_steps(data: bytes) -> Pod:
    return at_once(decode_pod_in_steps(decode_pod, data))


def plain(data: bytes) -> Pod:
    return msgspec.json.decode(data, type=Pod)


def test_a_large_spec_is_decoded_once_for_all_versions_of_its_pod() -> None:
    manifest = bulky_pod("tolerations", 2_000).label(app="web").to_dict()
    first = decode_pod(encoded(manifest))
    usual = plain(encoded(manifest))
    assert len(encoded(manifest)) > LARGE_POD_BYTES
    assert first.metadata == usual.metadata
    assert msgspec.to_builtins(first.spec) == msgspec.to_builtins(usual.spec)

    manifest["status"] = {"phase": "Running"}
    second = decode_pod(encoded(manifest))
    assert second.spec is first.spec
    assert second.status.phase == "Running"

    manifest["spec"]["nodeName"] = "n1"
    third = decode_pod(encoded(manifest))
    assert third.spec.node_name == "n1"
    assert not second.spec.node_name
    assert third.spec.tolerations is first.spec.tolerations


@pytest.mark.parametrize("node_name", ["", "n1"])
def test_a_large_spec_is_forgotten_with_its_last_pod(node_name: str) -> None:
    manifest = bulky_pod("tolerations", 2_000).merge({"spec": {"nodeName": node_name}}).to_dict()
    pod = in_steps(encoded(manifest))
    specs = weakref.ref(pod.spec), weakref.ref(unassigned(pod.spec))
    assert facts_of(pod.spec)
    del pod
    assert [spec() for spec in specs] == [None, None]


@pytest.mark.parametrize(
    "spec", [{"schedulerName": None}, {"priority": "7"}], ids=["a null", "a number in quotes"]
)
def test_a_large_spec_is_read_as_leniently_as_a_small_one(spec: dict[str, Any]) -> None:
    small, large = (
        {**manifest, "spec": {**manifest["spec"], **spec}}
        for manifest in (make_pod().to_dict(), bulky_pod("tolerations", 2_000).to_dict())
    )
    expected = decode_pod(encoded(small)).spec
    found = in_steps(encoded(large)).spec
    assert (found.priority, found.scheduler_name) == (expected.priority, expected.scheduler_name)


@pytest.mark.parametrize("node_name", ["", "n1"])
@pytest.mark.parametrize("kind", MOST)
def test_a_pod_that_is_decoded_in_steps_is_the_same(kind: str, node_name: str) -> None:
    builder = bulky_pod(kind, MOST[kind] // 4)
    data = encoded(builder.merge({"spec": {"nodeName": node_name}}).to_dict())
    pod, usual = in_steps(data), plain(data)
    assert (pod.metadata, pod.status) == (usual.metadata, usual.status)
    assert msgspec.to_builtins(pod.spec) == msgspec.to_builtins(usual.spec)


def crowded_pod(
    size: int, *, pod_level: bool = False, statuses: bool = False, node_name: str = "n1"
) -> bytes:
    """Containers, init containers and sidecars with various requests, of which some are absent."""

    def container(name: str, number: int, **more: object) -> dict[str, Any]:
        requests = {"cpu": f"{number}m", "memory": f"{number % 7}Mi", f"a.b/r{number % 3}": "1"}
        for absent in list(requests)[: number % 3]:
            del requests[absent]
        return {
            "name": f"{name}{number}",
            "image": "i" * 60,
            "resources": {"requests": requests},
        } | more

    sidecar = {"restartPolicy": "Always"}
    spec: dict[str, Any] = {
        "nodeName": node_name,
        "containers": [container("c", number) for number in range(size)],
        "initContainers": [
            container("i", number, **(sidecar if number % 5 == 0 else {})) for number in range(size)
        ],
        "overhead": {"cpu": "7m"},
    }
    if pod_level:
        spec["resources"] = {"requests": {"cpu": "3"}}
    status: dict[str, Any] = {}
    if statuses:
        status["containerStatuses"] = [
            {
                "name": f"c{number}",
                "resources": {"requests": {"cpu": f"{2 * number % 991}m"}},
                "allocatedResources": {"memory": f"{number % 5}Mi"},
            }
            for number in range(size)
        ]
    return encoded({**make_pod("crowded").to_dict(), "spec": spec, "status": status})


def sums(pod: Pod) -> list[Any]:
    return [
        pod_requests(pod.spec),
        container_requests(pod.spec),
        non_missing_requests(pod.spec),
        pod_requests_with_status(pod),
    ]


@pytest.mark.parametrize("statuses", [False, True])
@pytest.mark.parametrize("pod_level", [False, True])
def test_sums_are_computed_once_and_are_those_of_a_small_pod(
    monkeypatch: pytest.MonkeyPatch, pod_level: bool, statuses: bool
) -> None:
    data = crowded_pod(700, pod_level=pod_level, statuses=statuses)
    pod = in_steps(data)
    expected = sums(plain(data))
    non_zero = non_missing_requests_with_status(plain(data))

    def parsed_again(quantity: object) -> int:
        raise AssertionError(f"{quantity} is parsed again")

    monkeypatch.setattr(pod_resources, "to_nanos", parsed_again)
    assert sums(pod) == expected
    assert sums(pod) == expected
    info = TemplateRegistry(ResourceAxis()).pod_info(pod)
    assert info.demand.requests == expected[3]
    assert info.template.requests == expected[0]
    assert info.non_zero == non_zero


def test_what_is_returned_may_be_changed() -> None:
    pod = in_steps(crowded_pod(700))
    pod_requests(pod.spec)["cpu"] = 0
    pod_requests_with_status(pod)["cpu"] = 0
    assert pod_requests(pod.spec)["cpu"] > 0


def test_versions_of_a_running_pod_share_its_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = TemplateRegistry(ResourceAxis())
    first = registry.pod_info(in_steps(crowded_pod(700)))
    monkeypatch.setattr(large_pods, "_new_spec", None)
    second = registry.pod_info(in_steps(crowded_pod(700, statuses=True)))

    assert second.template is first.template
    assert second.spec.containers is first.spec.containers
    assert (first.node_name, second.node_name) == ("n1", "n1")
    assert registry.pod_info(second.pod).template is first.template


def test_a_pod_that_moves_has_the_same_spec_elsewhere() -> None:
    spec = in_steps(crowded_pod(700)).spec
    other = assigned(spec, "n2")
    assert (other.node_name, unassigned(other).node_name) == ("n2", "")
    assert unassigned(other) is unassigned(spec)
    assert facts_of(other) is facts_of(spec)

    changed = msgspec.structs.replace(spec, containers=[])
    assert pod_requests(changed) != pod_requests(spec)


def test_extenders_get_the_whole_of_a_large_pod() -> None:
    data = crowded_pod(700)
    pod = at_once(decode_pod_in_steps(decode_whole_pod, data))
    assert isinstance(pod, WholePod)
    assert json.loads(pod.whole)["spec"] == json.loads(data)["spec"]
    assert pod.spec.containers is in_steps(data).spec.containers


def longest_step(steps: Steps[Any]) -> int:
    """The most lines of Python between two pauses."""
    lines = longest = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        while True:
            lines = 0
            try:
                next(steps)
            except StopIteration:
                return max(longest, lines)
            longest = max(longest, lines)
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("statuses", [False, True])
@pytest.mark.parametrize("pod_level", [False, True])
def test_steps_do_not_grow_with_the_pod(pod_level: bool, statuses: bool) -> None:
    few, many = (
        longest_step(
            decode_pod_in_steps(
                decode_pod, crowded_pod(size, pod_level=pod_level, statuses=statuses)
            )
        )
        for size in (600, 2400)
    )
    assert many < 1.2 * few
