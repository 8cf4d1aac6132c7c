"""plugins/volumezone/volume_zone.go."""

from __future__ import annotations

from typing import Any

import pytest

from ksched.framework import (
    SUCCESS,
    Action,
    ClusterEvent,
    QueueingHint,
    Resource,
    Status,
    unresolvable,
)
from ksched.framework.plugins.volumes.volume_zone import VolumeZone
from ksched.testing.builders import Builder, make_node, make_pod
from ksched.testing.plugin_runner import run_filter, run_hint
from ksched.testing.storage import listers
from ksched.testing.storage_builders import make_claim, make_storage_class, make_volume

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION = "failure-domain.beta.kubernetes.io/region"
OUTSIDE = unresolvable("node(s) had no available volume zone")
POD = make_pod().pvc("data")
BOUND = make_claim("data").bound_to("v")


@pytest.mark.parametrize(
    ("volume", "node", "status"),
    [
        pytest.param({}, {ZONE: "a"}, SUCCESS, id="a volume without a zone"),
        pytest.param({ZONE: "a"}, {}, SUCCESS, id="a node without any zone is everywhere"),
        pytest.param({ZONE: "a"}, {ZONE: "a"}, SUCCESS, id="same zone"),
        pytest.param({ZONE: "a"}, {ZONE: "b"}, OUTSIDE, id="other zone"),
        pytest.param({ZONE: "a__b"}, {ZONE: "b"}, SUCCESS, id="one of several zones"),
        pytest.param({ZONE: "a__ b "}, {ZONE: "b"}, SUCCESS, id="blanks around a zone"),
        pytest.param({ZONE: "a__"}, {ZONE: "c"}, SUCCESS, id="a list with a gap is ignored"),
        pytest.param({ZONE: "a"}, {REGION: "r"}, OUTSIDE, id="a node that only has a region"),
        pytest.param({ZONE: "a", REGION: "r"}, {ZONE: "a", REGION: "s"}, OUTSIDE, id="region too"),
        pytest.param({BETA_ZONE: "a"}, {ZONE: "a"}, SUCCESS, id="beta label, newer node"),
        pytest.param({BETA_ZONE: "a"}, {ZONE: "b"}, OUTSIDE, id="beta label, newer node elsewhere"),
        pytest.param(
            {BETA_ZONE: "a"}, {BETA_ZONE: "b", ZONE: "a"}, OUTSIDE, id="the same label goes first"
        ),
        pytest.param({ZONE: "a"}, {BETA_ZONE: "a"}, OUTSIDE, id="new label, older node"),
        pytest.param(
            {BETA_REGION: "r"}, {BETA_REGION: "r", BETA_ZONE: "z"}, SUCCESS, id="beta region"
        ),
    ],
)
def test_a_node_must_be_in_the_zone_of_the_volume(
    volume: dict[str, str], node: dict[str, str], status: Status
) -> None:
    plugin = VolumeZone(listers(BOUND, make_volume("v").label(volume)))
    assert run_filter(plugin, POD.obj(), [make_node("n").label(node).obj()])["n"] == status


@pytest.mark.parametrize(
    ("objects", "status"),
    [
        pytest.param((), unresolvable('persistentvolumeclaim "data" not found'), id="no claim"),
        pytest.param((BOUND,), unresolvable('persistentvolume "v" not found'), id="no volume"),
        pytest.param(
            (make_claim("data"),),
            unresolvable("PersistentVolumeClaim had no pv name and storageClass name"),
            id="no volume and no class",
        ),
        pytest.param(
            (make_claim("data", "fast"),),
            unresolvable('storageclass.storage.k8s.io "fast" not found'),
            id="a class that does not exist",
        ),
        pytest.param(
            (
                make_claim("data", "fast"),
                make_storage_class("fast").merge({"volumeBindingMode": None}),
            ),
            unresolvable('VolumeBindingMode not set for StorageClass "fast"'),
            id="a class without a mode",
        ),
        pytest.param(
            (make_claim("data", "fast"), make_storage_class("fast", waits=False)),
            unresolvable("PersistentVolume had no name"),
            id="an immediate claim that is not bound",
        ),
        pytest.param(
            (make_claim("data", "fast"), make_storage_class("fast")),
            SUCCESS,
            id="a claim that waits for its consumer",
        ),
    ],
)
def test_a_claim_must_have_a_volume_or_wait_for_one(
    objects: tuple[Builder[Any], ...], status: Status
) -> None:
    plugin = VolumeZone(listers(*objects))
    node = make_node("n").label({ZONE: "a"}).obj()
    assert run_filter(plugin, POD.obj(), [node])["n"] == status


def test_pods_without_claims_are_none_of_its_business() -> None:
    plugin = VolumeZone(listers())
    node = make_node("n").obj()
    assert run_filter(plugin, make_pod().ephemeral("scratch").obj(), [node])["n"] == SUCCESS


IN_ZONE = make_volume("v").label({ZONE: "a"})


@pytest.mark.parametrize(
    ("resource", "old", "new", "wakes"),
    [
        pytest.param(
            Resource.STORAGE_CLASS, None, make_storage_class(), True, id="class that waits"
        ),
        pytest.param(
            Resource.STORAGE_CLASS, None, make_storage_class(waits=False), False, id="other class"
        ),
        pytest.param(Resource.NODE, None, make_node("n"), True, id="new node"),
        pytest.param(Resource.PERSISTENT_VOLUME_CLAIM, None, BOUND, True, id="its claim"),
        pytest.param(
            Resource.PERSISTENT_VOLUME_CLAIM, None, make_claim("other"), False, id="other claim"
        ),
        pytest.param(
            Resource.PERSISTENT_VOLUME_CLAIM,
            None,
            make_claim("data", namespace="other"),
            False,
            id="claim of another namespace",
        ),
        pytest.param(Resource.PERSISTENT_VOLUME, None, make_volume("x"), True, id="new volume"),
        pytest.param(
            Resource.PERSISTENT_VOLUME, make_volume("v"), IN_ZONE, True, id="zone of a volume"
        ),
        pytest.param(
            Resource.PERSISTENT_VOLUME,
            IN_ZONE,
            IN_ZONE.label(x="y"),
            False,
            id="other label of a volume",
        ),
    ],
)
def test_wakes_for_what_may_change_the_zone(
    resource: Resource, old: Builder[Any] | None, new: Builder[Any], wakes: bool
) -> None:
    event = ClusterEvent(resource, Action.ADD if old is None else Action.UPDATE)
    before = None if old is None else old.obj()
    hint = run_hint(VolumeZone(listers()), event, POD.obj(), before, new.obj())
    assert hint is (QueueingHint.QUEUE if wakes else QueueingHint.SKIP)
