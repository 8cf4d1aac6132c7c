"""Objects at the limits of what an API server admits: as large as one request and etcd allow.

Each is a builder of one object with about ``size`` elements of one kind; the defaults stay below
the 1.5 MB that etcd takes (``MOST``). A scheduler must survive any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ksched.testing.builders import Json, NodeBuilder, PodBuilder, make_node, make_pod

MOST: Mapping[str, int] = {
    "nodeSelector keys": 80_000,
    "extended resources": 20_000,
    "node affinity terms": 25_000,
    "node affinity terms over host names": 8_000,
    "requirements of one node affinity term": 20_000,
    "values of one expression": 50_000,
    "preferred node affinity terms": 10_000,
    "pod affinity terms": 12_000,
    "requirements of one pod affinity term": 40_000,
    "pod anti-affinity terms": 12_000,
    "preferred pod affinity terms": 12_000,
    "host ports": 18_000,
    "tolerations": 40_000,
    "spread constraints": 8_000,
    "soft spread constraints": 8_000,
    "claims": 15_000,
    "disks": 12_000,
    "containers": 6_000,
    "init containers": 6_000,
    "scheduling gates": 20_000,
    "labels": 20_000,
    "owners": 8_000,
}
"""How many elements of each kind fit into an object."""

HOSTNAME = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def bulky_pod(kind: str, size: int | None = None, name: str = "bulky") -> PodBuilder:
    """A pod with very many elements of one kind, a key of ``MOST``."""
    return _BULKY[kind](make_pod(name), MOST[kind] if size is None else size)


def bulky_node(
    name: str, *, labels: int = 0, taints: int = 0, images: int = 0, resources: int = 0
) -> NodeBuilder:
    """A node with very many elements."""
    node = make_node(name)
    if labels:
        node = node.label({f"label-{number}": "x" for number in range(labels)})
    spec: Json = {}
    if taints:
        spec["taints"] = [
            {"key": f"taint-{number}", "effect": "NoSchedule"} for number in range(taints)
        ]
    status: Json = {}
    if images:
        status["images"] = [
            {"names": [f"registry.example/image-{number}:1"], "sizeBytes": 50_000_000}
            for number in range(images)
        ]
    node = node.merge({"spec": spec, "status": status})
    if resources:
        node = node.capacity({f"example.com/r{number}": "1" for number in range(resources)})
    return node


def _node_selector(pod: PodBuilder, size: int) -> PodBuilder:
    return pod.merge({"spec": {"nodeSelector": {f"k{number}": "v" for number in range(size)}}})


def _resources(pod: PodBuilder, size: int) -> PodBuilder:
    names = {f"example.com/r{number}": "1" for number in range(size)}
    # The API server wants limits, and takes them for requests too.
    container = {"name": "c0", "image": "pause", "resources": {"requests": names, "limits": names}}
    return pod.merge({"spec": {"containers": [container]}})


def _node_terms(pod: PodBuilder, terms: list[Json]) -> PodBuilder:
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    return pod.merge({"spec": {"affinity": affinity}})


def _term(key: str, operator: str, *values: str) -> Json:
    return {"matchExpressions": [_expression(key, operator, *values)]}


def _expression(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def _node_affinity(pod: PodBuilder, size: int) -> PodBuilder:
    return _node_terms(pod, [_term(f"k{number}", "Exists") for number in range(size)])


def _node_affinity_hosts(pod: PodBuilder, size: int) -> PodBuilder:
    """Terms over labels that nodes have: each has to be evaluated, few match."""
    return _node_terms(
        pod,
        [
            {
                "matchExpressions": [
                    _expression(HOSTNAME, "NotIn", f"node-{number % 5000}"),
                    _expression("zone", "In", f"nowhere-{number}", "zone-0"),
                    _expression("pool", "DoesNotExist"),
                ]
            }
            for number in range(size)
        ],
    )


def _node_requirements(pod: PodBuilder, size: int) -> PodBuilder:
    """One term whose requirements nearly all nodes meet: none settles the others."""
    found = [_expression(HOSTNAME, "NotIn", f"node-{number % 5000}") for number in range(1, size)]
    found.append(_expression("pool", "DoesNotExist"))
    return _node_terms(pod, [{"matchExpressions": found}])


def _values(pod: PodBuilder, size: int) -> PodBuilder:
    return _node_terms(pod, [_term(HOSTNAME, "In", *(f"host-{one}" for one in range(size)))])


def _preferred_node_affinity(pod: PodBuilder, size: int) -> PodBuilder:
    terms = [
        {"weight": 1 + number % 100, "preference": _term(HOSTNAME, "NotIn", f"node-{number}")}
        for number in range(size)
    ]
    return pod.merge({"spec": {"affinity": {"nodeAffinity": {PREFERRED: terms}}}})


def _pod_terms(size: int) -> list[Json]:
    return [
        {
            "topologyKey": HOSTNAME if number % 2 else "zone",
            "labelSelector": {"matchLabels": {"app": f"app-{number}"}},
            "namespaceSelector": {},
        }
        for number in range(size)
    ]


def _pod_affinity(pod: PodBuilder, size: int) -> PodBuilder:
    return pod.merge({"spec": {"affinity": {"podAffinity": {REQUIRED: _pod_terms(size)}}}})


def _pod_requirements(pod: PodBuilder, size: int) -> PodBuilder:
    labels = {f"k{number}": "v" for number in range(size)}
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": labels}}
    return pod.merge({"spec": {"affinity": {"podAffinity": {REQUIRED: [term]}}}})


def _pod_anti_affinity(pod: PodBuilder, size: int) -> PodBuilder:
    return pod.merge({"spec": {"affinity": {"podAntiAffinity": {REQUIRED: _pod_terms(size)}}}})


def _preferred_pod_affinity(pod: PodBuilder, size: int) -> PodBuilder:
    weighted = [{"weight": 1, "podAffinityTerm": term} for term in _pod_terms(size)]
    return pod.merge({"spec": {"affinity": {"podAffinity": {PREFERRED: weighted}}}})


def _host_ports(pod: PodBuilder, size: int) -> PodBuilder:
    ports = [
        {"containerPort": 1 + number, "hostPort": 1 + number, "protocol": "TCP"}
        for number in range(size)
    ]
    return pod.merge({"spec": {"containers": [{"name": "c0", "image": "pause", "ports": ports}]}})


def _tolerations(pod: PodBuilder, size: int) -> PodBuilder:
    found = [{"key": f"taint-{number}", "operator": "Exists"} for number in range(size)]
    return pod.merge({"spec": {"tolerations": found}})


def _spread(pod: PodBuilder, size: int, action: str) -> PodBuilder:
    found = [
        {
            "maxSkew": 1,
            "topologyKey": f"rack-{number}",
            "whenUnsatisfiable": action,
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
        for number in range(size)
    ]
    return pod.merge({"spec": {"topologySpreadConstraints": found}})


def _volumes(pod: PodBuilder, size: int, source: Callable[[int], Json]) -> PodBuilder:
    found = [{"name": f"v{number}", **source(number)} for number in range(size)]
    return pod.merge({"spec": {"volumes": found}})


def _claim(number: int) -> Json:
    return {"persistentVolumeClaim": {"claimName": f"claim-{number}"}}


def _disk(number: int) -> Json:
    return {"gcePersistentDisk": {"pdName": f"disk-{number}"}}


def _containers(pod: PodBuilder, size: int, field: str) -> PodBuilder:
    found = [
        {
            "name": f"{field[0]}{number}",
            "image": "registry.k8s.io/pause:3.10",
            "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}},
        }
        for number in range(size)
    ]
    return pod.merge({"spec": {field: found}})


def _gates(pod: PodBuilder, size: int) -> PodBuilder:
    found = [{"name": f"example.com/gate-{number}"} for number in range(size)]
    return pod.merge({"spec": {"schedulingGates": found}})


def _labels(pod: PodBuilder, size: int) -> PodBuilder:
    return pod.label({f"label-{number}": "x" for number in range(size)})


def _owners(pod: PodBuilder, size: int) -> PodBuilder:
    found = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": f"owner-{one}", "uid": f"uid-{one}"}
        for one in range(size)
    ]
    return pod.merge({"metadata": {"ownerReferences": found}})


_BULKY: Mapping[str, Callable[[PodBuilder, int], PodBuilder]] = {
    "nodeSelector keys": _node_selector,
    "extended resources": _resources,
    "node affinity terms": _node_affinity,
    "node affinity terms over host names": _node_affinity_hosts,
    "requirements of one node affinity term": _node_requirements,
    "values of one expression": _values,
    "preferred node affinity terms": _preferred_node_affinity,
    "pod affinity terms": _pod_affinity,
    "requirements of one pod affinity term": _pod_requirements,
    "pod anti-affinity terms": _pod_anti_affinity,
    "preferred pod affinity terms": _preferred_pod_affinity,
    "host ports": _host_ports,
    "tolerations": _tolerations,
    "spread constraints": lambda pod, size: _spread(pod, size, "DoNotSchedule"),
    "soft spread constraints": lambda pod, size: _spread(pod, size, "ScheduleAnyway"),
    "claims": lambda pod, size: _volumes(pod, size, _claim),
    "disks": lambda pod, size: _volumes(pod, size, _disk),
    "containers": lambda pod, size: _containers(pod, size, "containers"),
    "init containers": lambda pod, size: _containers(pod, size, "initContainers"),
    "scheduling gates": _gates,
    "labels": _labels,
    "owners": _owners,
}
