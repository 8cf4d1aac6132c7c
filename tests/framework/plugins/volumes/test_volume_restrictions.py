"""plugins/volumerestrictions/volume_restrictions.go."""

from __future__ import annotations

from typing import Any

import pytest

from ksched.framework import (
    SUCCESS,
    Action,
    ClusterEvent,
    CycleState,
    QueueingHint,
    Resource,
    Status,
    unresolvable,
    unschedulable,
)
from ksched.framework.plugins.volumes.volume_restrictions import VolumeRestrictions
from ksched.testing.builders import Builder, PodBuilder, make_node, make_pod
from ksched.testing.plugin_runner import PluginBench, run_filter, run_hint
from ksched.testing.storage import listers
from ksched.testing.storage_builders import make_claim

TAKEN = unschedulable("node(s) had no available disk")
IN_USE = unschedulable(
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
    "already in-use by another pod"
)
ONE, TWO = make_node("n1"), make_node("n2")
EXCLUSIVE = make_claim("data", modes=["ReadWriteOncePod"])
SHARED = make_claim("data")
POD = make_pod("new").pvc("data")


def gce(name: str = "d", *, reads: bool = False) -> PodBuilder:
    return make_pod().volume({"gcePersistentDisk": {"pdName": name, "readOnly": reads}})


def ebs(name: str = "d", *, reads: bool = False) -> PodBuilder:
    return make_pod().volume({"awsElasticBlockStore": {"volumeID": name, "readOnly": reads}})


def iscsi(name: str = "d", *, reads: bool = False) -> PodBuilder:
    return make_pod().volume({"iscsi": {"iqn": name, "readOnly": reads}})


def rbd(*monitors: str, image: str = "i", pool: str = "p", reads: bool = False) -> PodBuilder:
    disk = {"monitors": list(monitors), "image": image, "pool": pool, "readOnly": reads}
    return make_pod().volume({"rbd": disk})


@pytest.mark.parametrize(
    ("pod", "running", "status"),
    [
        pytest.param(gce(), gce(), TAKEN, id="same GCE disk"),
        pytest.param(gce(), gce("other"), SUCCESS, id="other GCE disk"),
        pytest.param(gce(reads=True), gce(reads=True), SUCCESS, id="both read a GCE disk"),
        pytest.param(gce(reads=True), gce(), TAKEN, id="one writes a GCE disk"),
        pytest.param(ebs(reads=True), ebs(reads=True), TAKEN, id="an EBS volume is never shared"),
        pytest.param(ebs(), ebs("other"), SUCCESS, id="other EBS volume"),
        pytest.param(iscsi(), iscsi(), TAKEN, id="same iSCSI target"),
        pytest.param(iscsi(reads=True), iscsi(reads=True), SUCCESS, id="both read an iSCSI target"),
        pytest.param(rbd("a", "b"), rbd("b", "c"), TAKEN, id="an RBD image by a common monitor"),
        pytest.param(rbd("a"), rbd("b"), SUCCESS, id="RBD images of other monitors"),
        pytest.param(rbd("a"), rbd("a", pool="q"), SUCCESS, id="RBD images of other pools"),
        pytest.param(rbd("a"), rbd("a", image="j"), SUCCESS, id="other RBD images"),
        pytest.param(rbd("a", reads=True), rbd("a", reads=True), SUCCESS, id="both read an image"),
        pytest.param(gce(), ebs(), SUCCESS, id="disks of other kinds"),
    ],
)
def test_a_disk_belongs_to_one_pod_of_a_node(
    pod: PodBuilder, running: PodBuilder, status: Status
) -> None:
    answers = run_filter(
        VolumeRestrictions(listers()),
        pod.obj(),
        [ONE.obj(), TWO.obj()],
        [running.uid("other").node("n1").obj()],
    )
    assert answers == {"n1": status, "n2": SUCCESS}


