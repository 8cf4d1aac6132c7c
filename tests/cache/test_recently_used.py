"""What is cached, for how long, and what makes room."""

from __future__ import annotations

from ksched.cache.recently_used import RecentlyUsed


def test_the_value_unused_for_longest_makes_room() -> None:
    cached: RecentlyUsed[str, int] = RecentlyUsed()
    cached.put("a", 1, 2)
    cached.put("b", 2, 2)
    assert cached.get("a") == 1
    cached.put("c", 3, 2)
    assert dict(cached.items()) == {"a": 1, "c": 3}


def test_a_sweep_drops_what_was_not_used_since_the_last_one() -> None:
    cached: RecentlyUsed[str, int] = RecentlyUsed()
    for key in "abc":
        cached.put(key, 1, 9)
    cached.sweep()
    assert len(cached) == 3
    cached.get("a")
    cached.put("b", 2, 9)
    cached.sweep()
    assert dict(cached.items()) == {"b": 2, "a": 1}.copy()
    assert "c" not in cached


def test_zero_is_a_value_and_can_be_used() -> None:
    cached: RecentlyUsed[str, int] = RecentlyUsed()
    cached.put("a", 0, 2)
    cached.put("b", 0, 2)
    assert cached.get("a") == 0
    cached.put("c", 0, 2)
    assert "a" in cached


def test_a_copy_goes_its_own_way() -> None:
    cached: RecentlyUsed[str, int] = RecentlyUsed()
    cached.put("a", 1, 2)
    copied = cached.copy()
    copied.put("b", 2, 2)
    copied.pop("a")
    assert dict(cached.items()) == {"a": 1}
    assert dict(copied.items()) == {"b": 2}


def test_what_was_used_since_the_cache_was_half_full_outlives_what_was_not() -> None:
    cached: RecentlyUsed[str, int] = RecentlyUsed()
    for key in "abcd":
        cached.put(key, 1, 8)
    for key in "ab":
        cached.get(key)
    for key in "efgh":
        cached.put(key, 1, 8)
    for key in "ij":
        cached.put(key, 1, 8)
    assert {*dict(cached.items())} == {*"abefghij"}
    cached.get("a")
    cached.put("k", 1, 8)
    assert {*dict(cached.items())} == {*"aefghijk"}


def test_a_copy_keeps_the_order_of_use() -> None:
    cached: RecentlyUsed[str, int] = RecentlyUsed()
    cached.put("a", 1, 2)
    cached.put("b", 2, 2)
    copied = cached.copy()
    copied.get("a")
    copied.put("c", 3, 2)
    assert dict(copied.items()) == {"a": 1, "c": 3}
