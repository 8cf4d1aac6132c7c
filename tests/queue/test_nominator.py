from __future__ import annotations

import pytest

from ksched.cache.pod_info import PodInfo, TemplateRegistry
from ksched.cache.resource_axis import ResourceAxis
from ksched.queue.nominator import Nominator
from ksched.testing.builders import PodBuilder, make_pod

TEMPLATES = TemplateRegistry(ResourceAxis())


def info(builder: PodBuilder) -> PodInfo:
    return TEMPLATES.pod_info(builder.obj())


POD = make_pod("web-0")


@pytest.mark.parametrize(
    ("pod", "node_name", "expected"),
    [
        pytest.param(POD, None, None, id="no nomination anywhere"),
        pytest.param(POD.nominated("n1"), None, "n1", id="the status counts"),
        pytest.param(POD.nominated("n1"), "n2", "n2", id="a given name wins"),
        pytest.param(POD.nominated("n1"), "", None, id="an empty name clears"),
        pytest.param(POD.node("n9"), "n1", None, id="a bound pod is not nominated"),
    ],
)
def test_add(pod: PodBuilder, node_name: str | None, expected: str | None) -> None:
    nominator = Nominator()
    nominator.add(info(POD), "old")
    nominator.add(info(pod), node_name)
    assert nominator.node_of(info(pod).uid) == expected
    assert nominator.nominated_pods_for_node("old") == []
    assert len(nominator) == (expected is not None)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(POD, POD.label(a="b"), "memory", id="the API server has not heard of it"),
        pytest.param(POD, POD.nominated("n1"), "n1", id="added by somebody"),
        pytest.param(POD.nominated("n1"), POD.nominated("n2"), "n2", id="changed by somebody"),
        pytest.param(POD.nominated("n1"), POD, None, id="removed by somebody"),
    ],
)
def test_update(old: PodBuilder, new: PodBuilder, expected: str | None) -> None:
    nominator = Nominator()
    nominator.add(info(old), "memory")
    newer = info(new)
    nominator.update(info(old), newer)
    assert nominator.node_of(newer.uid) == expected
    if expected:
        assert nominator.nominated_pods_for_node(expected) == [newer]


def test_pods_of_one_node_are_listed_in_the_order_they_came() -> None:
    nominator = Nominator()
    for name in "bac":
        nominator.add(info(make_pod(name)), "n1")
    nominator.delete(info(make_pod("a")).uid)
    nominator.delete(info(make_pod("a")).uid)
    assert [pod.name for pod in nominator.nominated_pods_for_node("n1")] == ["b", "c"]
    assert nominator.nominated_pods_for_node("n2") == []
