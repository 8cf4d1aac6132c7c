"""plugins/volumebinding/volume_binding.go, binder.go: which nodes a pod's claims allow.

Covers ``ksched.framework.plugins.volumes.capacities``, ``ksched.framework.plugins.volumes.claims``
and ``ksched.framework.plugins.volumes.finding`` too.
"""

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
    error,
    unresolvable,
)
from ksched.framework.plugins.volumes.volume_binding import VolumeBinding
from ksched.testing.builders import Builder, PodBuilder, make_node, make_pod
from ksched.testing.plugin_runner import PluginBench, run_filter, run_hint
from ksched.testing.storage import storage_handle
from ksched.testing.storage_builders import (
    make_capacity,
    make_claim,
    make_csi_driver,
    make_csi_node,
    make_storage_class,
    make_volume,
)

ZONE = "topology.kubernetes.io/zone"
NODES = [make_node("n1").label({ZONE: "a"}), make_node("n2").label({ZONE: "b"})]
POD = make_pod("web").pvc("data")
BOUND = make_claim("data").bound_to("v")
STATIC = make_storage_class("static", "kubernetes.io/no-provisioner")
WAITS = make_claim("data", "static", "5Gi")
DYNAMIC = make_storage_class("dynamic")
MADE = make_claim("data", "dynamic", "5Gi")

FAR = unresolvable("node(s) didn't match PersistentVolume's node affinity")
NONE = unresolvable("node(s) didn't find available persistent volumes to bind")
NO_ROOM = unresolvable("node(s) did not have enough free storage")
GONE = unresolvable("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)")
UNBOUND = unresolvable("pod has unbound immediate PersistentVolumeClaims")

NAMED = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n9"]}]}

Statuses = tuple[Status, Status]


def judge(objects: tuple[Builder[Any], ...], pod: PodBuilder = POD) -> Statuses:
    plugin = VolumeBinding(None, storage_handle(*objects))
    answers = run_filter(plugin, pod.obj(), [node.obj() for node in NODES])
    return answers["n1"], answers["n2"]


def both(status: Status) -> Statuses:
    return status, status


def fits(name: str = "v", capacity: str = "10Gi") -> Any:
    return make_volume(name, capacity, "static")


@pytest.mark.parametrize(
    ("objects", "statuses"),
    [
        pytest.param(
            (), both(unresolvable('persistentvolumeclaim "data" not found')), id="missing"
        ),
        pytest.param(
            (BOUND.phase("Lost"),),
            both(
                unresolvable(
                    'persistentvolumeclaim "data" bound to non-existent persistentvolume "v"'
                )
            ),
            id="lost",
        ),
        pytest.param(
            (BOUND.terminating(),),
            both(unresolvable('persistentvolumeclaim "data" is being deleted')),
            id="being deleted",
        ),
        pytest.param((make_claim("data"),), both(UNBOUND), id="without a class"),
        pytest.param((MADE,), both(UNBOUND), id="of a class that does not exist"),
        pytest.param(
            (make_claim("data", "now"), make_storage_class("now", waits=False)),
            both(UNBOUND),
            id="of an immediate class",
        ),
        pytest.param(
            (MADE.named_volume("v"), DYNAMIC, make_volume("v")),
            both(UNBOUND),
            id="with a volume that is not bound yet",
        ),
        pytest.param((BOUND,), both(GONE), id="bound to a volume that is gone"),
        pytest.param((BOUND, make_volume("v")), both(SUCCESS), id="bound, reachable everywhere"),
        pytest.param((BOUND, make_volume("v").on_node("n2")), (FAR, SUCCESS), id="bound on a node"),
        pytest.param(
            (BOUND, make_volume("v").on_node("n1").on_node("n2")), both(SUCCESS), id="either node"
        ),
        pytest.param(
            (BOUND, make_volume("v").merge({"spec": {"nodeAffinity": {}}})),
            both(SUCCESS),
            id="bound, an affinity that asks for nothing",
        ),
        pytest.param(
            (
                BOUND,
                make_volume("v").merge(
                    {"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": []}}}}
                ),
            ),
            both(FAR),
            id="bound, an affinity without terms",
        ),
        pytest.param(
            (
                BOUND,
                make_volume("v").merge(
                    {"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [NAMED]}}}}
                ),
            ),
            both(SUCCESS),
            id="bound, an affinity to a name, which upstream does not look at",
        ),
        pytest.param(
            (
                make_claim("data", request="5Gi")
                .bound_to("v")
                .annotation({"volume.beta.kubernetes.io/storage-class": "x"}),
                make_volume("v"),
            ),
            both(SUCCESS),
            id="bound, an old annotation for the class",
        ),
    ],
)
def test_a_claim_must_be_usable(objects: tuple[Builder[Any], ...], statuses: Statuses) -> None:
    assert judge(objects) == statuses


