"""What pods and group objects say, in each dialect.

Covers ``ksched.groups.dialects.annotations``, ``ksched.groups.dialects.in_tree`` and
``ksched.groups.dialects.scheduler_plugins``.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ksched.cache.listers import Listers
from ksched.groups.dialects import in_tree, scheduler_plugins
from ksched.groups.dialects.annotations import Annotations, read_terms
from ksched.groups.group import GroupKey, Terms, TopologyLevel
from ksched.testing import make_pod


def in_tree_group(spec: dict[str, Any], status: dict[str, Any] | None = None) -> Terms:
    data = {"metadata": {"name": "g", "uid": "u"}, "spec": spec, "status": status or {}}
    return in_tree.terms_of(msgspec.convert(data, in_tree.PodGroup))


def plugins_group(spec: dict[str, Any], status: dict[str, Any] | None = None) -> Terms:
    data = {"metadata": {"name": "g", "uid": "u"}, "spec": spec, "status": status or {}}
    return scheduler_plugins.terms_of(msgspec.convert(data, scheduler_plugins.PodGroup), 60.0)


# -- in tree -------------------------------------------------------------------------------------


def test_the_field_of_a_pod_names_its_group() -> None:
    dialect = in_tree.InTree(Listers())
    pod = make_pod("a").merge({"spec": {"schedulingGroup": {"podGroupName": "g"}}}).obj()
    mark = dialect.mark_of(pod)
    assert mark is not None
    assert mark.key == GroupKey("in-tree", "default", "g")
    assert dialect.mark_of(make_pod("b").obj()) is None
    assert dialect.terms_of(mark.key) is None


def test_a_gang_has_a_minimum_and_a_basic_group_none() -> None:
    gang = in_tree_group({"schedulingPolicy": {"gang": {"minCount": 4}}})
    assert (gang.minimum, gang.uid, gang.was_satisfied) == (4, "u", False)
    assert in_tree_group({"schedulingPolicy": {"basic": {}}}).minimum == 1


def test_topology_disruption_and_priority_are_read() -> None:
    terms = in_tree_group(
        {
            "schedulingPolicy": {"gang": {"minCount": 4}},
            "schedulingConstraints": {"topology": [{"key": "rack"}]},
            "disruptionMode": "PodGroup",
            "priority": 7,
        }
    )
    assert terms.topology == (TopologyLevel("rack", is_required=True),)
    assert terms.is_evicted_whole
    assert terms.priority == 7


@pytest.mark.parametrize("condition", ["PodGroupScheduled", "PodGroupInitiallyScheduled"])
def test_a_condition_tells_that_the_group_was_placed(condition: str) -> None:
    status = {"conditions": [{"type": condition, "status": "True"}]}
    assert in_tree_group({"schedulingPolicy": {"gang": {"minCount": 2}}}, status).was_satisfied
    status = {"conditions": [{"type": condition, "status": "False"}]}
    assert not in_tree_group({"schedulingPolicy": {"gang": {"minCount": 2}}}, status).was_satisfied


def test_an_object_is_found_in_whichever_version_is_served() -> None:
    listers = Listers()
    dialect = in_tree.InTree(listers)
    changed: list[GroupKey] = []
    dialect.follow(changed.append)
    key = GroupKey("in-tree", "default", "g")
    for kind, minimum in zip(reversed(in_tree.KINDS), (2, 3, 4), strict=True):
        data = {
            "metadata": {"name": "g", "namespace": "default"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": minimum}}},
        }
        listers.require(kind).put(msgspec.convert(data, in_tree.PodGroup))
        terms = dialect.terms_of(key)
        assert terms is not None
        assert terms.minimum == minimum
    assert changed == [key] * 3


# -- scheduler-plugins ---------------------------------------------------------------------------


def test_a_label_names_the_group() -> None:
    dialect = scheduler_plugins.SchedulerPlugins(Listers(), 60.0)
    mark = dialect.mark_of(make_pod("a").label({scheduler_plugins.LABEL: "g"}).obj())
    assert mark is not None
    assert mark.key == GroupKey("scheduler-plugins", "default", "g")
    assert dialect.mark_of(make_pod("b").obj()) is None


def test_a_timeout_of_zero_is_none() -> None:
    assert plugins_group({"minMember": 3, "scheduleTimeoutSeconds": 0}).timeout_seconds == 60.0
    assert plugins_group({"minMember": 3, "scheduleTimeoutSeconds": 9}).timeout_seconds == 9


def test_min_resources_are_amounts() -> None:
    terms = plugins_group({"minMember": 1, "minResources": {"cpu": "2500m", "memory": "1Gi"}})
    assert terms.min_resources == {"cpu": 2500, "memory": 2**30}
    assert "minResources" in plugins_group({"minResources": {"cpu": "much"}}).problem


@pytest.mark.parametrize(
    ("status", "was_satisfied"),
    [
        ({}, False),
        ({"phase": "Scheduling"}, False),
        ({"phase": "Running"}, True),
        ({"phase": "Finished"}, True),
        ({"phase": "Scheduling", "running": 2, "succeeded": 1}, True),
        ({"phase": "Scheduling", "running": 2}, False),
    ],
)
def test_the_status_tells_that_the_group_was_placed(
    status: dict[str, Any], was_satisfied: bool
) -> None:
    assert plugins_group({"minMember": 3}, status).was_satisfied is was_satisfied


# -- annotations ---------------------------------------------------------------------------------


def test_annotations_describe_a_group() -> None:
    pod = make_pod("a").annotation(
        {
            "ksched.dev/group": "g",
            "ksched.dev/group-min": "3",
            "ksched.dev/group-timeout": "1m30s",
            "ksched.dev/group-topology": "topology.kubernetes.io/zone, rack:preferred",
        }
    )
    mark = Annotations("GangScheduling").mark_of(pod.obj())
    assert mark is not None
    assert mark.key == GroupKey("annotations", "default", "g")
    assert mark.terms is not None
    assert (mark.terms.minimum, mark.terms.timeout_seconds) == (3, 90.0)
    assert mark.terms.topology == (
        TopologyLevel("topology.kubernetes.io/zone", is_required=True),
        TopologyLevel("rack", is_required=False),
    )


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        ((None, None, None), "annotation ksched.dev/group-min: missing"),
        (("0", None, None), "annotation ksched.dev/group-min: got '0'"),
        (("-1", None, None), "annotation ksched.dev/group-min: got '-1'"),
        (("2", "soon", None), "annotation ksched.dev/group-timeout: invalid duration 'soon'"),
        (("2", "-5s", None), "annotation ksched.dev/group-timeout: got '-5s'"),
        (("2", None, "a b"), "annotation ksched.dev/group-topology: got 'a b'"),
    ],
)
def test_annotations_that_cannot_be_read_say_what_was_wanted(
    texts: tuple[str | None, str | None, str | None], problem: str
) -> None:
    assert read_terms(*texts).problem.startswith(problem)
