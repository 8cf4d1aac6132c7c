"""Changes as they are written on the command line."""

from __future__ import annotations

import pytest

from ksched.errors import ConfigError
from ksched.what_if.changes import AddNodes, Changes, RemoveTaint, Scale, parse_scale, parse_taint


@pytest.mark.parametrize(
    ("text", "scale"),
    [
        pytest.param("deployment/web=500", Scale("deployment", "shop", "web", 500), id="whole"),
        pytest.param("deploy/web=0", Scale("deployment", "shop", "web", 0), id="short"),
        pytest.param("statefulsets/db=3", Scale("statefulset", "shop", "db", 3), id="plural"),
        pytest.param("rs/web-1=3", Scale("replicaset", "shop", "web-1", 3), id="replica set"),
    ],
)
def test_a_workload_and_its_replicas(text, scale):
    assert parse_scale(text, "shop") == scale


@pytest.mark.parametrize("text", ["web=3", "deployment/web", "deployment/web=-1", "job/web=1", ""])
def test_a_scale_that_is_none(text):
    with pytest.raises(ConfigError, match=r"--scale: got .*wanted deployment/NAME=REPLICAS"):
        parse_scale(text, "shop")


@pytest.mark.parametrize(
    ("words", "taint"),
    [
        pytest.param(["team"], RemoveTaint("team"), id="key"),
        pytest.param(["team:NoExecute"], RemoveTaint("team", None, "NoExecute"), id="effect"),
        pytest.param(["a.b/c=red", "n1"], RemoveTaint("a.b/c", "red", "", ("n1",)), id="value"),
        pytest.param(["team=:NoSchedule-"], RemoveTaint("team", "", "NoSchedule"), id="kubectl's"),
    ],
)
def test_a_taint_and_its_nodes(words, taint):
    assert parse_taint(words) == taint


@pytest.mark.parametrize("text", ["team:Never", ":NoSchedule", "=x", ""])
def test_a_taint_that_is_none(text):
    with pytest.raises(ConfigError, match=r"--remove-taint: got .*wanted KEY"):
        parse_taint([text])


def test_changes_in_words_and_in_order():
    changes = Changes(
        add_nodes=AddNodes(1, "n1"),
        remove_taints=(RemoveTaint("team", "red", "NoSchedule", ("n1", "n2")), RemoveTaint("x")),
        drain=("n3", "n4"),
        scale=(Scale("deployment", "shop", "web", 5),),
    )
    assert changes.sentences() == [
        "add 1 node like n1",
        "remove taint team=red:NoSchedule from n1, n2",
        "remove taint x from every node",
        "drain n3, n4",
        "scale deployment/web in shop to 5",
    ]
    assert Changes().sentences() == []
