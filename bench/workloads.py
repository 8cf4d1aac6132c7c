"""The nodes and pods of every workload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ksched.testing.device_workloads import DEVICE_WORKLOADS

Object = dict[str, Any]

NAMESPACE = "default"
SCHEDULER_NAME = "default-scheduler"
ZONES = 10
ANTI_AFFINITY_GROUP = 200
HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"


def node(index: int) -> Object:
    """A ready node of 32 CPUs; every second has an SSD, every third some images."""
    name = f"node-{index:05d}"
    resources = {"cpu": "32", "memory": "256Gi", "pods": "110", "ephemeral-storage": "200Gi"}
    since = "2026-01-01T00:00:00Z"
    images = [
        {"names": [f"bench.example/img-{number}:v1"], "sizeBytes": 50_000_000 * (number + 1)}
        for number in range(3)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                HOSTNAME: name,
                ZONE: f"zone-{index % ZONES}",
                REGION: "r0",
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "disk": "ssd" if index % 2 else "hdd",
            },
        },
        "spec": {},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "KubeletReady",
                    "message": "ok",
                    "lastHeartbeatTime": since,
                    "lastTransitionTime": since,
                }
            ],
            "images": images if index % 3 == 0 else [],
        },
    }


def pod(index: int, workload: str) -> Object:
    """The pod number ``index`` of a workload; its name starts with ``p-``."""
    if workload == "mixed":
        return pod(index, MIXED[index % len(MIXED)])
    body = plain_pod(index, workload)
    if workload in DEVICE_WORKLOADS:
        DEVICE_WORKLOADS[workload].add_to_pod(body, index)
    elif workload != "basic":
        SHAPES[workload](body, index, {"matchLabels": {"app": workload}})
    return body


def stuck_pod(index: int) -> Object:
    """A pod that fits on no node."""
    body = plain_pod(index, "stuck")
    body["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1000"
    return body


def in_gang(body: Object, name: str, minimum: int) -> Object:
    """The same pod with the annotations of a gang."""
    marks = {"ksched.dev/group": name, "ksched.dev/group-min": str(minimum)}
    body["metadata"].setdefault("annotations", {}).update(marks)
    return body


def plain_pod(index: int, workload: str) -> Object:
    """A pod that requests little and nothing else."""
    requests = {"cpu": "100m", "memory": "500Mi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"p-{workload}-{index:06d}",
            "namespace": NAMESPACE,
            "labels": {"app": workload, "color": f"c{index % 5}"},
        },
        "spec": {
            "schedulerName": SCHEDULER_NAME,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "containers": [
                {
                    "name": "c",
                    "image": "bench.example/pause:3.10",
                    "resources": {"requests": requests},
                }
            ],
        },
    }


def _spread(when_unsatisfiable: str) -> Callable[[Object, int, Object], None]:
    def shape(body: Object, index: int, selector: Object) -> None:
        body["spec"]["topologySpreadConstraints"] = [
            {
                "maxSkew": 5,
                "topologyKey": ZONE,
                "whenUnsatisfiable": when_unsatisfiable,
                "labelSelector": selector,
            }
        ]

    return shape


def _affinity(body: Object, index: int, selector: Object) -> None:
    term = {"labelSelector": selector, "topologyKey": REGION}
    body["spec"]["affinity"] = {
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    }


def _preferred_affinity(body: Object, index: int, selector: Object) -> None:
    term = {"weight": 10, "podAffinityTerm": {"labelSelector": selector, "topologyKey": ZONE}}
    body["spec"]["affinity"] = {
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}
    }


def _anti_affinity(body: Object, index: int, selector: Object) -> None:
    group = {"grp": f"g{index // ANTI_AFFINITY_GROUP}"}
    body["metadata"]["labels"] |= group
    term = {"labelSelector": {"matchLabels": group}, "topologyKey": HOSTNAME}
    body["spec"]["affinity"] = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    }


def _node_affinity(body: Object, index: int, selector: Object) -> None:
    in_zones = {"key": ZONE, "operator": "In", "values": ["zone-1", "zone-2", "zone-3"]}
    term = {"nodeSelectorTerms": [{"matchExpressions": [in_zones]}]}
    body["spec"]["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}
    }


SHAPES: dict[str, Callable[[Object, int, Object], None]] = {
    "spread": _spread("DoNotSchedule"),
    "prefspread": _spread("ScheduleAnyway"),
    "affinity": _affinity,
    "prefaffinity": _preferred_affinity,
    "antiaffinity": _anti_affinity,
    "nodeaffinity": _node_affinity,
}
MIXED = ("basic", "spread", "affinity", "nodeaffinity", "prefaffinity")
WORKLOADS = ("basic", *SHAPES, "mixed", *DEVICE_WORKLOADS)
