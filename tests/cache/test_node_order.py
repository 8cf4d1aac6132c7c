from __future__ import annotations

from ksched.cache.node_order import NodeTree, zone_of

BETA = "failure-domain.beta.kubernetes.io/zone"
ZONE = "topology.kubernetes.io/zone"


def test_zones_take_turns() -> None:
    tree = NodeTree()
    for name, zone in [
        ("a1", "a"),
        ("a2", "a"),
        ("a3", "a"),
        ("b1", "b"),
        ("c1", "c"),
        ("c2", "c"),
    ]:
        tree.put(name, {ZONE: zone})
    assert tree.interleaved() == ["a1", "b1", "c1", "a2", "c2", "a3"]


def test_a_node_that_changes_zone_goes_to_the_end_of_the_new_one() -> None:
    tree = NodeTree()
    for name, zone in [("a1", "a"), ("b1", "b"), ("b2", "b")]:
        tree.put(name, {ZONE: zone})
    tree.put("a1", {ZONE: "b"})
    assert tree.interleaved() == ["b1", "b2", "a1"]


def test_the_old_label_wins_over_the_new_one() -> None:
    assert zone_of({BETA: "old", ZONE: "new"}) == zone_of({BETA: "old"})


def test_nodes_without_labels_share_a_zone() -> None:
    assert zone_of({}) == ""
