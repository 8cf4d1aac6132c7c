"""The store remembers the recent past exactly."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ksched.apiserver.object_store import Store, object_key
from ksched.apiserver.served_resources import NODES, PODS
from ksched.apiserver.status_errors import StatusError

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "delete"]),
        st.sampled_from(["a", "a-b", "b"]),
        st.sampled_from(["x", "y", "z"]),
    ),
    max_size=40,
)


def take(store, namespace=""):
    return [(e.key, e.version) for e in store.collection(PODS).iterate("", namespace)]


def perform(store, step, number):
    action, namespace, name = step
    entries = store.collection(PODS).entries
    existing = entries.get(object_key(namespace, name))
    labels = {"step": str(number)}
    if action == "put":
        obj = {"metadata": {"name": name, "namespace": namespace, "labels": labels}}
        if existing is None:
            store.create(PODS, obj)
        else:
            store.replace(PODS, existing, obj)
    elif existing is not None:
        store.delete(PODS, existing)


@given(STEPS, st.sampled_from(["", "a", "a-b", "none"]), st.sampled_from(["", "a/y", "b"]))
def test_any_remembered_version_can_be_listed(steps, namespace, start):
    store, snapshots = Store(), {}
    snapshots[store.version] = take(store, namespace)
    for number, step in enumerate(steps):
        perform(store, step, number)
        snapshots[store.version] = take(store, namespace)
    collection = store.collection(PODS)
    for version, expected in snapshots.items():
        found = [(e.key, e.version) for e in collection.iterate_at(version, start, namespace)]
        assert found == [item for item in expected if item[0] >= start]


@given(STEPS, st.integers(1, 10))
def test_history_is_complete_or_refused(steps, limit):
    store, snapshots = Store(history=limit), {}
    snapshots[store.version] = dict(take(store))
    for number, step in enumerate(steps):
        perform(store, step, number)
        snapshots[store.version] = dict(take(store))
    collection = store.collection(PODS)
    for version, state in snapshots.items():
        if not collection.remembers(version):
            assert store.version - version > limit
            with pytest.raises(StatusError, match="too old resource version"):
                collection.changes_since(version)
            continue
        for change in collection.changes_since(version):
            if change.type == "DELETED":
                del state[change.entry.key]
            else:
                assert (change.entry.key in state) == (change.type == "MODIFIED")
                state[change.entry.key] = change.entry.version
        assert state == snapshots[store.version]


def test_an_equal_object_keeps_its_version():
    store = Store()
    entry = store.create(PODS, {"metadata": {"name": "a", "namespace": "n"}, "spec": {"x": 1}})
    same = {"spec": {"x": 1}, "metadata": {"namespace": "n", "name": "a"}}
    assert store.replace(PODS, entry, same) is entry


def test_a_stored_object_cannot_be_changed_from_outside():
    store = Store()
    obj: dict[str, Any] = {"metadata": {"name": "a", "namespace": "n"}, "spec": {"x": 1}}
    entry = store.create(PODS, obj)
    obj["spec"]["x"] = 2
    entry.decode()["spec"]["x"] = 3
    assert entry.decode()["spec"]["x"] == 1


def test_a_copy_brings_back_objects_and_versions():
    store = Store()
    store.create(PODS, {"metadata": {"name": "kept", "namespace": "n"}})
    doomed = store.create(PODS, {"metadata": {"name": "doomed", "namespace": "n"}})
    copy = store.copy()
    store.delete(PODS, doomed)
    store.create(PODS, {"metadata": {"name": "a", "namespace": "n"}})
    store.create(NODES, {"metadata": {"name": "since"}})
    store.restore(copy)
    assert store.version == copy.version
    collection = store.collection(PODS)
    assert [entry.key for entry in collection.iterate("", "")] == ["n/doomed", "n/kept"]
    assert list(store.collection(NODES).iterate("", "")) == []
    assert collection.changes_since(store.version) == []
    with pytest.raises(StatusError, match="too old resource version"):
        collection.changes_since(copy.version - 1)
    assert store.create(PODS, {"metadata": {"name": "b", "namespace": "n"}}).version == (
        copy.version + 1
    )


def test_compaction_forgets_the_past_only():
    store = Store()
    store.create(PODS, {"metadata": {"name": "a", "namespace": "n"}})
    before = store.version
    store.create(PODS, {"metadata": {"name": "b", "namespace": "n"}})
    store.compact()
    with pytest.raises(StatusError, match="too old resource version"):
        store.collection(PODS).changes_since(before)
    assert store.collection(PODS).changes_since(store.version) == []
