"""Objects that the API server admits and that are meant to hurt: tenants who write only pods.

Every attack is a list of pods as JSON would have them, for a real API server or ``decode_pod``.
``node`` puts them on a node at once, as anybody who may create pods can.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

Manifest = dict[str, Any]
Attack = Callable[[str, str], list[Manifest]]
"""Makes the pods of an attack, given a prefix of their names and a node."""

HOSTNAME: Final = "kubernetes.io/hostname"
EVERYWHERE: Final[Mapping[str, Any]] = MappingProxyType({})
"""A selector of all namespaces."""


def pod(name: str, node: str = "", **spec: Any) -> Manifest:
    """A pod that asks for next to nothing."""
    container = {
        "name": "c",
        "image": "registry.k8s.io/pause:3.10",
        "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}},
    }
    body: Manifest = {"containers": [container], "terminationGracePeriodSeconds": 0, **spec}
    if node:
        body["nodeName"] = node
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": body,
    }


def not_in(number: int, values: int = 1) -> Manifest:
    """A selector that means every pod without the label, unlike all others of its kind."""
    names = [f"v{number}-{value}" for value in range(values)]
    return {"matchExpressions": [{"key": "hostile", "operator": "NotIn", "values": names}]}


def term(key: str, selector: Mapping[str, Any]) -> Manifest:
    """An affinity term that looks into all namespaces."""
    return {
        "topologyKey": key,
        "namespaceSelector": dict(EVERYWHERE),
        "labelSelector": dict(selector),
    }


def anti_affinity(terms: list[Manifest]) -> Manifest:
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def preferred(terms: list[Manifest], kind: str = "podAffinity") -> Manifest:
    wishes = [{"weight": 1, "podAffinityTerm": one} for one in terms]
    return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": wishes}}


def absent_keys(prefix: str, node: str, terms: int = 8000) -> list[Manifest]:
    """A running pod with anti-affinity to everybody by labels that no node has."""
    wanted = [term(f"{prefix}-{number}", EVERYWHERE) for number in range(terms)]
    return [pod(f"{prefix}-absent", node, affinity=anti_affinity(wanted))]


def host_terms(prefix: str, node: str, terms: int = 6000) -> list[Manifest]:
    """A running pod with as many reasons to be alone on its host."""
    wanted = [term(HOSTNAME, not_in(number)) for number in range(terms)]
    return [pod(f"{prefix}-host", node, affinity=anti_affinity(wanted))]


def wishes(prefix: str, node: str, terms: int = 5000) -> list[Manifest]:
    """A running pod that would like to have company for many reasons."""
    wanted = [term(HOSTNAME, not_in(number)) for number in range(terms)]
    return [pod(f"{prefix}-wishes", node, affinity=preferred(wanted))]


def value_lists(prefix: str, node: str, values: int = 60_000) -> list[Manifest]:
    """A running pod with one term that lists what others must not be called."""
    wanted = [term(HOSTNAME, not_in(0, values))]
    return [pod(f"{prefix}-values", node, affinity=anti_affinity(wanted))]


def shapes(prefix: str, node: str, pods: int = 200) -> list[Manifest]:
    """Pods of which no two are alike, each waiting for labels that no node has."""
    return [
        pod(
            f"{prefix}-shape-{number}",
            nodeSelector={f"{prefix}-{number}-{key}": "x" for key in range(20)},
        )
        for number in range(pods)
    ]


def resource_names(prefix: str, node: str, pods: int = 20, names: int = 20) -> list[Manifest]:
    """Pods that ask for resources that nobody ever heard of."""
    made = []
    for number in range(pods):
        one = pod(f"{prefix}-resource-{number}")
        amounts = {f"hostile.example/{prefix}-{number}-{name}": "1" for name in range(names)}
        one["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
        made.append(one)
    return made


def spreads(prefix: str, node: str, pods: int = 100) -> list[Manifest]:
    """Pods that each count others by a selector of their own."""
    return [
        pod(
            f"{prefix}-spread-{number}",
            topologySpreadConstraints=[
                {
                    "maxSkew": 1,
                    "topologyKey": key,
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": not_in(number),
                }
                for key in (HOSTNAME, "topology.kubernetes.io/zone")
            ],
        )
        for number in range(pods)
    ]


def groups(prefix: str, node: str, pods: int = 100) -> list[Manifest]:
    """Pods of which one half are groups by themselves, the others one that wants other minimums.

    For schedulers that read the annotations of groups; a few have as many characters as they may.
    """
    made = []
    for number in range(pods):
        one = pod(f"{prefix}-group-{number}")
        marks = {
            "ksched.dev/group": f"{prefix}-{number if number % 2 else 'all'}",
            "ksched.dev/group-min": str(pods + number),
        }
        if number < 3:
            marks["ksched.dev/group-topology"] = ",".join(["zone:preferred"] * 15_000)
            marks["ksched.dev/group-timeout"] = "1" * 30_000 + "x"
        one["metadata"]["annotations"] = marks
        made.append(one)
    return made


ATTACKS: Final[Mapping[str, Attack]] = MappingProxyType(
    {
        "absent keys": absent_keys,
        "host terms": host_terms,
        "wishes": wishes,
        "value lists": value_lists,
        "shapes": shapes,
        "resource names": resource_names,
        "spreads": spreads,
        "groups": groups,
    }
)
