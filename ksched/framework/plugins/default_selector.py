"""Selectors derived from a pod's services and controller, for default spreading."""

from __future__ import annotations

from typing import NamedTuple

from ksched.api.label_selectors import (
    InvalidSelector,
    Selector,
    compile_selector,
    from_match_labels,
)
from ksched.api.objects import (
    Labels,
    LabelSelector,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)
from ksched.framework import Listers, PodTemplate


class _Deduced(NamedTuple):
    """A selector, and what it was derived from."""

    services_generation: int
    controller: Labels | LabelSelector | None
    selector: Selector


class DefaultSelectors:
    """Derives selectors of pods from the services and workload objects of the cluster.

    Follows ``plugins/helper/spread.go: DefaultSelector`` (v1.36). Creating one starts the watches
    of Services, ReplicationControllers, ReplicaSets and StatefulSets.
    """

    def __init__(self, listers: Listers) -> None:
        self._services = listers.require(Service)
        self._replication_controllers = listers.require(ReplicationController)
        self._replica_sets = listers.require(ReplicaSet)
        self._stateful_sets = listers.require(StatefulSet)

    def of(self, template: PodTemplate) -> Selector:
        """Return the selector of pods related to this one; empty if there is none."""
        generation, controller = self._services.generation, self._controller_selector(template)
        known: _Deduced | None = template.facts.get(self)
        if (
            known is not None
            and known.services_generation == generation
            and known.controller == controller
        ):
            return known.selector
        selector = self._deduce(template, controller)
        template.facts[self] = _Deduced(generation, controller, selector)
        return selector

    def _controller_selector(self, template: PodTemplate) -> Labels | LabelSelector | None:
        owner = template.controller
        if owner is None:
            return None
        name, namespace = owner.name, template.namespace
        match owner.api_version, owner.kind:
            case "v1", "ReplicationController":
                controller = self._replication_controllers.get(name, namespace)
                return controller.spec.selector if controller is not None else None
            case "apps/v1", "ReplicaSet":
                replica_set = self._replica_sets.get(name, namespace)
                return replica_set.spec.selector if replica_set is not None else None
            case "apps/v1", "StatefulSet":
                stateful_set = self._stateful_sets.get(name, namespace)
                return stateful_set.spec.selector if stateful_set is not None else None
        return None

    def _deduce(self, template: PodTemplate, controller: Labels | LabelSelector | None) -> Selector:
        """kube-scheduler: GetPodServices."""
        labels: Labels = {}
        for service in self._services.in_namespace(template.namespace):
            wanted = service.spec.selector
            if wanted is not None and wanted.items() <= template.labels.items():
                labels |= wanted
        if not isinstance(controller, LabelSelector):
            return from_match_labels({**labels, **(controller or {})})
        selector = from_match_labels(labels)
        try:
            other = compile_selector(controller)
        except InvalidSelector:
            return selector
        # A workload without a selector selects nothing; kube-scheduler then omits it.
        return selector if other.matches_nothing else selector.intersection(other)