@pytest.mark.parametrize(
    ("claim", "running", "status"),
    [
        pytest.param(EXCLUSIVE, make_pod("r").pvc("data"), IN_USE, id="in use"),
        pytest.param(EXCLUSIVE, make_pod("r").pvc("other"), SUCCESS, id="another claim in use"),
        pytest.param(
            EXCLUSIVE, make_pod("r", "elsewhere").pvc("data"), SUCCESS, id="another namespace"
        ),
        pytest.param(SHARED, make_pod("r").pvc("data"), SUCCESS, id="a claim that may be shared"),
    ],
)
def test_an_exclusive_claim_belongs_to_one_pod_of_the_cluster(
    claim: Builder[Any], running: PodBuilder, status: Status
) -> None:
    answers = run_filter(
        VolumeRestrictions(listers(claim)),
        POD.obj(),
        [ONE.obj(), TWO.obj()],
        [running.node("n1").obj()],
    )
    assert answers == {"n1": status, "n2": status}


def test_a_taken_disk_is_named_before_a_claim_in_use() -> None:
    pod = POD.volume({"gcePersistentDisk": {"pdName": "d"}})
    running = [pod.uid("other").node("n1").obj()]
    answers = run_filter(
        VolumeRestrictions(listers(EXCLUSIVE)), pod.obj(), [ONE.obj(), TWO.obj()], running
    )
    assert answers == {"n1": TAKEN, "n2": IN_USE}


def test_a_missing_claim_rejects_the_pod() -> None:
    answers = run_filter(VolumeRestrictions(listers()), POD.obj(), [ONE.obj()])
    assert answers["n1"] == unresolvable('persistentvolumeclaim "data" not found')


def test_evicting_the_only_user_makes_room() -> None:
    """In a dry run the users of the claim are counted as pods come and go."""
    user = make_pod("user").pvc("data").node("n1").obj()
    bench = PluginBench([ONE.obj(), TWO.obj()], [user])
    plugin, state, pod = VolumeRestrictions(listers(EXCLUSIVE)), CycleState(), POD.obj()
    info, node = bench.pod_info(pod), bench.snapshot.table.infos[0].clone()
    assert plugin.pre_filter(state, info, bench.snapshot).is_success

    tried = state.clone()
    victim = node.remove_pod(user.metadata.uid)
    plugin.remove_pod(tried, info, victim, node)
    table = bench.snapshot.overlay([node])
    assert plugin.filter_nodes(tried, info, table.all()).codes.tolist() == [0]
    assert plugin.filter_nodes(state, info, bench.snapshot.table.all()).codes.tolist() == [2, 2]
    plugin.add_pod(tried, info, victim, node)
    assert plugin.filter_nodes(tried, info, table.all()).codes.tolist() == [2]


@pytest.mark.parametrize(
    ("resource", "old", "new", "wakes"),
    [
        pytest.param(Resource.ASSIGNED_POD, POD.uid("x"), None, True, id="user of its claim gone"),
        pytest.param(
            Resource.ASSIGNED_POD, make_pod("y").pvc("other"), None, False, id="another pod gone"
        ),
        pytest.param(
            Resource.ASSIGNED_POD,
            make_pod("y", "elsewhere").pvc("data"),
            None,
            False,
            id="pod of another namespace gone",
        ),
        pytest.param(Resource.NODE, None, make_node("n"), True, id="new node"),
        pytest.param(Resource.PERSISTENT_VOLUME_CLAIM, None, SHARED, True, id="its claim"),
        pytest.param(
            Resource.PERSISTENT_VOLUME_CLAIM, None, make_claim("other"), False, id="other claim"
        ),
        pytest.param(
            Resource.PERSISTENT_VOLUME_CLAIM, SHARED, SHARED, False, id="its claim updated"
        ),
    ],
)
def test_wakes_for_what_may_free_a_volume(
    resource: Resource, old: Builder[Any] | None, new: Builder[Any] | None, wakes: bool
) -> None:
    action = Action.ADD if old is None else Action.DELETE if new is None else Action.UPDATE
    before, after = (None if one is None else one.obj() for one in (old, new))
    plugin = VolumeRestrictions(listers())
    hint = run_hint(plugin, ClusterEvent(resource, action), POD.obj(), before, after)
    assert hint is (QueueingHint.QUEUE if wakes else QueueingHint.SKIP)


def test_wakes_when_a_pod_with_its_disk_is_gone() -> None:
    event = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
    plugin = VolumeRestrictions(listers())
    assert run_hint(plugin, event, gce().obj(), gce().obj()) is QueueingHint.QUEUE
    assert run_hint(plugin, event, gce().obj(), gce("other").obj()) is QueueingHint.SKIP
