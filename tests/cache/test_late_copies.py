"""A copy of a node's pods is what it was when it was made, whatever changes and whoever reads."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ksched.cache import late_copies
from ksched.cache.cache import SchedulerCache
from ksched.cache.late_copies import PodsByUid
from ksched.cache.pod_info import PodInfo
from ksched.testing import make_node, make_pod

CACHE = SchedulerCache(lambda: 0.0)


def pod(number: int) -> PodInfo:
    return CACHE.pod_info(make_pod(f"p{number}").obj())


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_copies_are_what_dictionaries_would_be(seed: int) -> None:
    rng = random.Random(seed)
    originals = [(PodsByUid(), dict[str, PodInfo]())]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(late_copies, "PODS_COPIED_AT_ONCE", rng.choice((0, 2, 5)))
        for _ in range(rng.randrange(80)):
            late, wanted = rng.choice(originals)
            kind = rng.random()
            if kind < 0.5:
                added = pod(rng.randrange(12))
                late.put(added)
                wanted[added.uid] = added
            elif kind < 0.7 and wanted:
                uid = rng.choice(list(wanted))
                assert late.pop(uid) is wanted.pop(uid)
            elif kind < 0.9:
                originals.append((late.copy(), wanted.copy()))
            else:
                assert late.pods == wanted
        for late, wanted in originals:
            assert late.count == len(wanted)
            # The order decides between equally important victims.
            assert [*late.pods.items()] == [*wanted.items()]


class Counted(dict[str, PodInfo]):
    copies = 0

    def copy(self) -> Counted:
        Counted.copies += 1
        return Counted(self)


def test_publishing_a_node_of_many_pods_copies_few_of_them() -> None:
    cache = SchedulerCache(lambda: 0.0)
    cache.add_node(make_node("n").obj())
    for number in range(1000):
        cache.add_pod(cache.pod_info(make_pod(f"p{number}").node("n").obj()))
    info = cache.get_node("n")
    assert info is not None
    info._pods._pods = Counted(info.pods)
    Counted.copies = 0
    for number in range(400):
        cache.remove_pod(f"uid:default/p{number}")
        snapshot = cache.update_snapshot()
        assert snapshot.table.pod_count[0] == 999 - number
    assert Counted.copies <= 2
    published = snapshot.get("n")
    assert published is not None
    assert [*published.pods] == [f"uid:default/p{number}" for number in range(400, 1000)]
