"""Bytes to objects, and what happens to bytes that are none."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from ksched.api.decoding import (
    WRITTEN_CLAIM_BYTES,
    WRITTEN_CLAIMS,
    decode_items,
    decode_list,
    decode_metadata,
    decode_node,
    decode_pod,
    decode_status,
    decode_watch_event,
    decode_written_claim,
    decoder,
    decoder_of,
)
from ksched.api.devices import ResourceClaim
from ksched.api.objects import PodDisruptionBudget
from ksched.api.watched_kinds import watched_kind
from ksched.api.whole_objects import decode_whole_pod
from ksched.errors import InvalidObject
from ksched.testing import make_node, make_pod
from ksched.testing.device_builders import make_resource_claim


def encoded(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def test_objects_are_decoded_from_what_an_api_server_sends() -> None:
    pod = make_pod("web-0").req(cpu="1", memory="1Gi").label(app="web").host_port(80)
    node = make_node("n1").taint("gpu").image("nginx", 5)
    assert decode_pod(encoded(pod.to_dict())) == pod.obj()
    assert decode_node(encoded(node.to_dict())) == node.obj()


def test_unknown_fields_are_ignored() -> None:
    pod = make_pod().merge({"metadata": {"managedFields": [1]}, "spec": {"newThing": {"a": None}}})
    assert decode_pod(encoded(pod.to_dict())) == make_pod().obj()


def test_null_means_absent_everywhere() -> None:
    pod = make_pod("web-0").req(cpu="100").to_dict()
    pod["metadata"] |= {"creationTimestamp": None, "labels": None}
    pod["spec"] |= {"tolerations": None, "affinity": {"podAffinity": None}, "hostNetwork": None}
    pod["spec"]["containers"][0] |= {"ports": [None]}
    pod["status"] = {"conditions": None}
    found = decode_pod(encoded(pod))
    wanted = make_pod("web-0").req(cpu="100").merge({"spec": {"affinity": {}}}).obj()
    assert found == wanted
    assert found.spec.containers[0].resources.requests == {"cpu": "100"}


def test_numbers_in_quotes_are_read_as_numbers() -> None:
    assert (
        decode_pod(encoded(make_pod().merge({"spec": {"priority": "7"}}).to_dict())).spec.priority
        == 7
    )


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        pytest.param(
            encoded(make_pod("web", "shop").merge({"spec": {"priority": "high"}}).to_dict()),
            "Pod shop/web: Expected `int | null`, got `str` - at `$.spec.priority`",
            id="wrong type",
        ),
        pytest.param(
            encoded({"metadata": {"name": "n"}, "spec": {"containers": {}}}),
            "Pod n: Expected `array`, got `object` - at `$.spec.containers`",
            id="without a namespace",
        ),
        pytest.param(
            encoded(make_pod("web", "shop").merge({"spec": {"priority": 2**31}}).to_dict()),
            "Pod shop/web: Expected `int` <= 2147483647 - at `$.spec.priority`",
            id="too large for its field",
        ),
        pytest.param(b'{"spec":{}}', "Pod (unnamed): Object missing", id="no metadata"),
        pytest.param(b"[]", "Pod (unnamed): Expected `object`, got `array`", id="no object"),
        pytest.param(
            b'{"metadata":{"name":5}}', "Pod (unnamed): Expected `str`, got `int`", id="bad name"
        ),
        pytest.param(b'{"metadata":', "Pod (unreadable): Input data was truncated", id="cut off"),
        pytest.param(b"<html>", "Pod (unreadable): JSON is malformed", id="no JSON"),
        pytest.param(b"", "Pod (unreadable): Input data was truncated", id="nothing"),
    ],
)
def test_what_cannot_be_understood_is_named(data: bytes, complaint: str) -> None:
    with pytest.raises(InvalidObject) as caught:
        decode_pod(data)
    assert complaint in str(caught.value)
    assert caught.value.kind == "Pod"


def test_any_kind_can_be_decoded() -> None:
    decode = decoder(PodDisruptionBudget)
    budget = {
        "metadata": {"name": "b", "namespace": "shop"},
        "spec": {"selector": {}},
        "status": {"disruptionsAllowed": 2, "disruptedPods": None},
    }
    assert decode(encoded(budget)).status.disruptions_allowed == 2
    with pytest.raises(InvalidObject, match=r"PodDisruptionBudget shop/b: .*disruptionsAllowed"):
        decode(encoded({**budget, "status": {"disruptionsAllowed": "x"}}))


def test_watch_events_carry_what_their_type_says() -> None:
    pod = make_pod("web-0").resource_version("7")
    added = decode_watch_event(encoded({"type": "ADDED", "object": pod.to_dict()}))
    assert (added.type, decode_pod(added.object)) == ("ADDED", pod.obj())

    bookmark = decode_watch_event(
        b'{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"9",'
        b'"annotations":{"k8s.io/initial-events-end":"true"}},"spec":{"containers":null}}}'
    )
    metadata = decode_metadata(bookmark.object).metadata
    assert metadata.resource_version == "9"
    assert metadata.annotations == {"k8s.io/initial-events-end": "true"}

    error = decode_watch_event(
        b'{"type":"ERROR","object":{"kind":"Status","metadata":{},"status":"Failure",'
        b'"message":"too old","reason":"Expired","code":410,"details":{"retryAfterSeconds":3}}}'
    )
    status = decode_status(error.object)
    assert (status.code, status.reason, status.message) == (410, "Expired", "too old")
    assert status.details is not None
    assert status.details.retry_after_seconds == 3


def test_event_with_a_bad_object_still_tells_whose_it_is() -> None:
    event = decode_watch_event(
        b'{"type":"MODIFIED","object":{"metadata":{"name":"a","resourceVersion":"8"},"spec":5}}'
    )
    with pytest.raises(InvalidObject):
        decode_pod(event.object)
    assert decode_metadata(event.object).metadata.resource_version == "8"


@pytest.mark.parametrize("line", [b"{}", b'{"type":1,"object":{}}', b'{"type":"ADDED","obj', b"x"])
def test_broken_watch_lines_are_refused(line: bytes) -> None:
    with pytest.raises(InvalidObject, match="WatchEvent"):
        decode_watch_event(line)


def test_one_bad_item_does_not_lose_the_list() -> None:
    items = [make_pod(f"p{index}").to_dict() for index in range(3)]
    items[1]["spec"] = "?"
    page = decode_list(
        encoded(
            {
                "kind": "PodList",
                "metadata": {"resourceVersion": "12", "continue": "more", "remainingItemCount": 4},
                "items": items,
            }
        )
    )
    assert page.metadata.resource_version == "12"
    assert page.metadata.continue_token == "more"
    assert page.metadata.remaining_item_count == 4
    pods, problems = decode_items(decode_pod, page.items)
    assert [pod.metadata.name for pod in pods] == ["p0", "p2"]
    assert [problem.key for problem in problems] == ["default/p1"]


@pytest.mark.parametrize("body", [b"{}", b'{"metadata":null,"items":null}', b'{"items":[]}'])
def test_empty_lists(body: bytes) -> None:
    page = decode_list(body)
    assert page.items == []
    assert page.metadata.continue_token == ""


def test_a_list_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidObject):
        decode_list(b"upstream connect error")
    with pytest.raises(InvalidObject):
        decode_list(b'{"items":{}}')


def deep_pod(levels: int, name: str = "deep") -> bytes:
    """A pod with ``managedFields`` as a client may write them, around text that looks like them."""
    plain = make_pod(name).label(note="]}")
    fields = b'{"f:]\\"[":' * levels + b"{}" + b"}" * levels
    managed = b'"managedFields": [{"manager":"m","fieldsV1":' + fields + b"}],"
    return encoded(plain.to_dict()).replace(b'"metadata":{', b'"metadata":{' + managed, 1)


@pytest.mark.parametrize("levels", [1, 900, 10_000])
def test_books_nested_as_deep_as_an_api_server_lets_them_be(levels: int) -> None:
    pod = deep_pod(levels)
    assert decode_pod(pod) == decode_pod(deep_pod(0))
    assert decode_metadata(pod).metadata.labels == {"note": "]}"}
    event = decode_watch_event(b'{"type":"ADDED","object":' + pod + b"}")
    assert decode_pod(event.object).metadata.name == "deep"
    page = decode_list(b'{"metadata":{},"items":[%b,%b,%b]}' % (pod, deep_pod(0, "plain"), pod))
    decoded, problems = decode_items(decode_pod, page.items)
    assert [one.metadata.name for one in decoded] == ["deep", "plain", "deep"]
    assert not problems
    whole = msgspec.json.decode(decode_whole_pod(pod).whole)
    assert "managedFields" not in whole["metadata"] or not whole["metadata"]["managedFields"]


def test_deep_books_and_a_null_in_one_object() -> None:
    pod = deep_pod(5000).replace(b'"labels":', b'"ownerReferences":null,"labels":', 1)
    assert decode_pod(pod) == decode_pod(deep_pod(0))


def test_what_is_nested_too_deep_elsewhere_is_left_out() -> None:
    data = b'{"metadata":{"name":"n"},"spec":' + b'{"x":' * 50_000 + b"1" + b"}" * 50_000 + b"}"
    with pytest.raises(InvalidObject, match="recursion"):
        decode_pod(data)


def test_the_event_of_a_written_claim_is_what_the_answer_to_the_write_was() -> None:
    decode_claim = decoder_of(watched_kind(ResourceClaim))
    texts = [
        encoded(make_resource_claim(f"gpu-{number}").request().to_dict())
        for number in range(WRITTEN_CLAIMS + 1)
    ]
    written = [decode_written_claim(text + b"\n") for text in texts]
    assert [one.metadata.name for one in written[:2]] == ["gpu-0", "gpu-1"]

    assert decode_claim(msgspec.Raw(texts[1])) is written[1]
    again = decode_claim(msgspec.Raw(texts[1]))
    assert again is not written[1], "one event for each write"
    assert (again, again.whole) == (written[1], written[1].whole)
    assert decode_claim(texts[0]) is not written[0], "only so many are waited for"
    assert decode_claim(texts[-1]) is written[-1]


def test_a_large_written_claim_is_not_kept_for_its_event() -> None:
    """A tenant could have sixty of them kept, whose events came first."""
    note = "x" * WRITTEN_CLAIM_BYTES
    text = json.dumps({"metadata": {"name": "gpu", "annotations": {"note": note}}}).encode()
    written = decode_written_claim(text)
    assert decoder_of(watched_kind(ResourceClaim))(text) is not written
