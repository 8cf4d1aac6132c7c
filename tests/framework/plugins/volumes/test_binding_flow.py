"""From a claim that waits to a bound pod, on the embedded API server with a volume controller.

plugins/volumebinding: Reserve, PreBind, Unreserve; binder.go: BindPodVolumes, checkBindings.

Covers ``ksched.framework.plugins.volumes.binder`` and
``ksched.framework.plugins.volumes.matching`` too.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ksched.api.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from ksched.api.storage import BIND_COMPLETED, SELECTED_NODE
from ksched.apiserver.faults import Fault, Faults, Rule
from ksched.apiserver.status_errors import StatusError
from ksched.framework import SUCCESS, CycleState, PodInfo, Status, unschedulable
from ksched.metrics import Metrics
from ksched.scheduling.pod_status import HOLD_SECONDS
from ksched.testing import Cluster, FakePlugin, cluster, make_node, make_pod
from ksched.testing.storage_builders import make_claim, make_storage_class, make_volume
from ksched.transport import MERGE_PATCH

STATIC = make_storage_class("static", "kubernetes.io/no-provisioner")
DYNAMIC = make_storage_class("dynamic")
NODES = [make_node("n1"), make_node("n2")]
POD = make_pod("web").pvc("data")


async def claim(c: Cluster, name: str = "data") -> Any:
    return msgspec.json.decode(await c.client.get(PERSISTENT_VOLUME_CLAIMS, "default", name))


async def volume(c: Cluster, name: str) -> Any:
    return msgspec.json.decode(await c.client.get(PERSISTENT_VOLUMES, "", name))


async def patch_claim(c: Cluster, patch: Any, name: str = "data") -> None:
    body = msgspec.json.encode(patch)
    where = (PERSISTENT_VOLUME_CLAIMS, "default", name, body)
    await c.client.patch(*where, content_type=MERGE_PATCH)


async def patch_volume(c: Cluster, name: str, patch: Any) -> None:
    body = msgspec.json.encode(patch)
    await c.client.patch(PERSISTENT_VOLUMES, "", name, body, content_type=MERGE_PATCH)


def writes(c: Cluster) -> list[tuple[str, str]]:
    """What the scheduler wrote of volumes and claims."""
    return [
        (one.verb, one.path)
        for one in c.requests
        if one.user == "system:kube-scheduler" and one.verb in ("update", "patch", "create")
        if one.resource.startswith("persistentvolume")
    ]


# -- it works -----------------------------------------------------------------------------------


async def test_a_claim_gets_the_smallest_volume_and_the_pod_its_node() -> None:
    async with cluster(nodes=NODES) as c, c.volume_controller():
        await c.create(STATIC, make_claim("data", "static", "5Gi"))
        small = (
            make_volume("small", "6Gi", "static")
            .on_node("n2")
            .merge({"spec": {"mountOptions": ["ro"]}})
        )
        await c.create(make_volume("large", "50Gi", "static").on_node("n2"), small)
        await c.settle()
        await c.create(POD)
        await c.settle()

        assert c.bound("web") == "n2"
        assert (await claim(c))["spec"]["volumeName"] == "small"
        written = await volume(c, "small")
        assert written["spec"]["claimRef"]["uid"] == (await claim(c))["metadata"]["uid"]
        assert written["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"] == "yes"
        assert written["spec"]["mountOptions"] == ["ro"], "fields unknown to ksched are kept"
        assert writes(c) == [("update", "/api/v1/persistentvolumes/small")]


async def test_a_volume_is_made_for_the_selected_node() -> None:
    async with cluster(nodes=NODES[:1]) as c, c.volume_controller(provision_seconds=7.5):
        odd = {"spec": {"dataSource": {"kind": "VolumeSnapshot", "name": "s"}}}
        await c.create(DYNAMIC, make_claim("data", "dynamic").merge(odd), POD)
        await c.settle()

        assert (await claim(c))["metadata"]["annotations"][SELECTED_NODE] == "n1"
        assert (await claim(c))["spec"]["dataSource"]["name"] == "s"
        assert "nominatedNodeName" not in c.pod("web")["status"], "most are bound before that"
        assert c.bound("web") is None
        await c.advance(HOLD_SECONDS)
        assert c.pod("web")["status"]["nominatedNodeName"] == "n1"
        await c.advance(7.4 - HOLD_SECONDS)
        assert c.bound("web") is None
        await c.advance(0.2)
        assert c.bound("web") == "n1"
        path = "/api/v1/namespaces/default/persistentvolumeclaims/data"
        assert writes(c) == [("update", path)]


async def test_a_claim_that_a_pod_names_twice_is_written_once() -> None:
    async with cluster(nodes=NODES[:1]) as c, c.volume_controller():
        claim = {"name": "again", "persistentVolumeClaim": {"claimName": "data"}}
        await c.create(DYNAMIC, make_claim("data", "dynamic"), POD.volume(claim))
        await c.settle()

        assert c.bound("web") == "n1"
        assert len(writes(c)) == 1


async def test_a_pod_with_bound_claims_writes_nothing() -> None:
    async with cluster(nodes=NODES) as c:
        await c.create(make_volume("v").on_node("n2"), make_claim("data").bound_to("v"), POD)
        await c.settle()

        assert c.bound("web") == "n2"
        assert writes(c) == []
        assert "nominatedNodeName" not in c.pod("web")["status"]


async def test_a_volume_reserved_by_hand_is_not_marked_as_the_controllers() -> None:
    data = make_claim("data", "static")
    async with cluster(nodes=NODES) as c, c.volume_controller(bind_seconds=3):
        reserved = make_volume("mine", "5Gi", "static").on_node("n1").reserved_for(data, uid="")
        await c.create(STATIC, reserved, make_volume("other", "1Gi", "static"), data, POD)
        await c.advance(10)

        assert c.bound("web") == "n1"
        assert (await claim(c))["spec"]["volumeName"] == "mine"
        mine = await volume(c, "mine")
        assert mine["spec"]["claimRef"]["uid"] == (await claim(c))["metadata"]["uid"]
        assert "pv.kubernetes.io/bound-by-controller" not in mine["metadata"].get("annotations", {})


async def test_two_pods_never_get_the_same_volume() -> None:
    async with cluster(nodes=NODES) as c, c.volume_controller(bind_seconds=5):
        await c.create(STATIC, *(make_volume(f"v{i}", "5Gi", "static") for i in range(4)))
        await c.advance(6)
        for i in range(4):
            await c.create(make_claim(f"data{i}", "static"), make_pod(f"p{i}").pvc(f"data{i}"))
        await c.advance(20)

        assert all(c.bound(f"p{i}") for i in range(4))
        names = {(await claim(c, f"data{i}"))["spec"]["volumeName"] for i in range(4)}
        assert len(names) == 4


async def test_a_claim_shared_by_two_pods_brings_them_together() -> None:
    async with cluster(nodes=4) as c, c.volume_controller(provision_seconds=5):
        await c.create(DYNAMIC, make_claim("data", "dynamic"))
        await c.create(*(make_pod(f"p{i}").pvc("data") for i in range(3)))
        await c.advance(20)

        assert c.bound("p0")
        assert {c.bound(f"p{i}") for i in range(3)} == {c.bound("p0")}


# -- it does not --------------------------------------------------------------------------------


def config(seconds: int) -> Any:
    args = {"bindTimeoutSeconds": seconds}
    profile = {"pluginConfig": [{"name": "VolumeBinding", "args": args}]}
    return {"profiles": [{"schedulerName": "default-scheduler", **profile}]}


async def test_a_pod_gives_up_after_the_bind_timeout_and_tries_again() -> None:
    metrics = Metrics()
    async with cluster(nodes=NODES[:1], config=config(20), metrics=metrics) as c:
        await c.create(DYNAMIC, make_claim("data", "dynamic"), POD)
        await c.advance(19.9)
        assert c.message("web") == ""
        await c.advance(0.2)

        assert metrics.volume_scheduling_stage_error.value("bind") == 1
        text = 'running PreBind plugin "VolumeBinding": binding volumes: context deadline exceeded'
        assert c.message("web") == text
        condition = c.condition("web")
        assert condition is not None
        assert condition["reason"] == "SchedulerError"
        await c.advance(3)
        async with c.volume_controller():
            await c.settle()
            assert c.bound("web") == "n1"


@pytest.mark.parametrize(
    ("patch", "problem"),
    [
        pytest.param(
            {"metadata": {"annotations": {SELECTED_NODE: None, "x": "y"}}},
            'provisioning failed for PVC "data"',
            id="the provisioner wants another node",
        ),
        pytest.param(
            {"metadata": {"annotations": None}},
            'selectedNode annotation reset for PVC "data"',
            id="all annotations are gone",
        ),
        pytest.param(
            {"metadata": {"annotations": {SELECTED_NODE: "n9"}}},
            'provisioning failed for PVC "data"',
            id="somebody selected another node",
        ),
    ],
)
async def test_a_claim_that_was_reverted_sends_the_pod_back(patch: Any, problem: str) -> None:
    async with cluster(nodes=NODES[:1]) as c:
        await c.create(DYNAMIC, make_claim("data", "dynamic"), POD)
        await c.settle()
        await patch_claim(c, patch)
        await c.settle()

        assert c.message("web") == (
            f'running PreBind plugin "VolumeBinding": binding volumes: {problem}'
        )


async def test_a_provisioned_volume_that_the_node_cannot_reach_sends_the_pod_back() -> None:
    async with cluster(nodes=NODES[:1]) as c:
        await c.create(DYNAMIC, make_claim("data", "dynamic"), POD)
        await c.settle()
        await c.create(make_volume("far").on_node("n9"))
        await patch_claim(c, {"spec": {"volumeName": "far"}})
        await c.advance(1)

        problem = 'pv "far" node affinity doesn\'t match node "n1": no matching NodeSelectorTerms'
        assert c.message("web").endswith(f"binding volumes: {problem}")


async def test_a_volume_taken_away_sends_the_pod_back_for_another() -> None:
    async with cluster(nodes=NODES[:1]) as c:
        await c.create(STATIC, make_volume("v1", "5Gi", "static"))
        await c.create(make_volume("v2", "6Gi", "static"), make_claim("data", "static"))
        for name in ("v1", "v2"):
            await c.client.patch(
                PERSISTENT_VOLUMES,
                "",
                name,
                b'{"status": {"phase": "Available"}}',
                subresource="status",
                content_type=MERGE_PATCH,
            )
        await c.settle()
        await c.create(POD)
        await c.settle()
        assert (await volume(c, "v1"))["spec"]["claimRef"]["name"] == "data"
        await patch_volume(
            c, "v1", {"spec": {"claimRef": None}, "metadata": {"labels": {"x": "y"}}}
        )
        await c.settle()

        assert c.message("web").endswith('binding volumes: ClaimRef got reset for pv "v1"')


@pytest.mark.parametrize("gone", ["volume", "claim"])
async def test_an_object_that_is_deleted_while_it_is_waited_for(gone: str) -> None:
    async with cluster(nodes=NODES[:1]) as c:
        await c.create(STATIC, make_volume("v1", "5Gi", "static"), make_claim("data", "static"))
        path = f"{PERSISTENT_VOLUMES.path('', 'v1')}/status"
        body = b'{"status": {"phase": "Available"}}'
        await c.client.request("PATCH", path, body, content_type=MERGE_PATCH)
        await c.settle()
        await c.create(POD)
        await c.settle()
        where = {
            "volume": PERSISTENT_VOLUMES.path("", "v1"),
            "claim": PERSISTENT_VOLUME_CLAIMS.path("default", "data"),
        }
        await c.client.request("DELETE", where[gone], b"{}")
        await c.settle()

        key = {"volume": 'persistentvolumes "v1"', "claim": 'persistentvolumeclaims "default/data"'}
        problem = f"failed to check binding: {key[gone]} not found"
        notes = [event.note for event in c.events("web")]
        assert any(problem in note for note in notes), notes


async def test_a_deleted_pod_stops_waiting_and_frees_nothing_that_is_written() -> None:
    async with cluster(nodes=NODES[:1]) as c:
        await c.create(DYNAMIC, make_claim("data", "dynamic"), POD)
        await c.settle()
        await c.delete("web", grace_seconds=0)
        await c.advance(2)

        assert not c.exists("web")
        assert c.scheduler.cache.statistics().pods == 0
        assert (await claim(c))["metadata"]["annotations"][SELECTED_NODE] == "n1"
        # The next pod of the claim goes where the volume is being made.
        await c.add_nodes([make_node("n2")])
        await c.create(make_pod("next").pvc("data"))
        async with c.volume_controller():
            await c.advance(5)
            assert c.bound("next") == "n1"


async def test_a_node_that_goes_while_volumes_are_bound_fails_the_pod() -> None:
    async with cluster(nodes=NODES[:1]) as c:
        await c.create(DYNAMIC, make_claim("data", "dynamic"), POD)
        await c.settle()
        await c.delete_node("n1")
        await c.advance(1)

        notes = [event.note for event in c.events("web")]
        assert any('failed to get node "n1": node "n1" not found' in note for note in notes), notes


# -- trouble on the way -------------------------------------------------------------------------


async def test_a_claim_changed_since_the_decision_is_a_conflict_and_the_pod_tries_again() -> None:
    late = Rule(Fault(event_delay_seconds=3), "watch", "persistentvolumeclaims", times=None)
    async with (
        cluster(nodes=NODES[:1], faults=Faults([late])) as c,
        c.volume_controller(provision_seconds=1),
    ):
        await c.create(DYNAMIC, make_claim("data", "dynamic"))
        await c.advance(4)
        await patch_claim(c, {"metadata": {"labels": {"touched": "1"}}})
        await c.create(POD)
        await c.settle()

        assert c.message("web") == (
            'running PreBind plugin "VolumeBinding": Operation cannot be fulfilled on '
            'persistentvolumeclaims "data": the object has been modified; please apply your '
            "changes to the latest version and try again"
        )
        assert writes(c) == []
        await c.advance(30)
        assert c.bound("web") == "n1"
        assert (await claim(c))["metadata"]["labels"] == {"touched": "1"}


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(answer=StatusError(409, "Conflict", "no")), id="somebody wrote first"),
        pytest.param(Fault(lose_response=True), id="the answer was lost"),
        pytest.param(Fault(answer=StatusError(500, "InternalError", "no")), id="the server is ill"),
    ],
)
async def test_a_write_that_failed_is_made_good_by_the_next_attempt(fault: Fault) -> None:
    faults = Faults([Rule(fault, "update", "persistentvolumes")])
    async with cluster(nodes=NODES[:1], faults=faults) as c, c.volume_controller(bind_seconds=0.1):
        await c.create(STATIC, make_volume("v1", "5Gi", "static"), make_claim("data", "static"))
        await c.advance(1)
        await c.create(POD)
        await c.advance(10)

        assert c.bound("web") == "n1"
        assert len(faults.fired) == 1
        assert (await claim(c))["spec"]["volumeName"] == "v1"
        assert BIND_COMPLETED in (await claim(c))["metadata"]["annotations"]


async def test_promises_of_a_rejected_pod_are_free_for_others() -> None:
    """A plugin after VolumeBinding says no: the only volume goes to the next pod."""

    def reserve(state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return unschedulable("not you") if pod.name == "p1" else SUCCESS

    gate = FakePlugin("Gate", reserve=reserve)
    async with cluster(nodes=NODES[:1], plugins=[gate]) as c, c.volume_controller():
        await c.create(STATIC, make_volume("v1", "5Gi", "static"))
        await c.settle()
        await c.create(make_claim("first", "static"), make_pod("p1").pvc("first"))
        await c.settle()
        assert c.message("p1") == "0/1 nodes are available: 1 not you."
        await c.create(make_claim("second", "static"), make_pod("p2").pvc("second"))
        await c.settle()

        assert c.bound("p2") == "n1"


async def test_two_profiles_do_not_promise_the_same_volume() -> None:
    profiles = {"profiles": [{"schedulerName": "default-scheduler"}, {"schedulerName": "other"}]}
    async with cluster(nodes=NODES[:1], config=profiles) as c, c.volume_controller(bind_seconds=5):
        await c.create(STATIC, make_volume("v1", "5Gi", "static"))
        await c.advance(6)
        await c.create(make_claim("first", "static"), make_claim("second", "static"))
        await c.create(make_pod("p1").pvc("first"))
        await c.create(make_pod("p2").pvc("second").scheduler("other"))
        await c.settle()

        assert c.message("p2") == (
            "0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind. "
            "no new claims to deallocate, preemption: 0/1 nodes are available: "
            "1 Preemption is not helpful for scheduling."
        )
        assert len(writes(c)) == 1
