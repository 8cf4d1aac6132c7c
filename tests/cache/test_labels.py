"""Vocabularies and label columns cost what is in use, not what was ever seen.

Covers ``ksched.cache.recently_used`` too.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from ksched.cache import labels
from ksched.cache.cache import SchedulerCache
from ksched.cache.interning import InternedColumn
from ksched.cache.node_table import NodeTable
from ksched.testing import make_node


class Cluster:
    def __init__(self, nodes: int = 10) -> None:
        self.cache = SchedulerCache(lambda: 0.0)
        for number in range(nodes):
            self.put(number)

    def put(self, number: int, *, taint: str = "", **labels: str) -> None:
        node = make_node(f"n{number}").label(labels)
        self.cache.add_node((node.taint(taint) if taint else node).obj())

    @property
    def table(self) -> NodeTable:
        return self.cache.update_snapshot().table


def test_taint_sets_go_with_the_last_node_that_has_them() -> None:
    cluster = Cluster()
    for number in range(2000):
        cluster.put(3, taint=f"attack-{number}")
        assert cluster.table.all().taints.test(bool).tolist() == [row == 3 for row in range(10)]
    cluster.put(3)

    assert len(cluster.table.all().taints.values) <= 64
    assert not cluster.table.all().taints.test(bool).any()


def test_a_removed_node_gives_back_its_taints() -> None:
    cluster = Cluster(nodes=1)
    for number in range(1, 500):
        cluster.put(number, taint=f"t-{number}")
        cluster.cache.update_snapshot()
        cluster.cache.remove_node(f"n{number}")
        cluster.cache.update_snapshot()

    assert len(cluster.table.all().taints.values) <= 64 + 2


def test_a_key_that_no_node_has_gets_no_column() -> None:
    cluster = Cluster()
    for number in range(500):
        column = cluster.table.all().label(f"attack-{number}")
        assert column.values == [None]
        assert not column.ids.any()

    assert len(cluster.table.labels) == 0


def test_a_column_goes_with_the_last_node_that_has_its_key() -> None:
    cluster = Cluster()
    cluster.put(3, disk="ssd")
    cluster.put(4, disk="hdd")
    assert cluster.table.all().label("disk").test(bool).sum() == 2
    cluster.put(3)
    assert cluster.table.all().label("disk").test(bool).sum() == 1
    assert len(cluster.table.labels) == 1
    cluster.cache.remove_node("n4")
    assert cluster.table.all().label("disk").values == [None]
    assert len(cluster.table.labels) == 0


def test_columns_unused_for_longest_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "LABELS_BYTES", 0)
    cluster = Cluster()
    cluster.put(3, **{f"k{number}": "v" for number in range(100)})
    for number in range(100):
        assert cluster.table.all().label(f"k{number}").test(bool).tolist().index(True) == 3

    assert len(cluster.table.labels) == 64


def test_a_node_update_writes_no_label_column_until_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster()
    cluster.put(3, a="1", b="1")
    for key in ("a", "b"):
        cluster.table.all().label(key)
    written: list[int] = []
    write = labels.LabelColumn.write

    def noted(column: labels.LabelColumn, row: int, value: str | None) -> None:
        written.append(row)
        write(column, row, value)

    monkeypatch.setattr(labels.LabelColumn, "write", noted)
    cluster.put(3, a="2", b="2")
    cluster.cache.update_snapshot()
    assert written == []
    cluster.table.all().label("a")
    assert written == [3]


def test_columns_tell_what_the_nodes_say_whatever_happens() -> None:
    rng = random.Random(5)
    cluster = Cluster()
    for _ in range(3000):
        number = rng.randrange(20)
        if rng.random() < 0.2:
            cluster.cache.remove_node(f"n{number}")
        else:
            given = {key: f"v{rng.randrange(60)}" for key in ("a", "b") if rng.random() < 0.6}
            cluster.put(number, taint=rng.choice(("", "x", f"y{rng.random()}")), **given)
        if rng.random() < 0.3:
            table = cluster.table
            for key in ("a", "b"):
                column = table.all().label(key)
                read = [column.values[i] for i in column.ids.tolist()]
                assert read == [info.labels.get(key) for info in table.infos]
            taints = table.all().taints
            read_taints = [taints.values[i] for i in taints.ids.tolist()]
            assert read_taints == [
                tuple(info.node.spec.taints) for info in table.infos if info.node
            ]


def test_numbers_that_were_read_keep_their_meaning_when_the_column_is_renumbered() -> None:
    column: InternedColumn[str | None] = InternedColumn(None, 4)
    column.write(1, "first")
    ids, vocabulary = column.ids, column.vocabulary
    for number in range(200):
        column.write(2, f"v{number}")
    column.write(0, "first")

    assert vocabulary is not column.vocabulary
    assert vocabulary.values[int(ids[1])] == "first"
    values = column.vocabulary.values
    assert [values[i] for i in column.ids.tolist()] == ["first", "first", "v199", None]
    taken = column.taken(np.array([1, 3]))
    assert [values[i] for i in taken.ids.tolist()] == ["first", None]
