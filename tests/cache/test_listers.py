"""Listers: what changed, who is told, what is shared."""

from __future__ import annotations

from ksched.api.objects import Namespace, ObjectMeta
from ksched.cache.listers import Lister, Listers


def _namespace(name: str) -> Namespace:
    return Namespace(metadata=ObjectMeta(name=name))


def test_a_reader_learns_which_keys_changed_since_it_looked() -> None:
    lister: Lister[Namespace] = Lister()
    lister.put(_namespace("a"))
    cursor = lister.cursor()
    assert cursor.changes() is None
    cursor.advance()
    lister.put(_namespace("b"))
    lister.remove(_namespace("a"))
    assert cursor.changes() == ["b", "a"]


def test_a_reader_that_comes_too_late_is_told_so() -> None:
    lister: Lister[Namespace] = Lister()
    cursor = lister.cursor()
    cursor.go_to_end()
    for number in range(10_000):
        lister.put(_namespace(str(number % 7)))
    assert lister.generation == 10_000
    assert cursor.changes() is None
    assert len(lister) == 7


def test_listeners_are_told_of_their_keys_while_they_listen() -> None:
    lister: Lister[Namespace] = Lister()
    told: list[str] = []
    with lister.notifying(["a", "b"], lambda: told.append("x")):
        lister.put(_namespace("a"))
        lister.put(_namespace("c"))
        lister.remove(_namespace("b"))
    lister.put(_namespace("a"))
    assert told == ["x", "x"]


def test_followers_are_told_of_everything_there_was_and_will_be() -> None:
    lister: Lister[Namespace] = Lister()
    lister.put(_namespace("a"))
    told: list[str] = []
    lister.follow(told.append)
    lister.put(_namespace("b"))
    lister.remove(_namespace("a"))
    assert told == ["a", "b", "a"]


def test_everybody_gets_the_same_view() -> None:
    class View:
        def __init__(self, listers: Listers) -> None:
            self.namespaces = listers.require(Namespace)

    listers = Listers()
    assert listers.view(View) is listers.view(View)
    assert {kind.struct for kind in listers.required()} == {Namespace}
