"""pods/binding, as the real server answers it."""

from __future__ import annotations

PODS = "/api/v1/namespaces/default/pods"


async def test_a_bound_pod_shows_its_node_and_condition(client):
    await client.create_pod("web")
    status, answer = await client.bind("web", "n1")
    assert (status, answer["status"], answer["kind"]) == (201, "Success", "Status")
    pod = await client.get(f"{PODS}/web")
    assert pod["spec"]["nodeName"] == "n1"
    [condition] = pod["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    assert pod["metadata"]["generation"] == 1
