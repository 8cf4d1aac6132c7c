"""POST, PUT and PATCH: optimistic concurrency, status, merge and strategic patches."""

from __future__ import annotations

import pytest

from ksched.api.resources import CONFIG_MAPS, LEASES, NODES, PODS
from ksched.errors import ApiError, Conflict, NotFound
from ksched.transport import MERGE_PATCH, STRATEGIC_MERGE_PATCH

pytestmark = pytest.mark.real_time

JSON_PATCH = "application/json-patch+json"


async def test_a_new_object_gets_its_identity_from_the_server(api):
    pod = await api.create_pod("web")

    metadata = pod["metadata"]
    assert (pod["kind"], pod["apiVersion"]) == ("Pod", "v1")
    assert metadata["generation"] == 1
    assert {"uid", "creationTimestamp", "resourceVersion"} <= metadata.keys()
    assert pod["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


async def test_a_new_pod_has_the_defaults(api):
    spec = (await api.create_pod("web"))["spec"]

    assert {
        key: spec[key]
        for key in (
            "schedulerName",
            "priority",
            "preemptionPolicy",
            "restartPolicy",
            "dnsPolicy",
            "terminationGracePeriodSeconds",
            "enableServiceLinks",
        )
    } == {
        "schedulerName": "default-scheduler",
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "terminationGracePeriodSeconds": 30,
        "enableServiceLinks": True,
    }
    assert spec["tolerations"] == [
        {
            "key": f"node.kubernetes.io/{key}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        }
        for key in ("not-ready", "unreachable")
    ]


async def test_limits_are_the_requests_nobody_gave(api):
    container = {
        "name": "c",
        "image": "pause:3.9",
        "resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "500m"}},
    }

    pod = await api.create_pod("web", containers=[container])

    requests = pod["spec"]["containers"][0]["resources"]["requests"]
    assert requests == {"cpu": "500m", "memory": "1Gi"}
    assert pod["status"]["qosClass"] == "Burstable"


async def test_a_name_can_be_left_to_the_server(api):
    pod = await api.create(PODS, api.pod("", metadata={"name": None, "generateName": "web-"}))

    assert pod["metadata"]["name"].startswith("web-")
    assert len(pod["metadata"]["name"]) == len("web-") + 5


async def test_a_name_is_taken_once(api):
    await api.create_pod("web")

    with pytest.raises(Conflict, match='pods "web" already exists') as caught:
        await api.create_pod("web")

    assert caught.value.reason == "AlreadyExists"


async def test_a_namespace_must_exist(api):
    pod = api.pod("web", metadata={"namespace": "nowhere"})

    with pytest.raises(NotFound, match='namespaces "nowhere" not found'):
        await api.send("POST", PODS.path("nowhere"), pod)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"containers": []}, "spec.containers: Required value", id="no containers"),
        pytest.param(
            {"tolerations": [{"key": "a", "operator": "Near"}]},
            'spec.tolerations[0].operator: Unsupported value: "Near"',
            id="operator of a toleration",
        ),
        pytest.param(
            {"nodeSelector": {"a b": "c"}}, "spec.nodeSelector: Invalid value", id="label key"
        ),
        pytest.param(
            {
                "topologySpreadConstraints": [
                    {"maxSkew": 0, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
                ]
            },
            "maxSkew: Invalid value: 0: must be greater than zero",
            id="skew",
        ),
        pytest.param(
            {"schedulingGates": [{"name": "a"}], "nodeName": "n1"},
            "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
            id="gated and bound",
        ),
        pytest.param({"priority": 5}, "the integer value of priority", id="priority of one's own"),
    ],
)
async def test_a_bad_pod_is_refused_by_field(api, change, message):
    with pytest.raises(ApiError) as caught:
        await api.create_pod("web", **change)

    assert (caught.value.code, caught.value.reason) in ((422, "Invalid"), (403, "Forbidden"))
    assert message in caught.value.message


# -- optimistic concurrency --------------------------------------------------------------------


async def test_of_two_writers_the_second_is_refused(api):
    first = await api.create_pod("web")
    second = {**first, "metadata": {**first["metadata"], "labels": {"by": "second"}}}
    first["metadata"]["labels"] = {"by": "first"}
    stored = await api.update(PODS, first)

    with pytest.raises(Conflict, match="the object has been modified") as caught:
        await api.update(PODS, second)

    assert caught.value.reason == "Conflict"
    assert int(stored["metadata"]["resourceVersion"]) > int(second["metadata"]["resourceVersion"])
    assert (await api.get(PODS, "web"))["metadata"]["labels"] == {"by": "first"}


