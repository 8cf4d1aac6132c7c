"""GET and LIST: shape, pages, selectors, versions."""

from __future__ import annotations

import msgspec
import pytest

from ksched.api.resources import EVENTS, NODES, PODS, ApiResource
from ksched.client.rest import Selection
from ksched.errors import ApiError, Gone, NotFound, Unavailable

pytestmark = pytest.mark.real_time


def event(name: str, namespace: str) -> dict[str, object]:
    return {
        "metadata": {"name": name, "namespace": namespace},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "contract",
        "reportingInstance": "contract-1",
        "action": "Testing",
        "reason": "Tested",
        "type": "Normal",
        "regarding": {"kind": "Pod", "name": "web", "namespace": namespace},
    }


async def test_a_list_names_its_kind_and_version_and_items_do_not(api):
    pod = await api.create_pod("web")

    listed = await api.list(PODS)

    assert (listed["kind"], listed["apiVersion"]) == ("PodList", "v1")
    assert int(listed["metadata"]["resourceVersion"]) >= int(pod["metadata"]["resourceVersion"])
    [item] = listed["items"]
    assert not {"kind", "apiVersion"} & item.keys()
    assert item["metadata"]["uid"] == pod["metadata"]["uid"]


async def test_an_empty_list_has_items(api):
    assert (await api.list(PODS))["items"] == []


async def test_pages_are_one_consistent_list(api):
    for name in "abcde":
        await api.create_pod(name)
    first = await api.list(PODS, "?limit=2")
    await api.create_pod("bb")
    await api.delete(PODS, "c")

    token = first["metadata"]["continue"]
    second = await api.list(PODS, f"?limit=2&continue={token}")
    third = await api.list(PODS, f"?limit=2&continue={second['metadata']['continue']}")

    pages = [first, second, third]
    assert [[item["metadata"]["name"] for item in page["items"]] for page in pages] == [
        ["a", "b"],
        ["c", "d"],
        ["e"],
    ]
    assert [page["metadata"].get("remainingItemCount") for page in pages] == [3, 1, None]
    assert len({page["metadata"]["resourceVersion"] for page in pages}) == 1
    assert not third["metadata"].get("continue")


async def test_pages_of_a_selection_do_not_count_what_remains(api):
    for name in "abc":
        await api.create_pod(name, metadata={"labels": {"app": "web"}})

    page = await api.list(PODS, "?limit=1&labelSelector=app=web")

    assert page["metadata"]["continue"]
    assert "remainingItemCount" not in page["metadata"]


async def test_the_client_reads_pages_to_the_end(api):
    names = [f"p{number:02}" for number in range(7)]
    for name in names:
        await api.create_pod(name)

    seen, token = [], ""
    while True:
        page = await api.client.list_page(
            PODS, Selection(api.namespace), limit=3, continue_token=token
        )
        seen += [msgspec.json.decode(item)["metadata"]["name"] for item in page.items]
        token = page.metadata.continue_token
        if not token:
            break

    assert seen == names


async def test_a_page_of_forgotten_history_is_gone_but_offers_the_rest(api):
    # Events, because a real server reads them from etcd; of others it keeps recent versions.
    for name in "abc":
        await api.create(EVENTS, event(name, api.namespace))
    first = await api.list(EVENTS, "?limit=1")
    await api.create(EVENTS, event("d", api.namespace))
    api.forget_history()

    path = EVENTS.path(api.namespace)
    token = first["metadata"]["continue"]
    answer = await api.transport.request("GET", f"{path}?limit=1&continue={token}")
    status = msgspec.json.decode(answer.body)

    assert (answer.status, status["reason"]) == (410, "Expired")
    assert status["message"].startswith("The provided continue parameter is too old")
    rest = await api.list(EVENTS, f"?continue={status['metadata']['continue']}")
    assert [item["metadata"]["name"] for item in rest["items"]] == ["b", "c", "d"]


async def test_an_exact_version_is_served_until_it_is_forgotten(api):
    await api.create(EVENTS, event("a", api.namespace))
    version = (await api.list(EVENTS))["metadata"]["resourceVersion"]
    await api.create(EVENTS, event("b", api.namespace))
    exact = f"?resourceVersion={version}&resourceVersionMatch=Exact"
    then = await api.list(EVENTS, exact)

    api.forget_history()

    assert [item["metadata"]["name"] for item in then["items"]] == ["a"]
    assert then["metadata"]["resourceVersion"] == version
    with pytest.raises(Gone):
        await api.list(EVENTS, exact)


async def test_a_version_from_the_future_is_a_timeout(api):
    version = int((await api.list(PODS))["metadata"]["resourceVersion"]) + 100_000

    with pytest.raises(Unavailable, match="Too large resource version") as caught:
        await api.list(PODS, f"?resourceVersion={version}")

    assert (caught.value.code, caught.value.reason) == (504, "Timeout")


