"""Kubernetes' protobuf encoding of request bodies."""

from __future__ import annotations

import pytest

from ksched.apiserver.protobuf import decode_protobuf
from ksched.apiserver.status_errors import StatusError

PODS = "/api/v1/namespaces/default/pods"
PROTOBUF = "application/vnd.kubernetes.protobuf"


def varint(number):
    number &= (1 << 64) - 1
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def message(*fields):
    """Encode (number, value) pairs; ints as varints, the rest by length."""
    encoded = b""
    for number, value in fields:
        if isinstance(value, int):
            encoded += varint(number << 3) + varint(value)
        else:
            raw = value.encode() if isinstance(value, str) else value
            encoded += varint(number << 3 | 2) + varint(len(raw)) + raw
    return encoded


def envelope(version, kind, body):
    return b"k8s\x00" + message((1, message((1, version), (2, kind))), (2, body), (3, ""), (4, ""))


def test_a_binding():
    metadata = message((1, "web"), (2, ""), (3, "default"), (5, "uid-1"), (8, b""))
    body = message((1, metadata), (2, message((1, "Node"), (2, ""), (3, "n1"))))
    assert decode_protobuf(envelope("v1", "Binding", body)) == {
        "kind": "Binding",
        "apiVersion": "v1",
        "metadata": {"name": "web", "namespace": "default", "uid": "uid-1"},
        "target": {"kind": "Node", "name": "n1"},
    }


def test_maps_lists_quantities_and_meaningful_zeros():
    metadata = message((1, "d"), (11, message((1, "app"), (2, "web"))))
    requests = message((2, message((1, "cpu"), (2, message((1, "100m"))))))
    container = message((1, "c"), (2, "nginx"), (8, requests))
    template = message((1, b""), (2, message((2, container), (3, "Always"))))
    strategy = message((2, message((1, message((1, 1), (2, 0), (3, "25%"))))))
    spec = message((1, 0), (3, template), (4, strategy), (9, -1))
    decoded = decode_protobuf(
        envelope("apps/v1", "Deployment", message((1, metadata), (2, spec), (3, b"")))
    )
    assert decoded["metadata"]["labels"] == {"app": "web"}
    # Zero replicas are asked for; an empty status is merely not there.
    assert decoded["spec"]["replicas"] == 0
    assert "status" not in decoded
    [parsed] = decoded["spec"]["template"]["spec"]["containers"]
    assert parsed == {
        "name": "c",
        "image": "nginx",
        "resources": {"requests": {"cpu": "100m"}},
    }
    assert decoded["spec"]["strategy"] == {"rollingUpdate": {"maxUnavailable": "25%"}}
    assert decoded["spec"]["progressDeadlineSeconds"] == -1


def test_inlined_structures_and_times():
    source = message((10, message((1, "claim"), (2, 0))))
    volume = message((1, "data"), (2, source))
    body = message((1, message((1, "p"))), (2, message((1, volume))))
    pod = decode_protobuf(envelope("v1", "Pod", body))
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "claim"}}
    assert pod["spec"]["volumes"] == [claim]
    spec = message((1, "me"), (4, message((1, 1_700_000_000), (2, 500_000_000))))
    lease = decode_protobuf(envelope("coordination.k8s.io/v1", "Lease", message((2, spec))))
    assert lease["spec"] == {
        "holderIdentity": "me",
        "renewTime": "2023-11-14T22:13:20.500000Z",
    }


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"{}", id="not protobuf"),
        pytest.param(b"k8s\x00\x0a\xff", id="cut short"),
        pytest.param(envelope("v1", "Unheard", b""), id="unknown kind"),
        pytest.param(envelope("v1", "Pod", b"\x0b"), id="unknown wire type"),
    ],
)
def test_nonsense_is_a_bad_request(body):
    with pytest.raises(StatusError) as refused:
        decode_protobuf(body)
    assert refused.value.code == 400


async def test_a_pod_can_be_bound_in_protobuf(client):
    await client.create_pod("web")
    body = message((1, message((1, "web"))), (2, message((1, "Node"), (3, "n1"))))
    request = envelope("v1", "Binding", body)
    status, answer = await client.send("POST", f"{PODS}/web/binding", request, PROTOBUF)
    assert status == 201, answer
    assert (await client.get(f"{PODS}/web"))["spec"]["nodeName"] == "n1"
