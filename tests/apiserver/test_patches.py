"""PATCH: JSON patch, merge patch, strategic merge, apply."""

from __future__ import annotations

from copy import deepcopy

import pytest

from ksched.apiserver.patches import json_patch, merge_patch
from ksched.apiserver.status_errors import StatusError
from ksched.apiserver.strategic import strategic_merge

PODS = "/api/v1/namespaces/default/pods"


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        pytest.param({"a": "b"}, {"a": "c"}, {"a": "c"}, id="replace"),
        pytest.param({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}, id="add"),
        pytest.param({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}, id="remove"),
        pytest.param({"a": ["b"]}, {"a": ["c"]}, {"a": ["c"]}, id="lists are values"),
        pytest.param({"a": {"b": "c"}}, {"a": {"b": None, "d": 1}}, {"a": {"d": 1}}, id="nested"),
        pytest.param({"a": "x"}, {"a": {"b": {"c": None}}}, {"a": {"b": {}}}, id="null vanishes"),
    ],
)
def test_merge_patch(target, patch, result):
    assert merge_patch(target, patch) == result


@pytest.mark.parametrize(
    ("operations", "result"),
    [
        pytest.param([{"op": "add", "path": "/a", "value": 1}], {"a": 1, "l": [1, 2]}, id="add"),
        pytest.param([{"op": "add", "path": "/l/-", "value": 3}], {"l": [1, 2, 3]}, id="append"),
        pytest.param([{"op": "add", "path": "/l/0", "value": 0}], {"l": [0, 1, 2]}, id="insert"),
        pytest.param([{"op": "remove", "path": "/l/0"}], {"l": [2]}, id="remove"),
        pytest.param([{"op": "replace", "path": "/l", "value": 5}], {"l": 5}, id="replace"),
        pytest.param([{"op": "move", "from": "/l", "path": "/m"}], {"m": [1, 2]}, id="move"),
        pytest.param(
            [{"op": "copy", "from": "/l", "path": "/m"}, {"op": "remove", "path": "/m/0"}],
            {"l": [1, 2], "m": [2]},
            id="copy is deep",
        ),
        pytest.param([{"op": "test", "path": "/l/1", "value": 2}], {"l": [1, 2]}, id="test"),
        pytest.param(
            [{"op": "add", "path": "/a~1b~0c", "value": 1}], {"l": [1, 2], "a/b~c": 1}, id="escape"
        ),
    ],
)
def test_json_patch(operations, result):
    assert json_patch({"l": [1, 2]}, operations) == result


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param({"op": "test", "path": "/l/1", "value": 9}, id="failed test"),
        pytest.param({"op": "remove", "path": "/nope"}, id="remove what is not there"),
        pytest.param({"op": "replace", "path": "/nope", "value": 1}, id="replace what is not"),
        pytest.param({"op": "add", "path": "/l/7", "value": 1}, id="beyond the end"),
        pytest.param({"op": "burn", "path": "/l"}, id="unknown operation"),
        pytest.param({"op": "add", "path": "l", "value": 1}, id="no pointer"),
    ],
)
def test_a_json_patch_that_cannot_be_applied_is_refused(operation):
    with pytest.raises(StatusError) as refused:
        json_patch({"l": [1, 2]}, [operation])
    assert refused.value.code == 422


READY = {"type": "Ready", "status": "True"}
SCHEDULED = {"type": "PodScheduled", "status": "False"}


