"""plugins/nodevolumelimits/csi.go, and the plugins for disks of former in-tree plugins.

Covers ``ksched.framework.plugins.volumes.attached`` and
``ksched.framework.plugins.volumes.csi_volumes`` too.
"""

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
    error,
    unresolvable,
    unschedulable,
)
from ksched.framework.plugins.volumes.legacy_limits import (
    AzureDiskLimits,
    EBSLimits,
    GCEPDLimits,
)
from ksched.framework.plugins.volumes.node_volume_limits import NodeVolumeLimits
from ksched.testing.builders import Builder, PodBuilder, make_node, make_pod
from ksched.testing.plugin_runner import PluginBench, run_filter, run_hint
from ksched.testing.storage import listers
from ksched.testing.storage_builders import (
    make_attachment,
    make_claim,
    make_csi_node,
    make_storage_class,
    make_volume,
)

FULL = unschedulable("node(s) exceed max volume count")
NODE = make_node("n1")
POD = make_pod("new").pvc("data")
BOUND = (make_claim("data").bound_to("v"), make_volume("v"))
THEIRS = (make_claim("theirs").bound_to("w"), make_volume("w"))
USER = make_pod("user").pvc("theirs").node("n1")
EBS = {"awsElasticBlockStore": {"volumeID": "vol-1"}}


def limit(count: int) -> Builder[Any]:
    return make_csi_node("n1", csi_example=count)


def judge(
    pod: PodBuilder, objects: tuple[Builder[Any], ...], running: tuple[PodBuilder, ...] = ()
) -> Status:
    plugin = NodeVolumeLimits(listers(*objects))
    return run_filter(plugin, pod.obj(), [NODE.obj()], [one.obj() for one in running])["n1"]


@pytest.mark.parametrize(
    ("objects", "running", "status"),
    [
        pytest.param((*BOUND, limit(1)), (), SUCCESS, id="fits exactly"),
        pytest.param((*BOUND, limit(0)), (), FULL, id="none allowed"),
        pytest.param(BOUND, (), SUCCESS, id="no CSINode, no limit"),
        pytest.param((*BOUND, make_csi_node("n1", csi_example=None)), (), SUCCESS, id="no limit"),
        pytest.param((*BOUND, make_csi_node("n1", csi_other=0)), (), SUCCESS, id="other driver"),
        pytest.param((*BOUND, *THEIRS, limit(1)), (USER,), FULL, id="a pod has the last place"),
        pytest.param((*BOUND, *THEIRS, limit(2)), (USER,), SUCCESS, id="one more"),
        pytest.param(
            (*BOUND, limit(1)), (make_pod("u").pvc("data").node("n1"),), SUCCESS, id="same volume"
        ),
        pytest.param(
            (*BOUND, *THEIRS, limit(0)),
            (make_pod("u").pvc("data").node("n1"), USER),
            SUCCESS,
            id="nothing new on an overfull node",
        ),
        pytest.param((*BOUND, limit(1)), (USER,), SUCCESS, id="a running pod that lost its claim"),
        pytest.param(
            (*BOUND, *THEIRS, limit(1), make_attachment("a", "n1", "w", "csi.example")),
            (),
            FULL,
            id="a volume attached without a pod",
        ),
        pytest.param(
            (*BOUND, *THEIRS, limit(2), make_attachment("a", "n1", "w", "csi.example")),
            (USER,),
            SUCCESS,
            id="attached for a pod, counted once",
        ),
        pytest.param(
            (*BOUND, limit(1), make_attachment("a", "n1", "v", "csi.example")),
            (),
            FULL,
            id="its own volume, attached already, counts twice as upstream",
        ),
        pytest.param(
            (*BOUND, *THEIRS, limit(1), make_attachment("a", "n2", "w", "csi.example")),
            (),
            SUCCESS,
            id="attached to another node",
        ),
        pytest.param(
            (*BOUND, limit(1), make_attachment("a", "n1", "gone", "csi.example")),
            (),
            SUCCESS,
            id="an attachment without a volume",
        ),
        pytest.param(
            (*BOUND, limit(1), make_attachment("a", "n1", None, "csi.example")),
            (),
            SUCCESS,
            id="an attachment of something else",
        ),
    ],
)
def test_counts_the_volumes_of_a_driver(
    objects: tuple[Builder[Any], ...], running: tuple[PodBuilder, ...], status: Status
) -> None:
    assert judge(POD, objects, running) == status


