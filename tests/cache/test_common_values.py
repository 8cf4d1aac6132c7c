"""Pods and listed objects share equal values; what a running pod costs is counted in bytes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from ksched.api.decoding import decoder
from ksched.api.objects import ObjectMeta, OwnerReference, Pod
from ksched.api.storage import PersistentVolumeClaim
from ksched.cache import common_values
from ksched.cache.cache import SchedulerCache
from ksched.cache.common_values import CommonValues
from ksched.cache.listers import Lister
from ksched.cache.pod_info import PodInfo

CONDITIONS = (
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
)
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d4b9", "uid": "r" * 36}


def running_pod(number: int, *, node: str = "node-00007", phase: str = "Running") -> bytes:
    """A pod as a kubelet reports it."""
    return msgspec.json.encode(
        {
            "metadata": {
                "name": f"web-7d4b9-{number:05d}",
                "namespace": "default",
                "uid": f"{number:036d}",
                "resourceVersion": f"{1_000_000 + number}",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"app": "web"},
                "ownerReferences": [{**OWNER, "controller": True}],
            },
            "spec": {"nodeName": node, "containers": [{"name": "web"}]},
            "status": {
                "phase": phase,
                "startTime": "2026-01-01T00:00:01Z",
                "conditions": [{"type": one, "status": "True"} for one in CONDITIONS],
            },
        }
    )


def infos(documents: Iterable[bytes]) -> list[PodInfo]:
    cache, decode = SchedulerCache(lambda: 0.0), decoder(Pod)
    return [cache.pod_info(decode(one)) for one in documents]


def content(value: Any) -> Iterator[Any]:
    if isinstance(value, Struct):
        yield from (getattr(value, name) for name in value.__struct_fields__)
    elif isinstance(value, list | tuple):
        yield from value
    elif isinstance(value, dict):
        yield from (*value, *value.values())


def owned_bytes(values: Iterable[Any]) -> int:
    """The size of objects and all they refer to, each counted once."""
    seen: dict[int, int] = {}
    stack = [*values]
    while stack:
        value = stack.pop()
        if id(value) not in seen:
            seen[id(value)] = sys.getsizeof(value)
            stack += content(value)
    return sum(seen.values())


def test_a_running_pod_owns_what_tells_it_from_others() -> None:
    few, many = (
        owned_bytes([one.pod for one in infos(map(running_pod, range(count)))])
        for count in (100, 300)
    )
    assert (many - few) / 200 <= 850


def test_equal_values_are_one_object() -> None:
    one, other = (info.pod for info in infos(map(running_pod, range(2))))
    assert one.status.conditions is other.status.conditions
    assert one.metadata.owner_references is other.metadata.owner_references
    assert one.status.container_statuses is other.status.init_container_statuses
    assert one.metadata.annotations is other.metadata.annotations
    assert one.spec.node_name is other.spec.node_name
    assert one.status.phase is other.status.phase
    assert one.metadata.namespace is other.metadata.namespace


def test_a_pod_keeps_all_it_had() -> None:
    decode = decoder(Pod)
    documents = [running_pod(0), running_pod(1, node="n2", phase="Pending")]
    for document, info in zip(documents, infos(documents), strict=True):
        assert info.pod == decode(document)


def test_listed_objects_share_what_their_metadata_have_in_common() -> None:
    lister: Lister[PersistentVolumeClaim] = Lister()
    for name in ("a", "b"):
        claim = {
            "metadata": {"name": name, "namespace": "ns", "finalizers": ["example.com/protect"]}
        }
        lister.put(msgspec.convert(claim, PersistentVolumeClaim))
    one, other = (claim.metadata for claim in lister)
    assert (one.name, other.name) == ("a", "b")
    assert one.finalizers is other.finalizers
    assert one.finalizers == ("example.com/protect",)
    assert one.owner_references is other.owner_references


def test_values_that_were_seen_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common_values, "COMMON_VALUES_KEPT", 3)
    values = CommonValues()
    first = values.common("-".join("ab"))
    assert values.common("-".join("ab")) is first
    for number in range(3):
        values.common(f"node-{number}")
    again = values.common("-".join("ab"))
    assert (again, again is first) == ("a-b", False)


def test_large_values_of_pods_that_are_gone_are_not_kept() -> None:
    common = CommonValues()
    many = [OwnerReference(name=f"owner-{number}") for number in range(2000)]
    long = OwnerReference(kind="K" * 5000)
    meta = ObjectMeta(name="a", owner_references=many, finalizers=("f" * 5000,))
    for one in (meta, ObjectMeta(name="b", owner_references=[long] * 3)):
        common.share_metadata(one)
    assert meta.owner_references is many
    assert not common._known


def test_pods_that_have_not_started_share_their_status() -> None:
    def document(number: int, status: str) -> bytes:
        pod = msgspec.json.decode(running_pod(number))
        pod["status"] = {"conditions": [{"type": "PodScheduled", "status": status}]}
        return msgspec.json.encode(pod)

    documents = [document(0, "True"), document(1, "True"), document(2, "False")]
    one, same, other = (info.pod.status for info in infos(documents))
    assert one is same
    assert other is not one
    assert [status.conditions[0].status for status in (one, other)] == ["True", "False"]