@pytest.mark.parametrize(
    ("volumes", "statuses"),
    [
        pytest.param((), both(NONE), id="no volume"),
        pytest.param((fits(),), both(SUCCESS), id="one for every node"),
        pytest.param((fits().on_node("n1"),), (SUCCESS, NONE), id="one on a node"),
        pytest.param((fits(capacity="4Gi"),), both(NONE), id="too small"),
        pytest.param((fits(capacity="5Gi"),), both(SUCCESS), id="just large enough"),
        pytest.param((fits().phase("Released"),), both(NONE), id="not available"),
        pytest.param((make_volume("v", "10Gi", "other"),), both(NONE), id="another class"),
        pytest.param(
            (fits().merge({"spec": {"volumeMode": "Block"}}),), both(NONE), id="another mode"
        ),
        pytest.param(
            (make_volume("v", "10Gi", "static", modes=["ReadOnlyMany"]),),
            both(NONE),
            id="another access mode",
        ),
        pytest.param(
            (fits().merge({"spec": {"volumeAttributesClassName": "gold"}}),),
            both(NONE),
            id="another attributes class",
        ),
        pytest.param(
            (fits().merge({"metadata": {"deletionTimestamp": "2023-11-14T22:13:20Z"}}),),
            both(NONE),
            id="being deleted",
        ),
        pytest.param(
            (fits().reserved_for(make_claim("other")),), both(NONE), id="reserved for another claim"
        ),
        pytest.param(
            (fits().reserved_for(WAITS, uid="former"),), both(NONE), id="reserved for its namesake"
        ),
        pytest.param((fits().reserved_for(WAITS),), both(SUCCESS), id="reserved for it"),
        pytest.param((fits().reserved_for(WAITS, uid=""),), both(SUCCESS), id="reserved by hand"),
        pytest.param(
            (fits().reserved_for(WAITS).on_node("n1"), fits("w")),
            (SUCCESS, NONE),
            id="nothing but the reserved one will do",
        ),
        pytest.param(
            (fits().reserved_for(WAITS, uid="").phase("Pending").label(x="y"),),
            both(SUCCESS),
            id="a reserved one need not be available yet",
        ),
    ],
)
def test_a_waiting_claim_needs_a_volume_that_fits(
    volumes: tuple[Builder[Any], ...], statuses: Statuses
) -> None:
    assert judge((STATIC, WAITS, *volumes)) == statuses


def test_a_claim_may_select_volumes_by_label() -> None:
    choosy = WAITS.merge({"spec": {"selector": {"matchLabels": {"tier": "gold"}}}})
    volumes = fits("a").on_node("n1").label(tier="gold"), fits("b").on_node("n2")
    assert judge((STATIC, choosy, *volumes)) == (SUCCESS, NONE)


def test_a_selector_that_cannot_be_parsed_fails_the_attempt() -> None:
    odd = [{"key": "tier", "operator": "Near"}]
    broken = WAITS.merge({"spec": {"selector": {"matchExpressions": odd}}})
    text = (
        'error creating internal label selector for claim: default/data: "Near" is not a valid '
        "label selector operator"
    )
    assert judge((STATIC, broken, fits())) == both(error(text))