@pytest.mark.parametrize(
    ("objects", "status"),
    [
        pytest.param((make_claim("data", "fast"), make_storage_class()), FULL, id="by its class"),
        pytest.param((make_claim("data", "fast"),), SUCCESS, id="class missing"),
        pytest.param((make_claim("data"),), SUCCESS, id="no class"),
        pytest.param(
            (make_claim("data", "fast").bound_to("gone"), make_storage_class()),
            FULL,
            id="bound to a volume that is gone",
        ),
        pytest.param(
            (make_claim("data").bound_to("v"), make_volume("v").source(nfs={"path": "/"})),
            SUCCESS,
            id="not a CSI volume",
        ),
    ],
)
def test_what_a_claim_will_be(objects: tuple[Builder[Any], ...], status: Status) -> None:
    assert judge(POD, (*objects, limit(0))) == status


@pytest.mark.parametrize(
    ("source", "driver"),
    [
        pytest.param({"awsElasticBlockStore": {"volumeID": "vol-1"}}, "ebs.csi.aws.com", id="EBS"),
        pytest.param({"gcePersistentDisk": {"pdName": "d"}}, "pd.csi.storage.gke.io", id="GCE"),
        pytest.param({"azureDisk": {"diskURI": "/d"}}, "disk.csi.azure.com", id="Azure disk"),
        pytest.param({"cinder": {"volumeID": "d"}}, "cinder.csi.openstack.org", id="Cinder"),
        pytest.param({"portworxVolume": {"volumeID": "d"}}, "pxd.portworx.com", id="Portworx"),
        pytest.param({"azureFile": {"shareName": "s"}}, None, id="Azure file is not replaced"),
        pytest.param({"vsphereVolume": {"volumePath": "p"}}, None, id="vSphere is not replaced"),
    ],
)
@pytest.mark.parametrize("where", ["in the pod", "in a volume"])
def test_volumes_from_before_csi_count_for_the_driver_that_took_over(
    source: dict[str, Any], driver: str | None, where: str
) -> None:
    every = ["ebs.csi.aws.com", "pd.csi.storage.gke.io", "disk.csi.azure.com", "pxd.portworx.com"]
    every += ["cinder.csi.openstack.org", "file.csi.azure.com", "csi.vsphere.vmware.com"]
    node = make_csi_node("n1")
    for name in every:
        node = node.driver(name, 0 if name == driver or driver is None else 9)
    objects = (make_claim("data").bound_to("v"), make_volume("v").source(**source))
    pod = make_pod().volume(source) if where == "in the pod" else POD

    assert judge(pod, (*objects, node)) == (FULL if driver else SUCCESS)
    assert judge(pod, objects) == SUCCESS, "without a CSINode there is no limit"


def test_a_pod_whose_claim_is_missing_waits_for_it() -> None:
    reason = 'looking up PVC default/data: persistentvolumeclaim "data" not found'
    assert judge(POD, (limit(1),)) == unresolvable(reason)


def test_volumes_that_cannot_be_told_fail_the_attempt() -> None:
    odd = make_pod().volume({"awsElasticBlockStore": {"volumeID": "aws://za/disk"}})
    text = (
        "converting volume(disk) from inline to csi: failed to translate Kubernetes ID to EBS "
        "Volume ID Invalid format for AWS volume (aws://za/disk)"
    )
    assert judge(odd, (limit(1),)) == error(text)
    assert judge(odd, ()) == SUCCESS
    assert judge(POD, (*BOUND, limit(5)), (odd.uid("o").node("n1"),)) == error(text)


def test_another_pods_ephemeral_claim_fails_the_attempt() -> None:
    pod = make_pod("new").ephemeral("scratch")
    claim = make_claim("new-scratch").bound_to("v")
    text = "PVC default/new-scratch was not created for pod default/new (pod is not owner)"
    assert judge(pod, (claim, make_volume("v"), limit(1))) == error(text)
    assert judge(pod, (claim.made_for(pod), make_volume("v"), limit(1))) == SUCCESS
    assert judge(pod, (claim.made_for(pod), make_volume("v"), limit(0))) == FULL


def test_pods_without_attachable_volumes_are_skipped() -> None:
    plugin = NodeVolumeLimits(listers(limit(0)))
    empty = make_pod().volume({"emptyDir": {}}).obj()
    assert run_filter(plugin, empty, [NODE.obj()])["n1"] == SUCCESS


