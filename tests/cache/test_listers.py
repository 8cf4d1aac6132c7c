"""Listings: what changed, who is told, what is shared."""

from __future__ import annotations

from ksched.api.objects import Namespace, ObjectMeta
from ksched.cache.listers import LOG_LIMIT, Listing, Listings


def _namespace(name: str) -> Namespace:
    return Namespace(metadata=ObjectMeta(name=name))


def test_a_reader_learns_which_keys_changed_since_it_looked() -> None:
    listing: Listing[Namespace] = Listing()
    listing.put(_namespace("a"))
    seen = listing.generation
    assert listing.since(seen) == []
    listing.put(_namespace("b"))
    listing.remove(_namespace("a"))
    assert listing.since(seen) == ["b", "a"]
    assert listing.since(0) == ["a", "b", "a"]


def test_a_reader_that_comes_too_late_is_told_so() -> None:
    listing: Listing[Namespace] = Listing()
    for number in range(3 * LOG_LIMIT):
        listing.put(_namespace(str(number % 7)))
    assert listing.generation == 3 * LOG_LIMIT
    assert listing.since(0) is None
    assert listing.since(listing.generation - LOG_LIMIT) is not None
    assert len(listing) == 7


def test_listeners_are_told_of_their_keys_while_they_listen() -> None:
    listing: Listing[Namespace] = Listing()
    told: list[str] = []
    with listing.telling(["a", "b"], lambda: told.append("x")):
        listing.put(_namespace("a"))
        listing.put(_namespace("c"))
        listing.remove(_namespace("b"))
    listing.put(_namespace("a"))
    assert told == ["x", "x"]


def test_followers_are_told_of_everything_there_was_and_will_be() -> None:
    listing: Listing[Namespace] = Listing()
    listing.put(_namespace("a"))
    told: list[str] = []
    listing.follow(told.append)
    listing.put(_namespace("b"))
    listing.remove(_namespace("a"))
    assert told == ["a", "b", "a"]


def test_everybody_gets_the_same_view() -> None:
    class View:
        def __init__(self, listings: Listings) -> None:
            self.namespaces = listings.want(Namespace)

    listings = Listings()
    assert listings.view(View) is listings.view(View)
    assert listings.wanted().keys() == {Namespace}