@pytest.mark.parametrize(
    ("objects", "statuses"),
    [
        pytest.param((DYNAMIC,), both(SUCCESS), id="anywhere"),
        pytest.param((DYNAMIC.allowed_in(ZONE, "a"),), (SUCCESS, NONE), id="in a zone"),
        pytest.param(
            (DYNAMIC.allowed_in(ZONE, "a").allowed_in(ZONE, "b"),), both(SUCCESS), id="in two zones"
        ),
        pytest.param(
            (DYNAMIC.merge({"allowedTopologies": [{}]}),), both(NONE), id="in no zone at all"
        ),
        pytest.param((DYNAMIC.allowed_in(ZONE),), both(NONE), id="in an empty list of zones"),
        pytest.param((make_storage_class("dynamic", ""),), both(NONE), id="by nobody"),
        pytest.param(
            (DYNAMIC, make_csi_driver(storage_capacity=False)),
            both(SUCCESS),
            id="a driver without capacities",
        ),
        pytest.param((DYNAMIC, make_csi_driver()), both(NO_ROOM), id="no capacity known"),
        pytest.param(
            (DYNAMIC, make_csi_driver(), make_capacity("c", "dynamic", "5Gi")),
            both(SUCCESS),
            id="just enough room",
        ),
        pytest.param(
            (DYNAMIC, make_csi_driver(), make_capacity("c", "dynamic", "4Gi")),
            both(NO_ROOM),
            id="too little room",
        ),
        pytest.param(
            (DYNAMIC, make_csi_driver(), make_capacity("c", "dynamic", "9Gi", {ZONE: "b"})),
            (NO_ROOM, SUCCESS),
            id="room in a zone",
        ),
        pytest.param(
            (DYNAMIC, make_csi_driver(), make_capacity("c", "other", "9Gi")),
            both(NO_ROOM),
            id="room in another class",
        ),
        pytest.param(
            (
                DYNAMIC,
                make_csi_driver(),
                make_capacity("c", "dynamic", "9Gi").merge({"maximumVolumeSize": "1Gi"}),
            ),
            both(NO_ROOM),
            id="room in pieces that are too small",
        ),
        pytest.param(
            (
                DYNAMIC,
                make_csi_driver(),
                make_capacity("c", "dynamic", "9Gi").merge({"nodeTopology": None}),
            ),
            both(NO_ROOM),
            id="room that no node can reach",
        ),
    ],
)
def test_a_volume_can_be_made(objects: tuple[Builder[Any], ...], statuses: Statuses) -> None:
    assert judge((MADE, *objects)) == statuses


def test_a_claim_with_a_selected_node_stays_there() -> None:
    assert judge((MADE.selected_node("n2"), DYNAMIC)) == (NONE, SUCCESS)
    assert judge((MADE.selected_node("n9"), DYNAMIC)) == both(NONE)
    # What was selected is provisioned: a volume that would fit is not looked at.
    volume = make_volume("v", "10Gi", "static").on_node("n2")
    assert judge((WAITS.selected_node("n2"), STATIC, volume)) == both(NONE)


def test_reasons_come_in_upstreams_order() -> None:
    pod = POD.pvc("second").pvc("third")
    waiting = make_claim("second", "static")
    gone, far = make_claim("third").bound_to("gone"), make_volume("v").on_node("n9")
    conflict, none, missing = FAR.reasons[0], NONE.reasons[0], GONE.reasons[0]
    everything = BOUND, far, STATIC, waiting, gone
    assert judge(everything, pod) == both(unresolvable(conflict, none))
    assert judge((BOUND, make_volume("v"), STATIC, waiting, gone), pod) == both(
        unresolvable(none, missing)
    )


def test_each_claim_of_a_pod_gets_a_volume_of_its_own() -> None:
    pod = POD.pvc("second")
    objects = STATIC, WAITS, make_claim("second", "static", "1Gi")
    assert judge((*objects, fits("a").on_node("n1")), pod) == both(NONE)
    assert judge((*objects, fits("a").on_node("n1"), fits("b").on_node("n1")), pod) == (
        SUCCESS,
        NONE,
    )
    small = make_volume("small", "2Gi", "static").on_node("n2")
    assert judge((*objects, fits("a"), small), pod) == (NONE, SUCCESS)


def test_a_class_without_a_mode_fails_the_attempt() -> None:
    broken = DYNAMIC.merge({"volumeBindingMode": None})
    text = error('VolumeBindingMode not set for StorageClass "dynamic"')
    assert judge((MADE, broken)) == both(text)


def test_zones_of_volumes_from_before_csi_are_the_drivers_where_it_took_over() -> None:
    key = "topology.ebs.csi.aws.com/zone"
    nodes = [node.label({key: "b"}).obj() for node in NODES]
    volume = (
        make_volume("v").reachable_from(ZONE, "a").source(awsElasticBlockStore={"volumeID": "x"})
    )
    for migrated, statuses in (((), (SUCCESS, FAR)), (("kubernetes.io/aws-ebs",), (FAR, FAR))):
        csi_nodes = [make_csi_node(name).migrated(*migrated) for name in ("n1", "n2")]
        plugin = VolumeBinding(None, storage_handle(BOUND, volume, *csi_nodes))
        answers = run_filter(plugin, POD.obj(), nodes)
        assert (answers["n1"], answers["n2"]) == statuses