async def test_a_write_without_a_version_overwrites(api):
    await api.create(CONFIG_MAPS, {"metadata": {"name": "settings"}, "data": {"a": "1"}})

    stored = await api.update(CONFIG_MAPS, {"metadata": {"name": "settings"}, "data": {"b": "2"}})

    assert stored["data"] == {"b": "2"}


async def test_a_lease_is_never_overwritten_blindly(api):
    lease = {"metadata": {"name": "lock"}, "spec": {"holderIdentity": "a"}}
    await api.create(LEASES, lease)

    with pytest.raises(ApiError) as caught:
        await api.update(LEASES, lease)

    assert (caught.value.code, caught.value.reason) == (422, "Invalid")
    assert "metadata.resourceVersion: Invalid value" in caught.value.message
    assert "must be specified for an update" in caught.value.message


async def test_nothing_changed_is_no_new_version(api):
    pod = await api.create_pod("web")

    again = await api.update(PODS, pod)
    patched = await api.patch(PODS, "web", {"metadata": {"labels": {}}})

    assert again["metadata"]["resourceVersion"] == pod["metadata"]["resourceVersion"]
    assert patched["metadata"]["resourceVersion"] == pod["metadata"]["resourceVersion"]


async def test_an_update_of_another_incarnation_is_a_conflict(api):
    old = await api.create_pod("web")
    await api.delete(PODS, "web")
    await api.create_pod("web")

    with pytest.raises(Conflict) as caught:
        await api.update(PODS, old)

    assert caught.value.reason == "Conflict"


async def test_an_update_of_nothing_is_not_found(api):
    with pytest.raises(NotFound):
        await api.update(PODS, api.pod("ghost"))


async def test_a_placed_pod_does_not_move(api):
    await api.bind(await api.create_pod("web"), "n1")

    with pytest.raises(ApiError, match="pod updates may not change fields other than") as caught:
        await api.patch(PODS, "web", {"spec": {"nodeName": "n2"}})

    assert (caught.value.code, caught.value.reason) == (422, "Invalid")


async def test_a_gate_can_be_taken_away_and_not_added(api):
    await api.create_pod("web", schedulingGates=[{"name": "a"}, {"name": "b"}])

    gate = {"schedulingGates": [{"$patch": "delete", "name": "a"}]}
    left = await api.patch(PODS, "web", {"spec": gate})

    assert left["spec"]["schedulingGates"] == [{"name": "b"}]
    with pytest.raises(ApiError, match="only deletion is allowed"):
        await api.patch(PODS, "web", {"spec": {"schedulingGates": [{"name": "c"}]}})


# -- status ------------------------------------------------------------------------------------


async def test_status_and_spec_have_doors_of_their_own(api):
    await api.create_node("n1")
    name = api.name("n1")
    node = await api.get(NODES, name)
    node["status"]["allocatable"] = {"cpu": "8"}
    node["spec"]["unschedulable"] = True

    by_status = await api.update(NODES, node, "status")
    assert by_status["status"]["allocatable"] == {"cpu": "8"}
    assert "unschedulable" not in by_status["spec"]

    by_status["status"]["allocatable"] = {"cpu": "16"}
    by_status["spec"]["unschedulable"] = True
    by_spec = await api.update(NODES, by_status)
    assert by_spec["status"]["allocatable"] == {"cpu": "8"}
    assert by_spec["spec"]["unschedulable"] is True


async def test_a_patch_of_the_status_merges_conditions_by_type(api):
    await api.create_pod("web")
    unready = {"type": "Ready", "status": "False"}
    rejected = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    await api.patch(PODS, "web", {"status": {"conditions": [unready]}}, subresource="status")
    patch = {
        "spec": {"schedulerName": "ignored"},
        "status": {"conditions": [{**rejected, "message": "no"}], "nominatedNodeName": "n1"},
    }

    pod = await api.patch(PODS, "web", patch, subresource="status")

    conditions = {each["type"]: each for each in pod["status"]["conditions"]}
    assert set(conditions) == {"Ready", "PodScheduled"}
    assert rejected.items() <= conditions["PodScheduled"].items()
    assert pod["status"]["nominatedNodeName"] == "n1"
    assert pod["spec"]["schedulerName"] == "default-scheduler"


