"""Which victims violate a budget (default_preemption.go: filterPodsWithPDBViolation, v1.36)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ksched.api.objects import PodDisruptionBudget
from ksched.cache.listers import Lister
from ksched.cache.pod_info import PodInfo, TemplateRegistry
from ksched.cache.resource_axis import ResourceAxis
from ksched.framework.plugins.default_preemption.budgets import DisruptionBudgets
from ksched.testing import make_pod

TEMPLATES = TemplateRegistry(ResourceAxis())
WEB = {"matchLabels": {"app": "web"}}


def budget(
    allowed: int,
    selector: Any = WEB,
    name: str = "b",
    namespace: str = "default",
    disrupted: tuple[str, ...] = (),
) -> PodDisruptionBudget:
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {} if selector is None else {"selector": selector},
            "status": {
                "disruptionsAllowed": allowed,
                "disruptedPods": dict.fromkeys(disrupted, "2026-01-01T00:00:00Z"),
            },
        },
        PodDisruptionBudget,
    )


def webs(*names: str, app: str = "web") -> list[PodInfo]:
    return [TEMPLATES.pod_info(make_pod(name).label(app=app).obj()) for name in names]


def violating(budgets: list[PodDisruptionBudget], pods: list[PodInfo]) -> list[str]:
    lister: Lister[PodDisruptionBudget] = Lister()
    for one in budgets:
        lister.put(one)
    violated, others = DisruptionBudgets(lister).split(pods)
    assert sorted(pod.name for pod in violated + others) == sorted(pod.name for pod in pods)
    return [pod.name for pod in violated]


@pytest.mark.parametrize(
    ("budgets", "expected"),
    [
        pytest.param([], [], id="there is no budget"),
        pytest.param([budget(3)], [], id="as many as allowed"),
        pytest.param([budget(2)], ["c"], id="the last one is too many"),
        pytest.param([budget(0)], ["a", "b", "c"], id="none is allowed"),
        pytest.param([budget(-1)], ["a", "b", "c"], id="the budget is overdrawn already"),
        pytest.param([budget(0, None)], [], id="no selector selects nothing"),
        pytest.param([budget(0, {})], [], id="an empty selector selects nothing either"),
        pytest.param([budget(0, namespace="other")], [], id="another namespace"),
        pytest.param([budget(0, {"matchLabels": {"app": "db"}})], [], id="other labels"),
        pytest.param(
            [budget(0, {"matchExpressions": [{"key": "app", "operator": "Nonsense"}]})],
            [],
            id="a selector that cannot be understood selects nothing",
        ),
        pytest.param([budget(0, disrupted=("b",))], ["a", "c"], id="disrupted and counted already"),
        pytest.param(
            [budget(1, disrupted=("a",))], ["c"], id="a disrupted pod takes nothing of the budget"
        ),
        pytest.param([budget(5), budget(1, name="b2")], ["b", "c"], id="the stricter of two"),
    ],
)
def test_violating_pods(budgets: list[PodDisruptionBudget], expected: list[str]) -> None:
    assert violating(budgets, webs("a", "b", "c")) == expected


def test_a_violating_pod_takes_from_its_other_budgets_too() -> None:
    strict = budget(0, {"matchLabels": {"kind": "x"}}, name="strict")
    wide = budget(1, name="wide")
    both = TEMPLATES.pod_info(make_pod("both").label(app="web", kind="x").obj())

    assert violating([strict, wide], [both, *webs("web")]) == ["both", "web"]


def test_a_pod_without_labels_violates_nothing() -> None:
    bare = TEMPLATES.pod_info(make_pod("bare").obj())
    everything_else = {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}

    assert violating([budget(0, everything_else)], [bare]) == []


def test_a_changed_budget_counts_at_once() -> None:
    lister: Lister[PodDisruptionBudget] = Lister()
    budgets = DisruptionBudgets(lister)
    pods = webs("a")
    assert budgets.split(pods) == ([], pods)

    lister.put(budget(0))
    assert budgets.split(pods) == (pods, [])

    lister.put(budget(1))
    assert budgets.split(pods) == ([], pods)

    lister.put(budget(0))
    lister.remove(budget(0))
    assert budgets.split(pods) == ([], pods)