def test_a_pod_without_claims_is_skipped_at_every_point() -> None:
    bench = PluginBench([node.obj() for node in NODES])
    plugin, state = VolumeBinding(None, storage_handle()), CycleState()
    pod = bench.pod_info(make_pod().volume({"emptyDir": {}}).obj())
    assert plugin.pre_filter(state, pod, bench.snapshot).is_skip
    assert plugin.pre_score(state, pod, bench.snapshot.table.all()).is_skip
    assert plugin.reserve(state, pod, "n1").is_success
    assert plugin.pre_bind_pre_flight(state, pod, "n1").is_skip
    plugin.unreserve(state, pod, "n1")


# -- wake-ups -----------------------------------------------------------------------------------

CSI_POD = POD.volume({"csi": {"driver": "csi.example"}})


@pytest.mark.parametrize(
    ("resource", "old", "new", "wakes"),
    [
        pytest.param(Resource.STORAGE_CLASS, None, DYNAMIC, True, id="a new class"),
        pytest.param(
            Resource.STORAGE_CLASS, DYNAMIC, DYNAMIC.allowed_in(ZONE, "a"), True, id="topologies"
        ),
        pytest.param(Resource.STORAGE_CLASS, DYNAMIC, DYNAMIC.label(x="y"), False, id="its labels"),
        pytest.param(Resource.PERSISTENT_VOLUME_CLAIM, None, BOUND, True, id="its claim"),
        pytest.param(Resource.PERSISTENT_VOLUME_CLAIM, MADE, BOUND, True, id="its claim changed"),
        pytest.param(
            Resource.PERSISTENT_VOLUME_CLAIM, None, make_claim("other"), False, id="another claim"
        ),
        pytest.param(
            Resource.PERSISTENT_VOLUME_CLAIM,
            None,
            make_claim("data", namespace="other"),
            False,
            id="a claim of another namespace",
        ),
        pytest.param(
            Resource.PERSISTENT_VOLUME_CLAIM,
            None,
            make_claim("web-scratch"),
            True,
            id="the claim of its ephemeral volume",
        ),
        pytest.param(Resource.PERSISTENT_VOLUME, None, make_volume(), True, id="any volume"),
        pytest.param(Resource.NODE, None, NODES[0], True, id="a new node"),
        pytest.param(Resource.CSI_NODE, None, make_csi_node("n1"), True, id="a new CSINode"),
        pytest.param(
            Resource.CSI_NODE,
            make_csi_node("n1"),
            make_csi_node("n1").migrated("x"),
            True,
            id="a migrated plugin",
        ),
        pytest.param(
            Resource.CSI_NODE,
            make_csi_node("n1"),
            make_csi_node("n1", csi_example=3),
            False,
            id="the limit of a CSINode",
        ),
        pytest.param(
            Resource.CSI_DRIVER,
            make_csi_driver(),
            make_csi_driver(storage_capacity=False),
            True,
            id="its driver no longer counts",
        ),
        pytest.param(
            Resource.CSI_DRIVER,
            make_csi_driver(storage_capacity=False),
            make_csi_driver(),
            False,
            id="its driver begins to count",
        ),
        pytest.param(
            Resource.CSI_DRIVER,
            make_csi_driver("other"),
            make_csi_driver("other", storage_capacity=False),
            False,
            id="another driver",
        ),
        pytest.param(
            Resource.CSI_STORAGE_CAPACITY, None, make_capacity("c", "x"), True, id="a new capacity"
        ),
        pytest.param(
            Resource.CSI_STORAGE_CAPACITY,
            make_capacity("c", "x", "1Gi"),
            make_capacity("c", "x", "2Gi"),
            True,
            id="more room",
        ),
        pytest.param(
            Resource.CSI_STORAGE_CAPACITY,
            make_capacity("c", "x"),
            make_capacity("c", "x", "2Gi"),
            True,
            id="room where none was known",
        ),
        pytest.param(
            Resource.CSI_STORAGE_CAPACITY,
            make_capacity("c", "x", "2Gi"),
            make_capacity("c", "x", "2048Mi"),
            False,
            id="the same room",
        ),
        pytest.param(
            Resource.CSI_STORAGE_CAPACITY,
            make_capacity("c", "x", "2Gi"),
            make_capacity("c", "x"),
            False,
            id="room no longer known",
        ),
    ],
)
def test_wakes_for_what_may_help(
    resource: Resource, old: Builder[Any] | None, new: Builder[Any], wakes: bool
) -> None:
    event = ClusterEvent(resource, Action.ADD if old is None else Action.UPDATE)
    before = None if old is None else old.obj()
    plugin, pod = VolumeBinding(None, storage_handle()), CSI_POD.ephemeral("scratch")
    hint = run_hint(plugin, event, pod.obj(), before, new.obj())
    assert hint is (QueueingHint.QUEUE if wakes else QueueingHint.SKIP)
