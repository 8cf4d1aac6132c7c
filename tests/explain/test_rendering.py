"""Explanations as text. Covers ``ksched.explain.text_tables`` too."""

from __future__ import annotations

from ksched.explain.explanation import Change, Explanation, NodeVerdict, Preemption, Rejection
from ksched.explain.rendering import render

CPU = Rejection("NodeResourcesFit", ["Insufficient cpu"])
TAINT = Rejection("TaintToleration", ["node(s) had untolerated taint(s)"])


def explanation(nodes, **fields):
    known = {
        "pod": "default/web",
        "node": "",
        "profile": "default-scheduler",
        "priority": 0,
        "nominated_node": "",
        "gates": [],
        "notes": [],
        "message": "",
        "num_all_nodes": len(nodes),
        "nodes": nodes,
    }
    return Explanation(**{**known, **fields})


def scored(node, fit, spread):
    scores = {"NodeResourcesFit": fit, "PodTopologySpread": spread}
    return NodeVerdict(node, scores=scores)


def test_nodes_that_fail_alike_are_one_line():
    nodes = [NodeVerdict(f"n{number}", [CPU]) for number in range(4)]
    nodes.append(NodeVerdict("n4", [TAINT, CPU]))
    preemption = Preemption("n1", ["default/a", "default/b"])
    text = render(explanation(nodes, message="0/5 nodes …", preemption=preemption))
    assert text.splitlines() == [
        "pod default/web (priority 0, default-scheduler): fits on none of 5 nodes",
        "",
        "0/5 nodes …",
        "",
        "NODES  PLUGIN            REASON                            EXAMPLES",
        "    4  NodeResourcesFit  Insufficient cpu                  n0, n1, n2, …",
        "    1  TaintToleration   node(s) had untolerated taint(s)  n4",
        " also  NodeResourcesFit  Insufficient cpu",
        "",
        "Preemption would evict default/a, default/b from n1 and nominate the pod to it.",
        "",
        "No change of the pod or of one node and no evictions there would make it fit.",
    ]


def test_changes_are_a_table():
    changes = [
        Change("node", ["n1", "n2", "n3", "n4"], ["uncordon it", "1 more cpu"], True),
        Change("eviction", ["n1"], ["evict default/a", "evict default/b"], False),
    ]
    text = render(explanation([NodeVerdict("n1", [CPU])], changes=changes))
    assert text.splitlines()[-4:] == [
        "Each of these would make it fit:",
        "CHANGE    ON             WHAT",
        "node      n1, n2, n3, …  uncordon it; 1 more cpu",
        "eviction  n1             evict default/a, default/b (fewer may do)",
    ]


def test_a_placed_pod_says_by_which_plugins_its_node_won():
    nodes = [scored("n1", 50, 100), scored("n2", 80, 40), NodeVerdict("n3", [CPU])]
    text = render(explanation(nodes, node="n1"))
    assert text.splitlines() == [
        "pod default/web (priority 0, default-scheduler): on n1",
        "n1 scores best: 30 more than n2 (PodTopologySpread +60, NodeResourcesFit -30)",
        "",
        "   NODE  TOTAL  NodeResourcesFit  PodTopologySpread",
        "*  n1      150                50                100",
        "   n2      120                80                 40",
        "",
        "NODES  PLUGIN            REASON            EXAMPLES",
        "    1  NodeResourcesFit  Insufficient cpu  n3",
    ]


def test_a_placed_pod_that_would_go_elsewhere_now():
    text = render(explanation([scored("n1", 50, 0), scored("n2", 80, 0)], node="n1"))
    assert "n2 would be chosen now, it scores 30 more (NodeResourcesFit +30)" in text


def test_a_tie_and_a_rejected_and_a_missing_node():
    tied = [scored("n1", 50, 0), scored("n2", 50, 0)]
    assert "n1 scores best with 50, like 1 other node; one of them" in render(
        explanation(tied, node="n1")
    )
    rejected = [NodeVerdict("n1", [CPU]), scored("n2", 1, 1)]
    assert "not be placed on n1 now: NodeResourcesFit rejects" in render(
        explanation(rejected, node="n1")
    )
    assert "node gone does not exist any more" in render(explanation(tied, node="gone"))


def test_only_the_best_are_shown_unless_wide_or_one_is_asked_for():
    nodes = [scored(f"n{number}", number, 1) for number in range(9)]
    text = render(explanation(nodes))
    assert "fits on 9 of 9 nodes; n8 scores best" in text
    assert "(4 nodes more that fit: -o wide)" in text
    assert "n3 " not in text
    assert "n3 " in render(explanation(nodes), wide=True)
    one = render(explanation(nodes), node="n3")
    assert "n3 " in one
    assert "n4 " not in one


def test_gates_nomination_and_notes_are_lines_of_their_own():
    text = render(
        explanation([scored("n1", 1, 1)], gates=["G: wait"], nominated_node="n1", notes=["x"])
    )
    assert text.splitlines()[1:4] == ["gated by G: wait", "nominated to n1", "note: x"]