def test_counters_follow_what_happens() -> None:
    """The same plugin on the same nodes, asked again after each change."""
    known = listers(*BOUND, *THEIRS, limit(1))
    plugin = NodeVolumeLimits(known)
    bench = PluginBench([NODE.obj()])

    def ask() -> Status:
        return bench.filter(plugin, POD.obj())["n1"]

    def put(obj: Builder[Any]) -> None:
        built = obj.obj()
        known.require(type(built)).put(built)

    assert ask() == SUCCESS
    table = bench.snapshot.table
    crowded = table.infos[0].clone()
    crowded.add_pod(bench.pod_info(USER.obj()))
    table.put_pods(0, crowded)
    assert ask() == FULL
    put(limit(2))
    assert ask() == SUCCESS
    attachment = make_attachment("a", "n1", "x", "csi.example")
    put(make_volume("x"))
    put(attachment)
    assert ask() == FULL
    put(make_attachment("a", "n2", "x", "csi.example"))
    assert ask() == SUCCESS
    put(make_claim("theirs").bound_to("v"))
    put(limit(1))
    assert ask() == SUCCESS, "now they share a volume"
    put(make_claim("theirs").bound_to("w"))
    assert ask() == FULL
    claims = known.require(type(THEIRS[0].obj()))
    claims.remove(THEIRS[0].obj())
    assert ask() == SUCCESS, "a claim that is gone does not count"


# -- wake-ups -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resource", "old", "new", "wakes"),
    [
        pytest.param(Resource.CSI_NODE, None, limit(1), True, id="a new CSINode"),
        pytest.param(Resource.CSI_NODE, limit(1), limit(2), True, id="a higher limit"),
        pytest.param(Resource.CSI_NODE, limit(2), limit(1), False, id="a lower limit"),
        pytest.param(
            Resource.CSI_NODE, make_csi_node("n1"), limit(1), True, id="a driver with a limit"
        ),
        pytest.param(
            Resource.CSI_NODE,
            make_csi_node("n1"),
            make_csi_node("n1", csi_example=None),
            False,
            id="a driver without a limit",
        ),
        pytest.param(Resource.ASSIGNED_POD, USER, None, True, id="a pod with a claim is gone"),
        pytest.param(
            Resource.ASSIGNED_POD, make_pod().pvc("c"), None, False, id="that had no node"
        ),
        pytest.param(
            Resource.ASSIGNED_POD, make_pod().pvc("c").nominated("n"), None, True, id="nominated"
        ),
        pytest.param(
            Resource.ASSIGNED_POD,
            make_pod().volume({"emptyDir": {}}).node("n1"),
            None,
            False,
            id="a pod with other volumes is gone",
        ),
        pytest.param(
            Resource.ASSIGNED_POD, make_pod().volume(EBS).node("n1"), None, True, id="an old disk"
        ),
        pytest.param(Resource.PERSISTENT_VOLUME_CLAIM, None, BOUND[0], True, id="its claim"),
        pytest.param(Resource.PERSISTENT_VOLUME_CLAIM, None, THEIRS[0], False, id="other claim"),
        pytest.param(
            Resource.VOLUME_ATTACHMENT,
            make_attachment("a", "n1", "w", "any"),
            None,
            True,
            id="something is detached",
        ),
    ],
)
def test_wakes_for_what_may_make_room(
    resource: Resource, old: Builder[Any] | None, new: Builder[Any] | None, wakes: bool
) -> None:
    action = Action.ADD if old is None else Action.DELETE if new is None else Action.UPDATE
    before, after = (None if one is None else one.obj() for one in (old, new))
    plugin = NodeVolumeLimits(listers())
    hint = run_hint(plugin, ClusterEvent(resource, action), POD.obj(), before, after)
    assert hint is (QueueingHint.QUEUE if wakes else QueueingHint.SKIP)


@pytest.mark.parametrize(("attacher", "wakes"), [("ebs.csi.aws.com", True), ("csi.example", False)])
def test_an_old_disk_waits_for_its_driver_to_detach(attacher: str, wakes: bool) -> None:
    event = ClusterEvent(Resource.VOLUME_ATTACHMENT, Action.DELETE)
    detached = make_attachment("a", "n1", "w", attacher).obj()
    plugin = NodeVolumeLimits(listers())
    hint = run_hint(plugin, event, make_pod().volume(EBS).obj(), detached)
    assert hint is (QueueingHint.QUEUE if wakes else QueueingHint.SKIP)