@pytest.mark.parametrize(
    ("original", "patch", "result"),
    [
        pytest.param(
            {"conditions": [READY, SCHEDULED]},
            {"conditions": [{"type": "PodScheduled", "status": "True"}]},
            {"conditions": [READY, {"type": "PodScheduled", "status": "True"}]},
            id="conditions merge by type",
        ),
        pytest.param(
            {"conditions": [READY]},
            {
                "$setElementOrder/conditions": [{"type": "PodScheduled"}],
                "conditions": [SCHEDULED],
            },
            {"conditions": [SCHEDULED, READY]},
            id="a new element comes before what only the server has",
        ),
        pytest.param(
            {"containers": [{"name": "a"}, {"name": "b"}]},
            {
                "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
                "containers": [{"name": "b", "image": "x"}],
            },
            {"containers": [{"name": "b", "image": "x"}, {"name": "a"}]},
            id="order is the client's",
        ),
        pytest.param(
            {"containers": [{"name": "s"}, {"name": "a"}, {"name": "b"}]},
            {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]},
            {"containers": [{"name": "s"}, {"name": "b"}, {"name": "a"}]},
            id="order alone",
        ),
        pytest.param(
            {"conditions": [READY, SCHEDULED]},
            {"conditions": [{"type": "Ready", "$patch": "delete"}]},
            {"conditions": [SCHEDULED]},
            id="delete an element",
        ),
        pytest.param(
            {"conditions": [READY, SCHEDULED]},
            {"conditions": [{"type": "New"}, {"$patch": "replace"}]},
            {"conditions": [{"type": "New"}]},
            id="replace a list",
        ),
        pytest.param(
            {"nodeSelector": {"a": "b"}},
            {"nodeSelector": {"$patch": "replace", "c": "d"}},
            {"nodeSelector": {"c": "d"}},
            id="replace a map",
        ),
        pytest.param(
            {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}},
            {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}},
            {"strategy": {"type": "Recreate"}},
            id="retain keys",
        ),
        pytest.param(
            {"taints": [{"key": "a", "effect": "NoSchedule"}]},
            {"taints": [{"key": "b", "effect": "NoExecute"}]},
            {"taints": [{"key": "b", "effect": "NoExecute"}]},
            id="taints are replaced",
        ),
        pytest.param(
            {"finalizers": ["a", "b"]},
            {"finalizers": ["c"], "$deleteFromPrimitiveList/finalizers": ["a"]},
            {"finalizers": ["b", "c"]},
            id="finalizers are a set",
        ),
        pytest.param(
            {"containers": [{"name": "a", "ports": [{"containerPort": 80, "protocol": "TCP"}]}]},
            {"containers": [{"name": "a", "ports": [{"containerPort": 80, "name": "http"}]}]},
            {
                "containers": [
                    {
                        "name": "a",
                        "ports": [{"containerPort": 80, "protocol": "TCP", "name": "http"}],
                    }
                ]
            },
            id="ports of a container",
        ),
        pytest.param(
            {"ports": [{"port": 80}]},
            {"ports": [{"port": 80, "name": "http"}, {"port": 81}]},
            {"ports": [{"port": 80, "name": "http"}, {"port": 81}]},
            id="ports of a service",
        ),
        pytest.param(
            {"a": 1},
            {"b": {"c": None, "d": {"$patch": "delete"}}},
            {"a": 1, "b": {"d": {}}},
            id="directives do not get stored",
        ),
    ],
)
def test_strategic_merge(original, patch, result):
    assert strategic_merge(deepcopy(original), deepcopy(patch)) == result


def test_an_element_without_its_merge_key_is_refused():
    with pytest.raises(StatusError, match="does not contain declared merge key: type"):
        strategic_merge({"conditions": [READY]}, {"conditions": [{"status": "True"}]})


async def test_a_schedulers_status_patch(client):
    await client.create_pod("web")
    condition = {**SCHEDULED, "reason": "Unschedulable", "message": "0/1 nodes are available"}
    patch = {
        "status": {
            "$setElementOrder/conditions": [{"type": "PodScheduled"}],
            "conditions": [condition],
            "nominatedNodeName": "n1",
        }
    }
    _, pod = await client.patch(f"{PODS}/web/status", patch, "strategic")
    times = {"lastProbeTime": None, "lastTransitionTime": None}
    assert pod["status"]["conditions"] == [{**condition, **times}]
    assert pod["status"]["nominatedNodeName"] == "n1"
    clear = {"status": {"nominatedNodeName": None}}
    _, pod = await client.patch(f"{PODS}/web/status", clear, "strategic")
    assert "nominatedNodeName" not in pod["status"]
    assert pod["status"]["qosClass"] == "BestEffort"


async def test_a_patch_with_a_stale_version_is_a_conflict(client):
    await client.create_pod("web")
    stale = {"metadata": {"resourceVersion": "1", "labels": {"a": "b"}}}
    assert (await client.patch(f"{PODS}/web", stale, "merge"))[0] == 409


async def test_a_patch_of_what_is_not_there_is_not_found(client):
    assert (await client.patch(f"{PODS}/web", {}, "merge"))[0] == 404


async def test_apply_creates_then_merges(client):
    path = "/api/v1/namespaces/default/configmaps/cm?fieldManager=me"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm"}, "data": {"a": "1"}}
    status, _ = await client.patch(path, body, "apply")
    assert status == 201
    status, merged = await client.patch(path, {**body, "data": {"b": "2"}}, "apply")
    assert (status, merged["data"]) == (200, {"a": "1", "b": "2"})


async def test_apply_needs_a_field_manager(client):
    path = "/api/v1/namespaces/default/configmaps/cm"
    status, answer = await client.patch(path, {"metadata": {"name": "cm"}}, "apply")
    assert status == 422
    assert "fieldManager: Required value: is required for apply patch" in answer["message"]


async def test_other_patch_types_are_refused(client):
    await client.create_pod("web")
    status, answer = await client.send("PATCH", f"{PODS}/web", {}, "application/json")
    assert (status, answer["reason"]) == (415, "UnsupportedMediaType")


async def test_a_patch_cannot_rename(client):
    await client.create_pod("web")
    status, answer = await client.patch(f"{PODS}/web", {"metadata": {"name": "x"}}, "merge")
    assert status == 400
    assert "does not match the name on the URL" in answer["message"]