@pytest.mark.parametrize(
    ("query", "reason", "message"),
    [
        pytest.param(
            "?resourceVersion=x", "BadRequest", "invalid resource version", id="no number"
        ),
        pytest.param("?continue=x", "BadRequest", "continue", id="foreign continue token"),
        pytest.param(
            "?resourceVersionMatch=Exact",
            "Invalid",
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
            id="match without version",
        ),
        pytest.param(
            "?resourceVersion=0&resourceVersionMatch=Exact",
            "Invalid",
            'resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
            id="exactly any version",
        ),
        pytest.param(
            "?sendInitialEvents=true", "Invalid", "is forbidden for list", id="initial events"
        ),
        pytest.param("?labelSelector=a%20b", "BadRequest", "unable to parse", id="label selector"),
        pytest.param(
            "?fieldSelector=spec.hostname=x",
            "BadRequest",
            "field label not supported: spec.hostname",
            id="unknown field",
        ),
        pytest.param(
            "?fieldSelector=spec.nodeName", "BadRequest", "invalid selector", id="field selector"
        ),
    ],
)
async def test_bad_options_are_refused(api, query, reason, message):
    with pytest.raises(ApiError) as caught:
        await api.list(PODS, query)

    assert caught.value.code == {"BadRequest": 400, "Invalid": 422}[reason]
    assert caught.value.reason == reason
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        pytest.param("app=web", ["web-1", "web-2"], id="equal"),
        pytest.param("app==web", ["web-1", "web-2"], id="double equal"),
        pytest.param("app!=web", ["bare", "db"], id="unequal or absent"),
        pytest.param("app in (web,db),tier=1", ["db", "web-1"], id="in, and another"),
        pytest.param("app notin (web)", ["bare", "db"], id="not in or absent"),
        pytest.param("tier", ["db", "web-1"], id="present"),
        pytest.param("!tier", ["bare", "web-2"], id="absent"),
        pytest.param("tier>0", ["db", "web-1"], id="greater"),
        pytest.param("tier<1", [], id="less"),
        pytest.param("app in (nothing)", [], id="nothing"),
    ],
)
async def test_label_selectors_select(api, selector, names):
    await api.create_pod("bare")
    await api.create_pod("db", metadata={"labels": {"app": "db", "tier": "1"}})
    await api.create_pod("web-1", metadata={"labels": {"app": "web", "tier": "1"}})
    await api.create_pod("web-2", metadata={"labels": {"app": "web"}})

    assert await api.names(PODS, label_selector=selector) == names


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        pytest.param("spec.nodeName=", ["done", "free"], id="unbound"),
        pytest.param("spec.nodeName!=", ["bound"], id="bound"),
        pytest.param("spec.nodeName=n1", ["bound"], id="on a node"),
        pytest.param("status.phase=Pending", ["bound", "free"], id="phase"),
        pytest.param(
            "status.phase!=Succeeded,status.phase!=Failed", ["bound", "free"], id="not terminal"
        ),
        pytest.param("metadata.name=free", ["free"], id="name"),
        pytest.param("spec.schedulerName=other", ["free"], id="scheduler"),
        pytest.param("spec.restartPolicy=Never", ["free"], id="restart policy"),
        pytest.param("spec.hostNetwork=true", ["done"], id="host network"),
        pytest.param("status.nominatedNodeName=n2", ["free"], id="nominated node"),
    ],
)
async def test_field_selectors_of_pods_select(api, selector, names):
    await api.bind(await api.create_pod("bound"), "n1")
    await api.create_pod("done", hostNetwork=True)
    await api.patch(PODS, "done", {"status": {"phase": "Succeeded"}}, subresource="status")
    await api.create_pod("free", schedulerName="other", restartPolicy="Never")
    await api.patch(PODS, "free", {"status": {"nominatedNodeName": "n2"}}, subresource="status")

    assert await api.names(PODS, field_selector=selector) == names


async def test_nodes_are_selected_by_being_cordoned(api):
    await api.create_node("open")
    cordoned = {"metadata": {"name": api.name("cordoned")}, "spec": {"unschedulable": True}}
    await api.create(NODES, cordoned)

    selected = await api.names(NODES, field_selector="spec.unschedulable=true")

    assert selected == [api.name("cordoned")]


async def test_a_missing_object_is_not_found_by_name(api):
    with pytest.raises(NotFound, match='pods "ghost" not found') as caught:
        await api.get(PODS, "ghost")

    assert (caught.value.code, caught.value.reason) == (404, "NotFound")


async def test_what_is_served_can_be_asked(api):
    unknown = ApiResource("example.com", "v1", "things", "Thing")

    for resource in (PODS, EVENTS):
        answer = await api.send("GET", resource.root)
        assert resource.plural in {served["name"] for served in answer["resources"]}
    with pytest.raises(NotFound):
        await api.send("GET", unknown.root)
    with pytest.raises(NotFound, match="the server could not find the requested resource"):
        await api.send("GET", "/api/v1/things")
