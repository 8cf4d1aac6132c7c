"""Kinds that CustomResourceDefinitions add to the embedded server.

Covers ``ksched.apiserver.custom_definitions`` too.
"""

from __future__ import annotations

from typing import Any

import pytest

from ksched.api.watched_kinds import Unstructured, WatchedKind
from ksched.testing import custom_resource_definition

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "/apis/example.com/v1"
THINGS = f"{GROUP}/namespaces/default/things"
KIND: WatchedKind[Unstructured] = WatchedKind.custom(
    Unstructured, group="example.com", version="v1", plural="things", kind="Thing"
)


def thing(name: str, **spec: Any) -> dict[str, Any]:
    kind = {"apiVersion": "example.com/v1", "kind": "Thing"}
    return {**kind, "metadata": {"name": name}, "spec": spec}


async def test_a_definition_is_served_as_soon_as_it_is_stored(client: Any) -> None:
    assert (await client.respond("GET", THINGS)).status == 404
    stored = await client.create(DEFINITIONS, custom_resource_definition(KIND))
    assert {one["type"] for one in stored["status"]["conditions"] if one["status"] == "True"} == {
        "NamesAccepted",
        "Established",
    }
    groups = await client.get("/apis")
    assert "example.com" in [group["name"] for group in groups["groups"]]
    [listed] = (await client.get(GROUP))["resources"]
    assert (listed["name"], listed["kind"], listed["namespaced"]) == ("things", "Thing", True)


async def test_objects_are_created_read_replaced_patched_and_deleted(client: Any) -> None:
    await client.create(DEFINITIONS, custom_resource_definition(KIND))
    first = await client.create(THINGS, thing("a", color="red"))
    assert (first["kind"], first["metadata"]["generation"]) == ("Thing", 1)
    assert await client.names(f"{GROUP}/things") == ["a"]
    first["spec"] = {"color": "blue"}
    second = await client.ok("PUT", f"{THINGS}/a", first)
    assert second["metadata"]["generation"] == 2
    assert (await client.send("PUT", f"{THINGS}/a", first))[0] == 409
    status, third = await client.patch(f"{THINGS}/a", {"spec": {"size": 3}}, "merge")
    assert (status, third["spec"]) == (200, {"color": "blue", "size": 3})
    assert (await client.patch(f"{THINGS}/a", {}, "strategic"))[0] == 415
    assert (await client.send("POST", THINGS, {**thing("b"), "kind": "Other"}))[0] == 400
    await client.ok("DELETE", f"{THINGS}/a")
    assert await client.names(THINGS) == []


async def test_objects_go_with_their_definition(client: Any) -> None:
    await client.create(DEFINITIONS, custom_resource_definition(KIND))
    await client.create(THINGS, thing("a"))
    await client.ok("DELETE", f"{DEFINITIONS}/things.example.com")
    assert (await client.respond("GET", THINGS)).status == 404
    await client.create(DEFINITIONS, custom_resource_definition(KIND))
    assert await client.names(THINGS) == []


async def test_a_restored_server_serves_what_it_served(client: Any) -> None:
    before = client.server.store.copy()
    await client.create(DEFINITIONS, custom_resource_definition(KIND))
    client.server.store.restore(before)
    assert (await client.respond("GET", THINGS)).status == 404


@pytest.mark.parametrize(
    ("change", "field"),
    [
        pytest.param({"group": "other.com"}, "metadata.name", id="another group"),
        pytest.param({"scope": "World"}, "spec.scope", id="scope"),
        pytest.param({"versions": []}, "spec.versions", id="no version"),
        pytest.param({"names": {"plural": "things"}}, "spec.names.kind", id="no kind"),
    ],
)
async def test_a_definition_that_cannot_be_served_is_refused(
    client: Any, change: dict[str, Any], field: str
) -> None:
    definition = custom_resource_definition(KIND)
    definition["spec"] |= change
    status, answer = await client.send("POST", DEFINITIONS, definition)
    assert status == 422
    assert field in [cause["field"] for cause in answer["details"]["causes"]]
