"""Random clusters and pods that a real API server accepts, as the JSON that is sent to it.

Unlike ``random_clusters`` nothing here may break a rule of validation, and everything gets its
meaning through the server: defaults, admission, rounding. Values come from small sets, so that
pods mean each other and boundaries are hit. Equal seeds give equal objects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final, TypeAlias

from lab.chance import Chance

Json: TypeAlias = dict[str, Any]
PodPart: TypeAlias = Callable[["RandomManifests", Json], None]
"""Adds one kind of constraint to a pod, in place."""

HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
GPU: Final = "example.com/gpu"
PAGES: Final = "hugepages-2Mi"
NAMESPACES: Final = ("parity-alpha", "parity-beta", "parity-gamma")
_MOSTLY: Final = (NAMESPACES[0],) * 4 + NAMESPACES
"""Pods mean each other only where there are many."""
FEATURES: Final = ("ExtendWebSocketsToKubelet", "RestartAllContainersOnContainerExits")
NEVER_PREEMPTING: Final = "parity-never"

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_NODE_LABELS = {
    "disk": ("ssd", "hdd", ""),
    "gen": ("1", "5", "x", "05", "10"),
    "rack": ("r1", "r2"),
}
_POD_LABELS = {"app": ("web", "db"), "tier": ("1", "2"), "rev": ("r1", "r2")}
_TEAMS = ("red", "blue")
TAINT_KEYS: Final = ("team", UNSCHEDULABLE, "example.com/special")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_TOPOLOGY_KEYS = (HOSTNAME, HOSTNAME, ZONE, ZONE, "rack", "missing")
_ANYWHERE = "0.0.0.0"
_MIB = 1024 * 1024
_IMAGES = {
    "a:1": 20 * _MIB,
    "registry.example:5000/b:latest": 300 * _MIB + 7,
    "docker.io/library/c:2": 950 * _MIB,
    "d:latest": 2000 * _MIB,
}
_IMAGE_NAMES = ("a:1", "registry.example:5000/b", "docker.io/library/c:2", "c:2", "d", "nowhere:1")
_REQUESTS = {
    "cpu": ("1m", "100m", "0.25", "1", "1500m", "333m", "100u"),
    "memory": ("1", "200Mi", "1Gi", "1.5G", "123456789", "0.5"),
    "ephemeral-storage": ("1Gi", "5G", "1"),
}
_CAPACITIES = {
    "cpu": ("250m", "1", "1500m", "3.9", "4", "16"),
    "memory": ("200Mi", "1500M", "4Gi", "7.6Gi", "16Gi"),
    "ephemeral-storage": ("1Gi", "10Gi", "100G"),
    GPU: ("1", "3"),
    PAGES: ("4Mi", "8Mi"),
}


class RandomManifests(Chance):
    """A source of objects for one cluster.

    ``parts`` are the constraints that pods may have; each pod gets a few of them. Whoever writes a
    plugin adds a part that provokes it.
    """

    def __init__(self, random: Random, parts: Sequence[PodPart] | None = None) -> None:
        super().__init__(random)
        self._parts = tuple(parts if parts is not None else POD_PARTS)
        self._ports: set[tuple[object, ...]] = set()
        self.node_names: list[str] = []
        """The nodes that affinity to names may mean."""

    # -- cluster ---------------------------------------------------------------------------------

    def cluster(self, nodes: Sequence[str]) -> list[Json]:
        """All objects that there are before the first pod."""
        never = {"metadata": {"name": NEVER_PREEMPTING}, "value": 0, "preemptionPolicy": "Never"}
        kinds = {
            ("scheduling.k8s.io/v1", "PriorityClass"): [never],
            ("v1", "Namespace"): self.namespaces(),
            ("v1", "Service"): self.services(),
            ("apps/v1", "ReplicaSet"): self.replica_sets(),
            ("v1", "Node"): [self.node(name) for name in nodes],
        }
        return [
            {**one, "apiVersion": version, "kind": kind}
            for (version, kind), objects in kinds.items()
            for one in objects
        ]

    def namespaces(self) -> list[Json]:
        return [
            {
                "metadata": {
                    "name": name,
                    "labels": {"team": self.one_of(_TEAMS)} if self.sometimes(70) else {},
                }
            }
            for name in NAMESPACES
        ]

    def services(self) -> list[Json]:
        return [
            {
                "metadata": {"name": f"s{number}", "namespace": self.one_of(_MOSTLY)},
                "spec": {"selector": self._some_pod_labels(1, 2), "ports": [{"port": 80}]},
            }
            for number in range(self.random.randint(0, 3))
        ]

    def replica_sets(self) -> list[Json]:
        made = []
        for namespace in NAMESPACES:
            if self.sometimes():
                labels = self._some_pod_labels(1, 2)
                template = {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "c", "image": "a:1"}]},
                }
                spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
                made.append({"metadata": {"name": "set", "namespace": namespace}, "spec": spec})
        return made

    def node(self, name: str) -> Json:
        labels = {key: self.usual(v) for key, v in _NODE_LABELS.items() if self.sometimes(85)}
        if self.sometimes(95):
            # Two nodes of the same host name are a mistake that happens.
            labels[HOSTNAME] = name if self.sometimes(93) else "twin"
        if self.sometimes(90):
            labels[ZONE] = self.one_of(("a", "b", "c", "") if self.sometimes(20) else ("a", "b"))
        allocatable = {"pods": self.one_of(("0", "1", "5")) if self.sometimes(12) else "110"}
        for resource, amounts in _CAPACITIES.items():
            if self.sometimes(95 if resource in ("cpu", "memory") else 60):
                # Small nodes matter, but a pod should often have a choice.
                allocatable[resource] = amounts[-1] if self.sometimes() else self.one_of(amounts)
        return {
            "metadata": {"name": name, "labels": labels},
            "spec": {"unschedulable": True, **self._taints()}
            if self.sometimes(10)
            else self._taints(),
            "status": {
                "allocatable": allocatable,
                "capacity": allocatable,
                "images": [
                    {"names": [image], "sizeBytes": n}
                    for image, n in _IMAGES.items()
                    if self.sometimes(40)
                ],
                "declaredFeatures": [name for name in FEATURES if self.sometimes(60)],
            },
        }

    def usual(self, values: Sequence[str]) -> str:
        """Mostly the first, so that selectors leave a choice."""
        return values[0] if self.sometimes(60) else self.one_of(values)

    def changed_node(self, node: Json) -> Json:
        """The same node with other labels, taints, capacity or images."""
        other = self.node(node["metadata"]["name"])
        part = self.one_of(("metadata", "spec", "status"))
        return {**node, part: other[part]}

    def _taints(self) -> Json:
        if self.sometimes(75):
            return {}
        taints: dict[tuple[str, str], Json] = {}
        for _ in range(self.random.randint(1, 2)):
            key, effect = self.one_of(TAINT_KEYS), self.one_of(_EFFECTS)
            taints[key, effect] = {"key": key, "effect": effect, "value": self.one_of(("", "x"))}
        return {"taints": list(taints.values())}

    # -- pods ------------------------------------------------------------------------------------

    def pod(self, name: str, *, at_most_parts: int = 4) -> Json:
        """A pod with some of the constraints there are."""
        pod: Json = {
            "metadata": {
                "name": name,
                "namespace": self.one_of(_MOSTLY),
                "labels": self._some_pod_labels(0 if self.sometimes(10) else 1, 3),
            },
            "spec": {"containers": [{"name": "c0", "image": self.one_of(_IMAGE_NAMES)}]},
        }
        if self.sometimes():
            pod["spec"]["priorityClassName"] = NEVER_PREEMPTING
        count = min(self.random.randint(1, at_most_parts), len(self._parts))
        for part in dict.fromkeys(self.random.sample(self._parts, count)):
            part(self, pod)
        return pod

    def running_pod(self, name: str, node_names: Sequence[str]) -> Json:
        """A pod on one of the nodes, whether it fits there or not."""
        pod = self.pod(name, at_most_parts=3)
        node_name = pod["spec"]["nodeName"] = self.one_of(node_names)
        for port in pod["spec"]["containers"][0].get("ports", ()):
            address, protocol = port.get("hostIP", _ANYWHERE), port.get("protocol", "TCP")
            taken = (node_name, address, protocol, port["hostPort"])
            if taken in self._ports:
                # When one of two such pods goes, kube-scheduler forgets the port of the other.
                del pod["spec"]["containers"][0]["ports"]
            self._ports.add(taken)
        return pod

    def _some_pod_labels(self, at_least: int, at_most: int) -> dict[str, str]:
        keys = self.random.sample(tuple(_POD_LABELS), self.random.randint(at_least, at_most))
        return {key: self.one_of(_POD_LABELS[key]) for key in sorted(keys)}

    def pod_selector(self, pod: Json, *, unless: Sequence[str] = ()) -> Json:
        """Mostly of pods like this one, often of some others, now and then of all."""
        known = {key: values for key, values in _POD_LABELS.items() if key not in unless}
        if self.sometimes(6):
            return {}
        own = {key: value for key, value in pod["metadata"]["labels"].items() if key in known}
        if own and self.sometimes(60):
            key = self.one_of(tuple(own))
            return {"matchLabels": {key: own[key]}}
        key = self.one_of(tuple(known))
        if self.sometimes(60):
            return {"matchLabels": {key: self.one_of(known[key])}}
        return {"matchExpressions": [self.expression(known)]}

    def revision_key(self, pod: Json) -> list[str]:
        """The key of a label that the pod mostly has, and other pods with other values."""
        if self.sometimes(80):
            pod["metadata"]["labels"].setdefault("rev", self.one_of(_POD_LABELS["rev"]))
        return ["rev"]

    def expression(self, known: Mapping[str, tuple[str, ...]]) -> Json:
        key = self.one_of(tuple(known))
        operator = self.one_of(("In", "NotIn", "Exists", "DoesNotExist"))
        if operator in ("In", "NotIn"):
            count = self.random.randint(1, len(known[key]))
            values = sorted(self.random.sample(known[key], count))
            return {"key": key, "operator": operator, "values": values}
        return {"key": key, "operator": operator}

    def requests(self, *, with_devices: bool) -> Json:
        """Requests, and for what cannot be overcommitted the limits that must equal them."""
        requests = {
            resource: self.one_of(amounts)
            for resource, amounts in _REQUESTS.items()
            if self.sometimes(60)
        }
        limits: Json = {}
        if with_devices and self.sometimes(40):
            limits[GPU] = self.one_of(("1", "2"))
        if with_devices and self.sometimes(20) and requests.keys() & {"cpu", "memory"}:
            limits[PAGES] = self.one_of(("2Mi", "4Mi"))
        return {"requests": {**requests, **limits}, "limits": limits}


# -- parts of a pod -----------------------------------------------------------------------------


def with_requests(source: RandomManifests, pod: Json) -> None:
    """NodeResourcesFit, NodeResourcesBalancedAllocation."""
    spec = pod["spec"]
    if "resources" in spec:
        return
    spec["containers"][0]["resources"] = source.requests(with_devices=True)
    if source.sometimes(40):
        second = {"name": f"c{len(spec['containers'])}", "image": source.one_of(_IMAGE_NAMES)}
        spec["containers"].append({**second, "resources": source.requests(with_devices=False)})
    if source.sometimes(30):
        starter: Json = {"name": "i0", "image": source.one_of(_IMAGE_NAMES)}
        if source.sometimes():
            starter["restartPolicy"] = "Always"
        spec["initContainers"] = [{**starter, "resources": source.requests(with_devices=False)}]


def with_pod_level_requests(source: RandomManifests, pod: Json) -> None:
    """NodeResourcesFit for a pod that asks as a whole."""
    if any("resources" in container for container in pod["spec"]["containers"]):
        return
    requests = {"cpu": source.one_of(_REQUESTS["cpu"]), "memory": source.one_of(("1Gi", "1.5G"))}
    pod["spec"]["resources"] = {"requests": requests}


def with_images(source: RandomManifests, pod: Json) -> None:
    """ImageLocality: more images, of containers and of volumes."""
    spec = pod["spec"]
    name = f"c{len(spec['containers'])}"
    spec["containers"].append({"name": name, "image": source.one_of(_IMAGE_NAMES)})
    if source.sometimes(30):
        volume = {"name": "image", "image": {"reference": source.one_of(_IMAGE_NAMES)}}
        spec.setdefault("volumes", []).append(volume)


def with_node_selector(source: RandomManifests, pod: Json) -> None:
    """NodeAffinity by the short form."""
    key = source.one_of(tuple(_NODE_LABELS))
    pod["spec"]["nodeSelector"] = {key: source.usual(_NODE_LABELS[key])}


def with_node_affinity(source: RandomManifests, pod: Json) -> None:
    """NodeAffinity, required and preferred."""

    def expression() -> Json:
        if source.sometimes(25):
            value = source.one_of(("0", "1", "4"))
            return {"key": "gen", "operator": source.one_of(("Gt", "Lt")), "values": [value]}
        return source.expression({**_NODE_LABELS, "absent": ("a",)})

    def term() -> Json:
        made: Json = {"matchExpressions": source.several(expression, at_most=2)}
        if source.sometimes(20):
            name = source.one_of((*source.node_names, "gone"))
            operator = source.one_of(("In", "NotIn"))
            field = {"key": "metadata.name", "operator": operator, "values": [name]}
            made["matchFields"] = [field]
        return made

    def preferred() -> Json:
        return {"weight": source.random.randint(1, 100), "preference": term()}

    affinity: Json = {}
    if source.sometimes(35):
        terms = source.several(term, at_least=1, at_most=3)
        affinity[_REQUIRED] = {"nodeSelectorTerms": terms}
    if source.sometimes(90):
        affinity[_PREFERRED] = source.several(preferred, at_least=1, at_most=3)
    pod["spec"].setdefault("affinity", {})["nodeAffinity"] = affinity


def with_tolerations(source: RandomManifests, pod: Json) -> None:
    """TaintToleration, NodeUnschedulable."""

    def toleration() -> Json:
        made: Json = {}
        if source.sometimes(70):
            made["effect"] = source.one_of(_EFFECTS)
        if source.sometimes(15):
            return {**made, "operator": "Exists"}
        made["key"] = source.one_of(TAINT_KEYS)
        if source.sometimes():
            return {**made, "operator": "Exists"}
        return {**made, "operator": "Equal", "value": source.one_of(("", "x", "y"))}

    pod["spec"]["tolerations"] = source.several(toleration, at_least=1, at_most=3)


def with_ports(source: RandomManifests, pod: Json) -> None:
    """NodePorts."""
    port: Json = {"containerPort": 80, "hostPort": source.one_of((80, 81))}
    if source.sometimes(40):
        port["hostIP"] = source.one_of((_ANYWHERE, "10.0.0.1", "10.0.0.2", "127.0.0.1"))
    if source.sometimes(40):
        port["protocol"] = source.one_of(("TCP", "UDP"))
    if source.sometimes(20):
        pod["spec"]["hostNetwork"] = True
        port["containerPort"] = port["hostPort"]
    pod["spec"]["containers"][0]["ports"] = [port]


def with_features(source: RandomManifests, pod: Json) -> None:
    """NodeDeclaredFeatures, by the one feature that servers accept pods for."""
    codes = {"operator": "In", "values": [42]}
    rule = {"action": "RestartAllContainers", "exitCodes": codes}
    rules = {"restartPolicy": "Never", "restartPolicyRules": [rule]}
    pod["spec"]["containers"][0] |= rules


def with_spread(source: RandomManifests, pod: Json) -> None:
    """PodTopologySpread."""
    constraints: dict[tuple[str, str], Json] = {}
    for _ in range(source.random.randint(1, 2)):
        key = source.one_of(_TOPOLOGY_KEYS[1:5] if source.sometimes(95) else _TOPOLOGY_KEYS)
        when = source.one_of(("DoNotSchedule", "ScheduleAnyway"))
        made: Json = {"topologyKey": key, "whenUnsatisfiable": when}
        made["maxSkew"] = source.one_of((1, 1, 2, 3))
        if source.sometimes(30):
            made["matchLabelKeys"] = source.revision_key(pod)
            made["labelSelector"] = source.pod_selector(pod, unless=made["matchLabelKeys"])
        elif source.sometimes(95):
            made["labelSelector"] = source.pod_selector(pod)
        if when == "DoNotSchedule" and source.sometimes(80):
            made["minDomains"] = source.one_of((1, 3, 4, 4, 12))
        # What is not the default comes more often.
        if source.sometimes(90):
            made["nodeTaintsPolicy"] = "Honor" if source.sometimes(90) else "Ignore"
        if source.sometimes():
            made["nodeAffinityPolicy"] = "Ignore" if source.sometimes(80) else "Honor"
            with_node_selector(source, pod)
        constraints[key, when] = made
    pod["spec"]["topologySpreadConstraints"] = list(constraints.values())


def with_pod_affinity(source: RandomManifests, pod: Json) -> None:
    """InterPodAffinity."""
    kinds = source.random.sample(("podAffinity", "podAntiAffinity"), source.random.randint(1, 2))
    for kind in sorted(kinds):
        rules: Json = {}
        if source.sometimes(35):
            make = lambda: _pod_term(source, pod)  # noqa: E731
            rules[_REQUIRED] = source.several(make, at_least=1, at_most=2)
        if source.sometimes(75):
            make_weighted = lambda: _weighted_term(source, pod)  # noqa: E731
            rules[_PREFERRED] = source.several(make_weighted, at_least=1, at_most=2)
        pod["spec"].setdefault("affinity", {})[kind] = rules


def _weighted_term(source: RandomManifests, pod: Json) -> Json:
    weight = source.one_of((1, 3, 10, 100))
    return {"weight": weight, "podAffinityTerm": _pod_term(source, pod)}


def _pod_term(source: RandomManifests, pod: Json) -> Json:
    term: Json = {
        "topologyKey": source.one_of(_TOPOLOGY_KEYS if source.sometimes(10) else _TOPOLOGY_KEYS[:5])
    }
    if source.sometimes(30):
        keys = source.revision_key(pod)
        term[source.one_of(("matchLabelKeys", "mismatchLabelKeys"))] = keys
        term["labelSelector"] = source.pod_selector(pod, unless=keys)
    elif source.sometimes(95):
        term["labelSelector"] = source.pod_selector(pod)
    if source.sometimes(30):
        term["namespaces"] = sorted(source.random.sample(NAMESPACES, source.random.randint(1, 2)))
    if source.sometimes(30):
        everybody = source.sometimes(30)
        expression = source.expression({"team": _TEAMS})
        term["namespaceSelector"] = {} if everybody else {"matchExpressions": [expression]}
    return term


def with_owner(source: RandomManifests, pod: Json) -> None:
    """PodTopologySpread by default, after the ReplicaSet that a pod belongs to."""
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "set",
        "uid": "11111111-2222-3333-4444-555555555555",
        "controller": True,
    }
    pod["metadata"]["ownerReferences"] = [owner]


POD_PARTS: Final[tuple[PodPart, ...]] = (
    with_pod_level_requests,
    with_images,
    with_node_selector,
    with_tolerations,
    with_owner,
    with_features,
    # What has many fields, or decides rarely, comes more often.
    *(with_requests,) * 2,
    *(with_node_affinity,) * 3,
    *(with_ports,) * 3,
    *(with_spread,) * 5,
    *(with_pod_affinity,) * 5,
)
"""What pods of a parity run may be made of."""