async def test_the_client_patches_the_status_of_a_pod(api):
    await api.create_pod("web")
    for body in (
        b'{"status":{"nominatedNodeName":"n1"}}',
        b'{"status":{"nominatedNodeName":null}}',
    ):
        await api.client.patch_pod_status(api.namespace, "web", body)

    assert "nominatedNodeName" not in (await api.get(PODS, "web"))["status"]


# -- patches -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "patch", "taints"),
    [
        pytest.param(
            STRATEGIC_MERGE_PATCH,
            {"spec": {"taints": [{"key": "b", "effect": "NoExecute"}]}},
            [{"key": "b", "effect": "NoExecute"}],
            id="a strategic patch replaces a list without a key",
        ),
        pytest.param(
            MERGE_PATCH,
            {"spec": {"taints": [{"key": "b", "effect": "NoExecute"}]}},
            [{"key": "b", "effect": "NoExecute"}],
            id="a merge patch replaces any list",
        ),
        pytest.param(MERGE_PATCH, {"spec": {"taints": None}}, None, id="null takes away"),
        pytest.param(
            JSON_PATCH,
            [{"op": "add", "path": "/spec/taints/-", "value": {"key": "b", "effect": "NoExecute"}}],
            [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoExecute"}],
            id="a JSON patch adds to a list",
        ),
    ],
)
async def test_patches_of_lists(api, kind, patch, taints):
    name = api.name("n1")
    node = {"metadata": {"name": name}, "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    await api.create(NODES, node)

    patched = await api.patch(NODES, name, patch, content_type=kind)

    assert patched["spec"].get("taints") == taints


async def test_a_strategic_patch_meets_containers_by_name(api):
    containers = [{"name": "a", "image": "one:1"}, {"name": "b", "image": "two:1"}]
    await api.create_pod("web", containers=containers)

    change = {"spec": {"containers": [{"name": "b", "image": "two:2"}]}}
    pod = await api.patch(PODS, "web", change)

    images = {each["name"]: each["image"] for each in pod["spec"]["containers"]}
    assert images == {"a": "one:1", "b": "two:2"}


async def test_labels_are_merged_and_taken_away_one_by_one(api):
    await api.create_pod("web", metadata={"labels": {"a": "1", "b": "2"}})
    patch = {"metadata": {"labels": {"a": None, "c": "3"}}}

    pod = await api.patch(PODS, "web", patch, content_type=MERGE_PATCH)

    assert pod["metadata"]["labels"] == {"b": "2", "c": "3"}


async def test_a_patch_may_insist_on_a_version(api):
    pod = await api.create_pod("web")
    version = pod["metadata"]["resourceVersion"]
    patch = {"metadata": {"resourceVersion": version, "labels": {"a": "1"}}}
    await api.patch(PODS, "web", patch)

    with pytest.raises(Conflict, match="the object has been modified"):
        await api.patch(PODS, "web", {**patch, "metadata": {**patch["metadata"], "labels": {}}})


@pytest.mark.parametrize("subresource", ["", "status"])
async def test_a_patch_cannot_give_another_uid(api, subresource):
    await api.create_pod("web")

    with pytest.raises(ApiError, match=r"metadata\.uid: Invalid value") as caught:
        await api.patch(PODS, "web", {"metadata": {"uid": "other"}}, subresource=subresource)

    assert (caught.value.code, caught.value.reason) == (422, "Invalid")


async def test_an_update_for_another_pod_of_that_name_is_a_conflict(api):
    pod = await api.create_pod("web")
    pod["metadata"] |= {"uid": "other", "resourceVersion": ""}

    with pytest.raises(Conflict, match="UID in precondition: other"):
        await api.update(PODS, pod)


@pytest.mark.parametrize(
    ("kind", "code", "reason"),
    [
        pytest.param("text/plain", 415, "UnsupportedMediaType", id="no patch type"),
        pytest.param(STRATEGIC_MERGE_PATCH, 404, "NotFound", id="no such pod"),
    ],
)
async def test_patches_that_cannot_be(api, kind, code, reason):
    with pytest.raises(ApiError) as caught:
        await api.patch(PODS, "ghost", {"metadata": {"labels": {"a": "1"}}}, content_type=kind)

    assert (caught.value.code, caught.value.reason) == (code, reason)
