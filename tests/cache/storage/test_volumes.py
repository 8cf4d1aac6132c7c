"""Promises over volumes and claims, and the groups that available volumes stand on."""

from __future__ import annotations

from random import Random

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ksched.api.storage import PersistentVolume, PersistentVolumeClaim
from ksched.cache.listers import Listers
from ksched.cache.storage.volume_index import LabelGroup, facts_of
from ksched.cache.storage.volumes import NotAssumed, Volumes
from ksched.testing.builders import make_node
from ksched.testing.plugin_runner import PluginBench
from ksched.testing.storage_builders import VolumeBuilder, make_claim, make_volume

CLAIM = make_claim("data").resource_version("5").obj()


def _with_version(obj: PersistentVolumeClaim, version: str) -> PersistentVolumeClaim:
    meta = msgspec.structs.replace(obj.metadata, resource_version=version)
    return msgspec.structs.replace(obj, metadata=meta)


def _promised(obj: PersistentVolumeClaim) -> PersistentVolumeClaim:
    meta = msgspec.structs.replace(obj.metadata, annotations={"node": "n1"})
    return msgspec.structs.replace(obj, metadata=meta)


def test_a_promise_covers_the_version_it_was_made_for() -> None:
    listers = Listers()
    claims, lister = listers.view(Volumes).claims, listers.require(PersistentVolumeClaim)
    lister.put(CLAIM)
    promise = _promised(CLAIM)
    claims.assume(promise)
    assert claims.get("data", "default") is promise
    lister.put(CLAIM)
    assert claims.get("data", "default") is promise, "the same version again says nothing new"

    newer = _with_version(CLAIM, "6")
    lister.put(newer)
    assert claims.get("data", "default") is newer
    lister.put(CLAIM)
    assert claims.get("data", "default") is CLAIM, "what was overtaken does not come back"


def test_a_promise_goes_with_its_object() -> None:
    listers = Listers()
    claims, lister = listers.view(Volumes).claims, listers.require(PersistentVolumeClaim)
    lister.put(CLAIM)
    claims.assume(_promised(CLAIM))
    lister.remove(CLAIM)
    assert claims.get("data", "default") is None
    lister.put(CLAIM)
    assert claims.get("data", "default") is CLAIM


def test_only_the_promise_in_force_can_be_taken_back() -> None:
    listers = Listers()
    claims = listers.view(Volumes).claims
    listers.require(PersistentVolumeClaim).put(CLAIM)
    first, second = _promised(CLAIM), _promised(CLAIM)
    claims.assume(first)
    claims.assume(second)
    claims.restore(first)
    assert claims.get("data", "default") is second
    claims.restore(second)
    assert claims.get("data", "default") is CLAIM


def test_promises_of_what_changed_or_is_gone_are_refused() -> None:
    listers = Listers()
    claims = listers.view(Volumes).claims
    with pytest.raises(NotAssumed, match='persistentvolumeclaims "default/data" not found'):
        claims.assume(CLAIM)
    listers.require(PersistentVolumeClaim).put(_with_version(CLAIM, "7"))
    with pytest.raises(NotAssumed, match=r'"default/data" is out of sync \(stored: 7, assume: 5\)'):
        claims.assume(CLAIM)


# -- groups ------------------------------------------------------------------------------------


def _names(volumes: Volumes, class_name: str) -> set[str]:
    """Names of the volumes on the groups of a class."""
    return {
        facts.name
        for group in volumes.of_class(class_name).groups.values()
        for ranked in (
            *group.elsewhere.values(),
            *(ranked for label in group.by_label.values() for _, ranked in label.items()),
        )
        for facts in ranked
    }


@pytest.mark.parametrize(
    ("volume", "is_there"),
    [
        pytest.param(make_volume("v", storage_class="c"), True, id="available"),
        pytest.param(make_volume("v", storage_class="c").on_node("n"), True, id="on a node"),
        pytest.param(make_volume("v", storage_class="c").phase("Released"), False, id="released"),
        pytest.param(make_volume("v", storage_class="other"), False, id="of another class"),
        pytest.param(
            make_volume("v", storage_class="c").reserved_for(make_claim()), False, id="reserved"
        ),
        pytest.param(
            make_volume("v", storage_class="c").merge({"metadata": {"deletionTimestamp": "x"}}),
            False,
            id="being deleted",
        ),
    ],
)
def test_a_shelf_holds_what_a_claim_may_take(volume: VolumeBuilder, is_there: bool) -> None:
    listers = Listers()
    volumes, lister = listers.view(Volumes), listers.require(PersistentVolume)
    lister.put(volume.obj())
    assert (_names(volumes, "c") == {"v"}) is is_there
    lister.put(make_volume("v", storage_class="c").obj())
    assert _names(volumes, "c") == {"v"}
    lister.put(volume.obj())
    assert (_names(volumes, "c") == {"v"}) is is_there
    lister.remove(volume.obj())
    assert _names(volumes, "c") == set()
    assert volumes.facts("v") is None


def test_a_version_changes_with_every_volume_of_the_class_and_no_other() -> None:
    listers = Listers()
    volumes, lister = listers.view(Volumes), listers.require(PersistentVolume)
    before = volumes.of_class("c").generation
    lister.put(make_volume("x", storage_class="other").obj())
    assert volumes.of_class("c").generation == before
    volume = make_volume("v", storage_class="c").obj()
    lister.put(volume)
    after = volumes.of_class("c").generation
    assert after != before
    volumes.volumes.assume(volume)
    assert volumes.of_class("c").generation != after


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_counting_by_label_agrees_with_counting_one_by_one(seed: int) -> None:
    random = Random(seed)
    nodes = [make_node(f"n{number}").obj() for number in range(6)]
    table = PluginBench(nodes).snapshot.table
    group, there = LabelGroup("kubernetes.io/hostname"), set[tuple[str, str, int]]()
    for _ in range(60):
        name, host = f"v{random.randrange(12)}", f"n{random.randrange(9)}"
        known = next((one for one in there if one[0] == name), None)
        if known is not None:
            there.discard(known)
            group.remove(known[1], facts_of(make_volume(name, known[2]).obj()))
        elif random.random() < 0.7:
            size = random.choice((1, 5, 10, 2**62))
            there.add((name, host, size))
            group.add(host, facts_of(make_volume(name, size).obj()))
        nanos = random.choice((0, 1, 5 * 10**9, 5 * 10**9 + 1, 10**10, 2**62 * 10**9, 2**100))
        rows = np.array(sorted(random.sample(range(6), 3)), np.intp)
        got = group.count_at_least(nanos, table.some(rows)).tolist()
        assert got == [
            sum(host == f"n{row}" and size * 10**9 >= nanos for _, host, size in there)
            for row in rows
        ]


def test_values_that_nobody_uses_any_more_are_forgotten() -> None:
    """Names of nodes that came and went must not pile up."""
    group = LabelGroup("kubernetes.io/hostname")
    facts = facts_of(make_volume("v").obj())
    group.add("stays", facts)
    for number in range(5000):
        group.add(f"n{number}", facts)
        group.remove(f"n{number}", facts)
    assert len(list(group.items())) < 1500
    assert group.get("stays") == [facts]
