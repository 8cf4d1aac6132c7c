"""Random admissible pods."""

from __future__ import annotations

from typing import Any

from lab.fuzz.values import (
    COUNTS,
    EFFECTS,
    EXTENDED,
    INT32_MAX,
    LABEL_KEYS,
    NAMESPACES,
    QUANTITIES,
    TEXTS,
    EdgeValues,
    JsonObject,
)

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_NODE_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


class PodFuzzer(EdgeValues):
    """A source of pods as JSON; what is still refused is refused by the API server."""

    def pod(self, name: str, node_names: list[str], claims: list[str]) -> JsonObject:
        metadata: JsonObject = {
            "name": name,
            "namespace": self.one_of(NAMESPACES[:2]),
            "labels": self.labels(),
        }
        if self.sometimes(20):
            metadata["annotations"] = {
                f"note-{number}": self.one_of(TEXTS) * self.one_of((1, 1, 500))
                for number in range(self.count(3))
            }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": self._spec(node_names, claims),
        }

    def _spec(self, node_names: list[str], claims: list[str]) -> JsonObject:
        spec: JsonObject = {
            "containers": [self._container(f"c{n}") for n in range(1 + self.count(1))],
            "initContainers": [self._init_container(n) for n in range(self.count(1))],
            "tolerations": [self._toleration() for _ in range(self.count())],
        }
        if self.sometimes(30):
            spec["nodeSelector"] = self.labels(2)
        if self.sometimes(50):
            spec["affinity"] = self._affinity(node_names)
        if self.sometimes(30):
            spec["topologySpreadConstraints"] = self._spread_constraints()
        if self.sometimes(10):
            spec["schedulingGates"] = [{"name": f"example.com/g{n}"} for n in range(self.count())]
        elif self.sometimes(10) and node_names:
            spec["nodeName"] = self.one_of([*node_names, "nowhere"])
        if self.sometimes(20):
            spec["volumes"] = [self._volume(n, claims) for n in range(self.count(2))]
        if self.sometimes(1):
            # Refused without a runtime class by a real server.
            spec["overhead"] = {"cpu": self.one_of(QUANTITIES), "memory": self.one_of(QUANTITIES)}
        if self.sometimes(10):
            spec["priorityClassName"] = self.one_of(("low", "high", "system-node-critical"))
        elif self.sometimes(5):
            spec["preemptionPolicy"] = "Never"
        return spec

    def _container(self, name: str) -> JsonObject:
        container: JsonObject = {
            "name": name,
            "image": self.one_of(("a:1", "b", f"registry.io/{'i' * 120}:{'t' * 60}", "r:5000/x")),
            "resources": self._resources(),
        }
        if self.sometimes(20):
            container["ports"] = [self._port(n) for n in range(self.count(2))]
        if self.sometimes(5):
            container["env"] = [
                {"name": f"E{n}", "value": self.one_of(TEXTS)} for n in range(self.count(3))
            ]
        return container

    def _init_container(self, number: int) -> JsonObject:
        container = self._container(f"i{number}")
        return container | ({"restartPolicy": "Always"} if self.sometimes(30) else {})

    def _resources(self) -> JsonObject:
        requests = {
            name: self.one_of(QUANTITIES)
            for name in ("cpu", "memory", "ephemeral-storage")
            if self.sometimes(40)
        }
        limits: JsonObject = {}
        if self.sometimes(25):
            for number in range(self.count(2)):
                name = self.one_of(EXTENDED) if number < 3 else f"many.io/r{number}"
                requests[name] = limits[name] = self.one_of(COUNTS)
        return {"requests": requests, "limits": limits}

    def _port(self, number: int) -> JsonObject:
        port: JsonObject = {"containerPort": 1 + number % 65535}
        if self.sometimes(80):
            port["hostPort"] = self.one_of((80, 65535, 1 + number % 65535))
        port["protocol"] = self.one_of(("TCP", "UDP", "SCTP"))
        port["hostIP"] = self.one_of(("", "127.0.0.1", "0.0.0.0", "::", "10.0.0.1"))
        return port

    def _toleration(self) -> JsonObject:
        if self.sometimes(20):
            return {"operator": "Exists"}
        toleration: JsonObject = {"key": self.key(), "operator": self.one_of(("Exists", "Equal"))}
        if toleration["operator"] == "Equal":
            toleration["value"] = self.value()
        return toleration | ({"effect": self.one_of(EFFECTS)} if self.sometimes(60) else {})

    def _affinity(self, node_names: list[str]) -> JsonObject:
        affinity: JsonObject = {}
        if self.sometimes():
            affinity["nodeAffinity"] = self._node_affinity(node_names)
        for kind in ("podAffinity", "podAntiAffinity"):
            if self.sometimes(40):
                affinity[kind] = {
                    _REQUIRED: [self._pod_term() for _ in range(self.count(1))],
                    _PREFERRED: [
                        {"weight": self.one_of((1, 50, 100)), "podAffinityTerm": self._pod_term()}
                        for _ in range(self.count(1))
                    ],
                }
        return affinity

    def _node_affinity(self, node_names: list[str]) -> JsonObject:
        rules: JsonObject = {
            _PREFERRED: [
                {"weight": self.one_of((1, 100)), "preference": self._node_term(node_names)}
                for _ in range(self.count(2))
            ]
        }
        if self.sometimes():
            terms = [self._node_term(node_names) for _ in range(1 + self.count(1))]
            rules[_REQUIRED] = {"nodeSelectorTerms": terms}
        return rules

    def _node_term(self, node_names: list[str]) -> JsonObject:
        term: JsonObject = {
            "matchExpressions": [self.expression(_NODE_OPERATORS) for _ in range(self.count(2))]
        }
        if self.sometimes(10):
            names = [self.one_of([*node_names, "nowhere"])]
            operator = self.one_of(("In", "NotIn"))
            field: JsonObject = {"key": "metadata.name", "operator": operator, "values": names}
            term["matchFields"] = [field]
        return term

    def _pod_term(self) -> JsonObject:
        term: JsonObject = {"topologyKey": self.key(), "labelSelector": self.label_selector()}
        if self.sometimes(20):
            term["namespaces"] = [self.one_of(NAMESPACES) for _ in range(self.count(2))]
        if self.sometimes(20):
            term["namespaceSelector"] = self.one_of(({}, self.label_selector()))
        return term

    def _spread_constraints(self) -> list[JsonObject]:
        """Each pair of key and effect may occur once."""
        found: dict[tuple[str, str], JsonObject] = {}
        for number in range(self.count(2)):
            key = self.one_of(LABEL_KEYS) if number < 4 else f"k{number}"
            action = self.one_of(("DoNotSchedule", "ScheduleAnyway"))
            constraint: dict[str, Any] = {
                "topologyKey": key,
                "whenUnsatisfiable": action,
                "maxSkew": self.one_of((1, 2, INT32_MAX)),
                "labelSelector": self.label_selector(),
            }
            if action == "DoNotSchedule" and self.sometimes(20):
                constraint["minDomains"] = self.one_of((1, 3, INT32_MAX))
            if self.sometimes(20):
                constraint["nodeTaintsPolicy"] = self.one_of(("Honor", "Ignore"))
                constraint["nodeAffinityPolicy"] = self.one_of(("Honor", "Ignore"))
            found[key, action] = constraint
        return list(found.values())

    def _volume(self, number: int, claims: list[str]) -> JsonObject:
        source: JsonObject = {"emptyDir": {}}
        if claims and self.sometimes(60):
            source = {"persistentVolumeClaim": {"claimName": self.one_of([*claims, "missing"])}}
        elif self.sometimes(30):
            disk = self.one_of(("d1", "d2"))
            source = {"gcePersistentDisk": {"pdName": disk, "readOnly": self.sometimes()}}
        return {"name": f"v{number}", **source}
