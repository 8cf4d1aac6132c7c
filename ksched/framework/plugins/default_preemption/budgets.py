"""PodDisruptionBudgets: which victims would violate one."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

from ksched.api.label_selectors import InvalidSelector, Selector, compile_selector
from ksched.api.objects import PodDisruptionBudget
from ksched.framework import Lister, PodInfo, PodTemplate


class DisruptionBudgets:
    """The budgets of the cluster; matches with templates are cached until a budget changes.

    kube-scheduler: getPodDisruptionBudgets.
    """

    def __init__(self, lister: Lister[PodDisruptionBudget]) -> None:
        self._lister = lister
        self._generation = -1
        self._by_namespace: dict[str, list[tuple[Selector, PodDisruptionBudget]]] = {}
        self._of_template: WeakKeyDictionary[PodTemplate, list[PodDisruptionBudget]]
        self._of_template = WeakKeyDictionary()

    @property
    def generation(self) -> int:
        """Changes whenever a budget does."""
        return self._lister.generation

    def split(
        self, pods: Sequence[PodInfo], allowed: dict[str, int] | None = None
    ) -> tuple[list[PodInfo], list[PodInfo]]:
        """Divide pods, in eviction order, into violating ones and others.

        ``allowed`` has the disruptions left by budget after earlier victims; it is updated.

        A pod violates if a budget that selects it allows no further disruption when it is evicted
        (default_preemption.go: filterPodsWithPDBViolation, v1.36).

        kube-scheduler: filterVictimsWithPDBViolation.
        """
        if not self._lister:
            return [], list(pods)
        self._catch_up()
        violating: list[PodInfo] = []
        others: list[PodInfo] = []
        allowed = {} if allowed is None else allowed
        for pod in pods:
            is_violating = False
            for budget in self._budgets_of(pod.template):
                if pod.name in budget.status.disrupted_pods:
                    # Its disruption is counted already.
                    continue
                key = budget.metadata.key
                left = allowed.get(key, budget.status.disruptions_allowed) - 1
                allowed[key] = left
                is_violating = is_violating or left < 0
            (violating if is_violating else others).append(pod)
        return violating, others

    def cover(self, pod: PodInfo) -> bool:
        """Whether a budget counts the eviction of a pod."""
        if not self._lister:
            return False
        self._catch_up()
        return any(
            pod.name not in budget.status.disrupted_pods
            for budget in self._budgets_of(pod.template)
        )

    def _catch_up(self) -> None:
        if self._lister.generation != self._generation:
            self._generation = self._lister.generation
            self._by_namespace.clear()
            self._of_template.clear()

    def _budgets_of(self, template: PodTemplate) -> list[PodDisruptionBudget]:
        found = self._of_template.get(template)
        if found is None:
            found = self._of_template[template] = [
                budget
                for selector, budget in self._in_namespace(template.namespace)
                if template.labels and not selector.empty and selector.matches(template.labels)
            ]
        return found

    def _in_namespace(self, namespace: str) -> list[tuple[Selector, PodDisruptionBudget]]:
        found = self._by_namespace.get(namespace)
        if found is None:
            found = self._by_namespace[namespace] = []
            for budget in self._lister.in_namespace(namespace):
                try:
                    found.append((compile_selector(budget.spec.selector), budget))
                except InvalidSelector:
                    # Selects nothing, as in kube-scheduler.
                    continue
        return found
