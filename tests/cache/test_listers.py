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


def test_a_follower_may_end_while_others_are_told() -> None:
    lister: Lister[Namespace] = Lister()
    told: list[str] = []

    def first(key: str) -> None:
        told.append(f"first {key}")
        end()

    end = lister.follow(first)
    lister.follow(lambda key: told.append(f"second {key}"))
    lister.put(_namespace("a"))
    lister.put(_namespace("b"))
    assert told == ["first a", "second a", "second b"]


def test_followers_end_with_their_owner() -> None:
    listers = Listers()
    lister = listers.require(Namespace)
    told: list[str] = []

    class Shared:
        def __init__(self, listers: Listers) -> None:
            listers.require(Namespace).follow(lambda key: told.append(f"shared {key}"))

    def build(name: str) -> object:
        owner = type(name, (), {})()
        with listers.collecting() as ends:
            lister.follow(lambda key: told.append(f"{name} {key}"))
            listers.view(Shared)
        listers.own(owner, ends)
        return owner

    old, new = build("old"), build("new")
    listers.end_others([old, new])
    lister.put(_namespace("a"))
    assert told == ["old a", "shared a", "new a"]
    del told[:]
    listers.end_others([new])
    lister.put(_namespace("b"))
    assert told == ["shared b", "new b"]
