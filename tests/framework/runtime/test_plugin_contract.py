"""What is wrong with a plugin is said at start-up, with the nearest right name.

Covers ``ksched.framework.depends_on`` too.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from ksched.cache.listers import Listers
from ksched.clock import LoopClock
from ksched.framework import SUCCESS, FilterDependsOn, Handle, Scope, ScoreDependsOn, Verdicts
from ksched.framework.interface import ColumnarFilterPlugin, ColumnarScorePlugin
from ksched.framework.plugins.image_locality import ImageLocality
from ksched.framework.plugins.in_tree import IN_TREE
from ksched.framework.plugins.taint_toleration import TaintToleration
from ksched.framework.plugins.volumes.volume_zone import VolumeZone
from ksched.framework.runtime.plugin_contract import find_problems
from ksched.testing import FakePlugin, PermitGate

HANDLE = cast(Handle, SimpleNamespace(listers=Listers(), clock=LoopClock(), profile_name=""))


def passing(state: Any, pod: Any, nodes: Any) -> Verdicts:
    return Verdicts.passing(len(nodes))


def rating(state: Any, pod: Any, nodes: Any) -> Any:
    return np.zeros(len(nodes), np.int64)


def nothing(*args: Any) -> Any:
    return None


async def later(*args: Any) -> Any:
    return SUCCESS


async def stream(*args: Any) -> Any:
    yield SUCCESS


def problems(**attributes: Any) -> list[str]:
    methods = {
        name: staticmethod(one) if callable(one) else one for name, one in attributes.items()
    }
    plugin = type("Plugin", (), {"name": "Odd", **methods})()
    return list(find_problems("Odd", plugin))


@pytest.mark.parametrize("name", IN_TREE)
def test_plugins_in_the_tree_have_no_problems(name: str) -> None:
    assert list(find_problems(name, IN_TREE[name](None, HANDLE))) == []


def test_fakes_have_no_problems() -> None:
    assert list(find_problems("Fake", FakePlugin("Fake", permit=SUCCESS))) == []
    assert list(find_problems("PermitGate", PermitGate())) == []


def test_a_declaration_may_be_of_the_class_or_of_the_object() -> None:
    """What the type checker says: this file is checked too."""
    filters: list[ColumnarFilterPlugin] = [TaintToleration(), VolumeZone(Listers())]
    scores: list[ColumnarScorePlugin] = [TaintToleration(), ImageLocality()]
    assert [one.filter_depends_on.scope for one in filters] == [Scope.NODE, Scope.CLUSTER]
    assert [one.score_depends_on.scope for one in scores] == [Scope.NODE, Scope.NODE]


@pytest.mark.parametrize(
    ("attributes", "problem"),
    [
        ({"filter_node": passing}, "unknown attribute filter_node, did you mean filter_nodes?"),
        (
            {"filter_nodes": passing, "filter_depend_on": FilterDependsOn()},
            "unknown attribute filter_depend_on, did you mean filter_depends_on?",
        ),
        (
            {"filter_nodes": passing, "filter_scope": Scope.NODE},
            "unknown attribute filter_scope, there are filter, filter_depends_on, filter_nodes",
        ),
        (
            {"score_nodes": rating, "score_epoch": nothing},
            "unknown attribute score_epoch, there are score, score_depends_on, score_nodes",
        ),
        (
            {"filter_nodes": passing, "reads_inter_pod_fields": False},
            "unknown attribute reads_inter_pod_fields, did you mean a field of filter_depends_on or"
            " score_depends_on?",
        ),
        ({"prefilter": nothing}, "unknown attribute prefilter, did you mean pre_filter?"),
        ({"preFilter": nothing}, "unknown attribute preFilter, did you mean pre_filter?"),
        ({"perimt": nothing}, "unknown attribute perimt, did you mean permit?"),
        (
            {"event_to_register": nothing},
            "unknown attribute event_to_register, did you mean events_to_register?",
        ),
        (
            {"score": nothing, "normalise": nothing},
            "unknown attribute normalise, did you mean normalize?",
        ),
        (
            {"score": nothing, "normalize_score": nothing},
            "unknown attribute normalize_score, did you mean normalize?",
        ),
        ({"less": nothing}, "unknown attribute less, did you mean sort_key?"),
        (
            {"timeout_second": 5.0},
            "unknown attribute timeout_second, did you mean timeout_seconds?",
        ),
    ],
    ids=lambda value: value.split(",")[0] if isinstance(value, str) else "",
)
def test_a_misspelt_attribute_is_named_with_the_nearest_right_one(
    attributes: dict[str, Any], problem: str
) -> None:
    assert problems(**attributes) == [problem]


@pytest.mark.parametrize(
    "attributes",
    [
        {"_filter_cache": {}},
        {"scores": {"n1": 5}, "binds": 0, "filters": ()},
        {"weigh": nothing, "reject": nothing, "handle": object(), "args": None},
    ],
    ids=", ".join,
)
def test_attributes_of_a_plugins_own_are_its_own(attributes: dict[str, Any]) -> None:
    assert problems(filter=nothing, **attributes) == []


def test_a_property_is_not_evaluated() -> None:
    class Shy:
        name = "Shy"

        @property
        def binding(self) -> object:
            raise RuntimeError("not yet")

    assert list(find_problems("Shy", Shy())) == []


@pytest.mark.parametrize(
    "method",
    ["filter", "filter_nodes", "score", "score_nodes", "pre_score", "events_to_register", "sweep"],
)
@pytest.mark.parametrize("behaviour", [later, stream])
def test_async_is_refused_where_nothing_waits(method: str, behaviour: Any) -> None:
    assert problems(**{method: behaviour}) == [f"{method} must not be async"]


@pytest.mark.parametrize("field", ["epoch", "changes", "group"])
def test_neither_may_what_is_declared_be_async(field: str) -> None:
    methods: dict[str, Any] = {"changes": nothing, field: later}
    declared = FilterDependsOn(Scope.CLUSTER, **methods)
    found = problems(filter_nodes=passing, filter_depends_on=declared)
    assert f"filter_depends_on: {field} must not be async" in found


def test_async_is_allowed_where_something_waits() -> None:
    points = ("pre_filter", "post_filter", "reserve", "permit", "pre_bind", "bind", "post_bind")
    assert problems(unreserve=nothing, **dict.fromkeys(points, later)) == []


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        (
            FilterDependsOn(Scope.NODE, changes=nothing),
            "changes contradicts scope=Scope.NODE; it goes with Scope.CLUSTER",
        ),
        (
            FilterDependsOn(Scope.ROW, epoch=nothing),
            "epoch contradicts scope=Scope.ROW; it goes with Scope.CLUSTER",
        ),
        (
            FilterDependsOn(epoch=nothing),
            "epoch contradicts scope=Scope.POD; it goes with Scope.CLUSTER",
        ),
        (
            FilterDependsOn(Scope.CLUSTER, changes=nothing, epoch=nothing),
            "epoch contradicts changes, which says more; leave epoch out",
        ),
        (FilterDependsOn(Scope.CLUSTER, group=nothing), "group has no effect without changes"),
        (
            FilterDependsOn(
                Scope.CLUSTER, reads_inter_pod_fields=False, changes=nothing, group=nothing
            ),
            "group contradicts reads_inter_pod_fields=False: it tells pods apart by these fields",
        ),
        (FilterDependsOn("node"), "scope must be a Scope, got 'node'"),  # type: ignore[arg-type]
        (
            FilterDependsOn(Scope.NODE, "no"),  # type: ignore[arg-type]
            "reads_inter_pod_fields must be a bool, got 'no'",
        ),
        (
            FilterDependsOn(Scope.NODE, reads_claim_names=0),  # type: ignore[arg-type]
            "reads_claim_names must be a bool, got 0",
        ),
        (
            FilterDependsOn(Scope.CLUSTER, changes=5),  # type: ignore[arg-type]
            "changes must be a method, got 5",
        ),
        (
            ScoreDependsOn(Scope.CLUSTER, epoch=nothing),
            "epoch contradicts scope=Scope.CLUSTER, whose scores are not cached; "
            "it goes with Scope.NODE, Scope.RESOURCES, Scope.ROW",
        ),
    ],
    ids=lambda value: value.split(",")[0] if isinstance(value, str) else "",
)
def test_a_contradictory_declaration_is_named(declared: Any, problem: str) -> None:
    if isinstance(declared, FilterDependsOn):
        found = problems(filter_nodes=passing, filter_depends_on=declared)
        assert found == [f"filter_depends_on: {problem}"]
    else:
        found = problems(score_nodes=rating, score_depends_on=declared)
        assert found == [f"score_depends_on: {problem}"]


@pytest.mark.parametrize(
    ("attributes", "problem"),
    [
        (
            {"filter": nothing, "filter_depends_on": FilterDependsOn()},
            "filter_depends_on has no effect without filter_nodes",
        ),
        (
            {"filter": nothing, "score_depends_on": ScoreDependsOn(Scope.NODE)},
            "score_depends_on has no effect without score_nodes",
        ),
        ({"normalize": nothing}, "normalize has no effect without score or score_nodes"),
        ({"reserve": nothing}, "reserve needs an unreserve that undoes it"),
        ({"unreserve": nothing}, "unreserve has no effect without reserve"),
        ({"add_pod": nothing}, "add_pod has no effect without pre_filter"),
        ({"rank": nothing}, "rank has no effect without sort_key"),
        ({"pre_bind_pre_flight": nothing}, "pre_bind_pre_flight has no effect without pre_bind"),
        (
            {"filter_nodes": passing, "filter_depends_on": ScoreDependsOn()},
            "filter_depends_on must be a FilterDependsOn, got "
            "ScoreDependsOn(scope=<Scope.POD: 'pod'>, ",
        ),
        ({"permit": nothing, "permit_concurrency": 0}, "permit_concurrency must be a positive"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_has_no_effect_is_named(attributes: dict[str, Any], problem: str) -> None:
    (found,) = problems(**attributes)
    assert found.startswith(problem)
