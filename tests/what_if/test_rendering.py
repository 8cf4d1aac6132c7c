"""Predictions as text and as a page. Covers ``ksched.what_if.amounts`` too."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from ksched.what_if.amounts import amount, percent
from ksched.what_if.prediction import (
    Capacity,
    Cause,
    Departure,
    Eviction,
    Fate,
    Headroom,
    NodeUse,
    Prediction,
    Shortage,
    Staying,
)
from ksched.what_if.rendering import render
from ksched.what_if.web_page import page

GIB = 2**30
WEB, DB = "shop/deployment/web", "shop/statefulset/db"
NO_CPU = "0/3 nodes are available: 3 Insufficient cpu."


def fate(pod, workload, after="", **fields):
    return Fate(f"shop/{pod}", workload, fields.pop("cause", Cause.DRAINED), after=after, **fields)


def amounts(part):
    return {"cpu": part * 1000, "memory": part * GIB, "pods": part}


def use(node, before, after, **fields):
    known = {"is_schedulable": True, "pods_in": 0, "pods_out": 0}
    return NodeUse(
        node=node,
        allocatable={"cpu": 4000, "memory": 8 * GIB, "pods": 110},
        before=None if before is None else amounts(before),
        after=amounts(after),
        **known | fields,
    )


PREDICTION = Prediction(
    changes=["drain n1"],
    notes=["extender http://e is not called"],
    num_nodes=3,
    num_pods=12,
    fates=[
        fate("web-x", WEB, "n2", replaces="shop/web-1", before="n1"),
        fate("web-y", WEB, "n2", replaces="shop/web-2", before="n1"),
        fate("web-z", WEB, "n3", cause=Cause.PENDING),
        fate("db-0", DB, message=NO_CPU, replaces="shop/db-0", before="n1"),
        fate("job-1", "shop/job/job", message="schedulerName is x", is_undecided=True, before="n1"),
    ],
    evictions=[Eviction("shop/batch", "n2", "shop/web-x")],
    departures=[Departure("shop/<bare>", "n1", "no controller")],
    staying=[Staying("shop/agent", "n1", "DaemonSet agent"), Staying("shop/m", "n1", "mirror pod")],
    nodes=[
        use("n1", 4, 0, is_schedulable=False),
        use("n2", 1, 3),
        use("n3", None, 1),
        use("n4", 1, 1),
    ],
    headroom=[Headroom("cpu", 12000, 8000, 6500, 2250, 3000, 1000)],
)


def test_the_whole_text():
    assert render(PREDICTION).splitlines() == [
        "what if: drain n1",
        "3 nodes, 12 pods; 5 pods to place, 3 get a node, 1 stays pending, 1 cannot be predicted, "
        "1 pod preempted, 1 pod gone for good",
        "",
        "note: extender http://e is not called",
        "",
        "Pods that get a node:",
        "WORKLOAD             PODS  FROM            TO",
        "shop/deployment/web  3     n1 x2, pending  n2 x2, n3",
        "",
        "Pods that stay pending:",
        f"  {NO_CPU}",
        "     1  shop/statefulset/db  (n1)",
        "",
        "Pods that cannot be predicted:",
        "  schedulerName is x",
        "     1  shop/job/job  (n1)",
        "",
        "Pods that are preempted:",
        "POD         NODE  FOR",
        "shop/batch  n2    shop/web-x",
        "",
        "Pods that end and are not made again:",
        "POD          NODE  WHY",
        "shop/<bare>  n1    no controller",
        "",
        "Left on the drained nodes: 1 of DaemonSets, 1 mirror pod.",
        "",
        "Nodes before and after (requested: █ before and after  ▒ added  ░ freed  · free):",
        "NODE  CPU                               MEMORY                            PODS",
        "n1    ░░░░░░░░░░░░░░░░░░░░ 100% →   0%  ░░░░░░░░░░··········  50% →   0%  4 → 0  "
        "takes no pods",
        "n2    █████▒▒▒▒▒▒▒▒▒▒·····  25% →  75%  ██▒▒▒▒▒▒············  13% →  38%  1 → 3",
        "n3    ▒▒▒▒▒···············   0% →  25%  ▒▒··················   0% →  13%  0 → 1  new",
        "(1 node without a change: -o wide)",
        "",
        "Headroom of the nodes that take pods:",
        "RESOURCE  ALLOCATABLE  FREE        MOST FREE ON ONE NODE",
        "cpu       12 → 8       6.5 → 2.25  3 → 1",
    ]


def test_wide_has_every_pod_and_every_node():
    text = render(PREDICTION, wide=True)
    assert "shop/web-1  n1       n2  shop/web-x" in text
    assert "n4    █████" in text


def test_capacity_names_what_runs_out():
    capacity = Capacity(
        pod="shop/one",
        fits=7,
        is_complete=True,
        by_node={"n2": 3, "n3": 4},
        runs_out=[Shortage("Insufficient cpu", ["n2", "n3"])],
        never=[Shortage("node(s) were unschedulable", ["n1"])],
        message=NO_CPU,
    )
    text = render(Prediction([], [], 3, 12, [], [], [], [], [], [], capacity))
    assert text.splitlines() == [
        "what if: nothing is changed",
        "3 nodes, 12 pods; 0 pods to place",
        "",
        "Capacity: 7 more of pod shop/one fit on 2 nodes; "
        "what runs out first: Insufficient cpu (2 nodes)",
        "",
        "NODES    REASON                      EXAMPLES",
        "2        Insufficient cpu            n2, n3",
        "1 never  node(s) were unschedulable  n1",
        "",
        f"The next one: {NO_CPU}",
    ]


class Outline(HTMLParser):
    """Tags that do not match, addresses, and the text that a screen reader reads."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag != "meta":
            self.open.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_the_page_is_complete_and_loads_nothing():
    text = page(PREDICTION)
    outline = Outline()
    outline.feed(text)
    assert (outline.open, outline.addresses) == ([], [])
    assert not {"script", "link", "img", "iframe"} & set(outline.tags)
    assert "url(" not in text
    assert "@import" not in text
    assert "prefers-color-scheme: dark" in text
    said = " ".join(outline.texts)
    assert "100 % → 0 % of 4" in said, "the numbers of a bar are text"
    assert "shop/<bare>" in said
    assert outline.tags.count("caption") == outline.tags.count("table")
    assert '<html lang="en">' in text


@pytest.mark.parametrize(
    ("resource", "number", "text"),
    [
        ("cpu", 1500, "1.5"),
        ("cpu", 250, "0.25"),
        ("cpu", 64000, "64"),
        ("memory", 0, "0"),
        ("memory", 1536 * 2**20, "1.5Gi"),
        ("hugepages-2Mi", 2**21, "2Mi"),
        ("example.com/gpu", 4096, "4096"),
    ],
)
def test_amounts(resource, number, text):
    assert amount(resource, number) == text


def test_what_is_not_empty_does_not_look_empty():
    assert [percent(part, 1000) for part in (0, 1, 10, 1000)] == [0, 1, 1, 100]
    assert percent(1, 0) == 0