def test_wakes_for_the_claim_of_its_ephemeral_volume() -> None:
    event = ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD)
    plugin, pod = NodeVolumeLimits(listers()), make_pod("web").ephemeral("scratch").obj()
    for name, wakes in (("web-scratch", True), ("web2-scratch", False)):
        hint = run_hint(plugin, event, pod, None, make_claim(name).obj())
        assert hint is (QueueingHint.QUEUE if wakes else QueueingHint.SKIP)


# -- disks from before CSI ----------------------------------------------------------------------

LEGACY = {
    EBSLimits: ("awsElasticBlockStore", "volumeID", "aws-ebs", 39),
    GCEPDLimits: ("gcePersistentDisk", "pdName", "gce-pd", 16),
    AzureDiskLimits: ("azureDisk", "diskName", "azure-disk", 16),
}


@pytest.mark.parametrize("kind", LEGACY, ids=lambda kind: kind.name)
def test_old_disks_have_old_limits(kind: Any) -> None:
    source, identity, plugin_name, usual = LEGACY[kind]

    def pod(name: str, disk: str) -> PodBuilder:
        return make_pod(name).volume({source: {identity: disk}})

    def ask(node: Builder[Any], running: int, *objects: Builder[Any]) -> Status:
        pods = [pod(f"p{i}", f"d{i}").node("n1").obj() for i in range(running)]
        return run_filter(kind(listers(*objects)), pod("new", "x").obj(), [node.obj()], pods)["n1"]

    resource = f"attachable-volumes-{plugin_name}"
    assert ask(NODE, usual - 1) == SUCCESS
    assert ask(NODE, usual) == FULL
    assert ask(NODE.capacity({resource: "2"}), 1) == SUCCESS
    assert ask(NODE.capacity({resource: "2"}), 2) == FULL
    migrated = make_csi_node("n1").migrated(f"kubernetes.io/{plugin_name}")
    assert ask(NODE, usual, migrated) == SUCCESS
    assert ask(NODE, usual, make_csi_node("n1")) == FULL


def test_old_disks_behind_claims_count() -> None:
    in_tree = make_storage_class("old", "kubernetes.io/aws-ebs")
    node = NODE.capacity({"attachable-volumes-aws-ebs": "0"}).obj()
    disk = make_volume("v").source(awsElasticBlockStore={"volumeID": "vol-1"})
    for objects, status in (
        ((make_claim("data").bound_to("v"), disk), FULL),
        ((make_claim("data").bound_to("v"), make_volume("v")), SUCCESS),
        ((make_claim("data", "old"), in_tree), FULL),
        ((make_claim("data", "fast"), make_storage_class()), SUCCESS),
        (
            (),
            unresolvable('looking up PVC default/data: persistentvolumeclaim "data" not found'),
        ),
    ):
        assert run_filter(EBSLimits(listers(*objects)), POD.obj(), [node])["n1"] == status


@pytest.mark.parametrize(("instance", "limit_"), [("m5.large", 25), ("t3.nano", 25), ("m4.x", 39)])
def test_nitro_instances_take_fewer_volumes(instance: str, limit_: int) -> None:
    node = NODE.label({"node.kubernetes.io/instance-type": instance}).obj()
    for running, status in ((limit_ - 1, SUCCESS), (limit_, FULL)):
        pods = [
            make_pod(f"p{i}").volume({"awsElasticBlockStore": {"volumeID": f"d{i}"}}).node("n1")
            for i in range(running)
        ]
        pod = make_pod().volume(EBS).obj()
        answers = run_filter(EBSLimits(listers()), pod, [node], [one.obj() for one in pods])
        assert answers["n1"] == status


def test_the_administrator_may_set_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBE_MAX_PD_VOLS", "1")
    running = make_pod("p").volume({"gcePersistentDisk": {"pdName": "d"}}).node("n1").obj()
    pod = make_pod().volume({"gcePersistentDisk": {"pdName": "e"}}).obj()
    assert run_filter(GCEPDLimits(listers()), pod, [NODE.obj()], [running])["n1"] == FULL
    monkeypatch.setenv("KUBE_MAX_PD_VOLS", "many")
    assert run_filter(GCEPDLimits(listers()), pod, [NODE.obj()], [running])["n1"] == SUCCESS
