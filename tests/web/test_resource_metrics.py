"""What pods request and are limited to, as metrics."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ksched.api.decoding import decode_pod
from ksched.api.objects import Pod
from ksched.web.resource_metrics import resource_pieces, unit_of


def pod(name: str, spec: dict[str, Any], namespace: str = "default") -> Pod:
    metadata = {"name": name, "namespace": namespace, "uid": name}
    return decode_pod(msgspec.Raw(msgspec.json.encode({"metadata": metadata, "spec": spec})))


def container(**resources: Any) -> dict[str, Any]:
    return {"name": "c", "resources": resources}


def lines(*pods: Pod) -> list[str]:
    text = b"".join(resource_pieces(pods)).decode()
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_requests_and_limits_of_a_pod() -> None:
    web = pod(
        "web",
        {
            "containers": [
                container(
                    requests={"cpu": "100m", "memory": "1Mi", "nvidia.com/gpu": "1"},
                    limits={"cpu": "1500m", "memory": "0"},
                )
            ],
            "overhead": {"cpu": "250m", "memory": "1Ki"},
            "nodeName": "n1",
            "priority": 7,
        },
    )
    labels = 'namespace="default",node="n1",pod="web",priority="7",resource="%s",scheduler="%s"'
    labels = f'{labels},unit="%s"'
    default = "default-scheduler"
    assert lines(web) == [
        f"kube_pod_resource_request{{{labels % ('cpu', default, 'cores')}}} 0.35",
        f"kube_pod_resource_request{{{labels % ('memory', default, 'bytes')}}} 1.0496e+06",
        f"kube_pod_resource_request{{{labels % ('nvidia.com/gpu', default, '')}}} 1.0",
        f"kube_pod_resource_limit{{{labels % ('cpu', default, 'cores')}}} 1.75",
    ]


def test_pending_pod_of_another_scheduler_counts_too() -> None:
    spec = {"containers": [container(requests={"cpu": "1"})], "schedulerName": 'odd"one\\'}
    (line,) = lines(pod("p", spec))
    assert 'node=""' in line
    assert 'priority=""' in line
    assert 'scheduler="odd\\"one\\\\"' in line


def test_init_containers_sidecars_and_pod_level_limits_count_as_for_requests() -> None:
    sidecar = {**container(limits={"cpu": "1"}), "restartPolicy": "Always"}
    spec: dict[str, Any] = {
        "containers": [container(limits={"cpu": "1", "memory": "1Ki"})],
        "initContainers": [sidecar, container(limits={"cpu": "5"})],
    }
    limits = [line.rpartition(" ")[2] for line in lines(pod("p", spec))]
    assert limits == ["6.0", "1024.0"]
    spec["resources"] = {"limits": {"cpu": "2"}}
    limits = [line.rpartition(" ")[2] for line in lines(pod("p", spec))]
    assert limits == ["2.0", "1024.0"]


def test_pods_that_share_parts_of_a_spec_are_counted_once_each() -> None:
    first = pod("a", {"containers": [container(requests={"cpu": "1"})]})
    second = msgspec.structs.replace(
        first, metadata=msgspec.structs.replace(first.metadata, name="b")
    )
    found = lines(first, second)
    assert ['pod="a"' in found[0], 'pod="b"' in found[1]] == [True, True]


def test_pod_with_an_unreadable_quantity_is_left_out() -> None:
    broken = pod("broken", {"containers": [container(requests={"cpu": "many"})]})
    sound = pod("sound", {"containers": [container(requests={"cpu": "1"})]})
    (line,) = lines(broken, sound)
    assert 'pod="sound"' in line


def test_families_have_a_type_without_pods() -> None:
    text = b"".join(resource_pieces([])).decode()
    assert "# TYPE kube_pod_resource_request gauge\n" in text
    assert "# TYPE kube_pod_resource_limit gauge\n" in text


@pytest.mark.parametrize(
    ("resource", "unit"),
    [
        ("cpu", "cores"),
        ("memory", "bytes"),
        ("ephemeral-storage", "bytes"),
        ("storage", "bytes"),
        ("hugepages-2Mi", "bytes"),
        ("attachable-volumes-aws-ebs", "integer"),
        ("example.com/thing", ""),
    ],
)
def test_units(resource: str, unit: str) -> None:
    assert unit_of(resource) == unit
