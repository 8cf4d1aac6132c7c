"""Groups of pods in every dialect, for tests that must hold in all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ksched.api.watched_kinds import WatchedKind
from ksched.groups.dialects import in_tree, scheduler_plugins
from ksched.testing import Cluster, PodBuilder, make_pod

DIALECTS = ("annotations", "in-tree", "scheduler-plugins")
PLUGIN = {
    "annotations": "GangScheduling",
    "in-tree": "GangScheduling",
    "scheduler-plugins": "Coscheduling",
}
DEFINITION = Path(__file__).parents[1] / "config" / "crd-podgroups.yaml"
V1ALPHA2 = next(kind for kind in in_tree.KINDS if kind.resource.version == "v1alpha2")
KINDS: Mapping[str, WatchedKind[Any]] = {
    "in-tree": V1ALPHA2,
    "scheduler-plugins": scheduler_plugins.KIND,
}


def configured(dialect: str, *disabled: str, **more: Any) -> dict[str, Any]:
    """A configuration in which a dialect is read."""
    plugins = {
        "multiPoint": {
            "enabled": [{"name": PLUGIN[dialect]}],
            "disabled": [{"name": name} for name in disabled],
        }
    }
    profile = {"schedulerName": "default-scheduler", "plugins": plugins}
    return {"profiles": [profile], **more}


async def install(c: Cluster, dialect: str) -> None:
    """Make the API server serve the objects of a dialect; noticed within a minute."""
    if dialect == "scheduler-plugins":
        await c.create(podgroup_definition())


def podgroup_definition() -> dict[str, Any]:
    """The definition of scheduler-plugins' PodGroup that users install."""
    found: dict[str, Any] = yaml.safe_load(DEFINITION.read_text())
    return found


def priority_class(value: int) -> dict[str, Any]:
    """The class that pods of a priority name."""
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    return {**kind, "metadata": {"name": f"p{value}"}, "value": value}


@dataclass
class Gang:
    """A group of pods ``NAME-0`` to ``NAME-N`` with its object."""

    dialect: str
    name: str
    size: int
    minimum: int | None = None
    cpu: str = "1"
    namespace: str = "default"
    priority: int | None = None
    topology: str = ""
    """Keys of node labels, from coarse to fine; those that end in ``:preferred`` are."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """More of the object's ``spec``."""

    @property
    def names(self) -> list[str]:
        return [f"{self.namespace}/{self.name}-{number}" for number in range(self.size)]

    @property
    def least(self) -> int:
        return self.size if self.minimum is None else self.minimum

    def objects(self) -> list[dict[str, Any]]:
        """The group's object, if its dialect has one."""
        metadata = {"name": self.name, "namespace": self.namespace}
        if self.dialect == "in-tree":
            spec: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": self.least}}}
            if self.topology:
                spec["schedulingConstraints"] = {"topology": [{"key": self.topology}]}
        elif self.dialect == "scheduler-plugins":
            spec = {"minMember": self.least}
        else:
            return []
        resource = KINDS[self.dialect].resource
        return [
            {
                "apiVersion": f"{resource.group}/{resource.version}",
                "kind": resource.kind,
                "metadata": metadata,
                "spec": {**spec, **self.more},
            }
        ]

    def pod(self, number: int | str) -> PodBuilder:
        pod = make_pod(f"{self.name}-{number}", self.namespace).req(cpu=self.cpu)
        if self.priority is not None:
            pod = pod.merge({"spec": {"priorityClassName": f"p{self.priority}"}})
        if self.dialect == "in-tree":
            return pod.merge({"spec": {"schedulingGroup": {"podGroupName": self.name}}})
        if self.dialect == "scheduler-plugins":
            return pod.label({scheduler_plugins.LABEL: self.name})
        marks = {"ksched.dev/group": self.name, "ksched.dev/group-min": str(self.least)}
        if self.topology:
            marks["ksched.dev/group-topology"] = self.topology
        return pod.annotation(marks)

    def pods(self) -> list[PodBuilder]:
        return [self.pod(number) for number in range(self.size)]

    async def create(self, c: Cluster) -> None:
        await c.create(*self.objects(), *self.pods())

    def bound(self, c: Cluster) -> int:
        """How many of its pods are bound."""
        return sum(c.exists(name) and c.bound(name) is not None for name in self.names)
