from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from ksched.api.decoding import decode_pod, trim
from ksched.api.whole_objects import (
    WholePod,
    decode_whole_node,
    decode_whole_pod,
    whole_pod_decoder,
    with_node_name,
)
from ksched.errors import InvalidObject


def encoded(node_name: str = "", **metadata: Any) -> bytes:
    spec: dict[str, Any] = {"containers": [{"name": "c", "lifecycle": {"stopSignal": "SIGUSR1"}}]}
    if node_name:
        spec["nodeName"] = node_name
    pod = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": "web", "namespace": "default", "uid": "u1", **metadata},
        "spec": spec,
        "status": {"phase": "Pending"},
    }
    return json.dumps(pod, separators=(",", ":")).encode()


def test_trimmed_object_keeps_every_byte_but_kind_and_managed_fields() -> None:
    pod = encoded(managedFields=[{"manager": "kubectl"}], annotations={"a": "1.50"})

    kept = encoded(annotations={"a": "1.50"}).replace(b'"kind":"Pod","apiVersion":"v1",', b"")

    assert trim(pod) == kept


def test_trimmed_object_is_a_copy() -> None:
    """A slice would keep alive the page of a list that it came in."""
    page = b"[" + encoded() + b"]"
    (raw,) = msgspec.json.decode(page, type=list[msgspec.Raw])

    assert type(decode_whole_pod(raw).whole) is bytes


def test_whole_pod_is_decoded_like_any_other() -> None:
    whole, plain = decode_whole_pod(encoded()), decode_pod(encoded())

    assert (whole.metadata, whole.spec, whole.status) == (plain.metadata, plain.spec, plain.status)


def test_whole_node_keeps_fields_that_the_scheduler_does_not_read() -> None:
    data = b'{"metadata":{"name":"n1"},"spec":{"providerID":"x://1"},"status":{}}'

    assert decode_whole_node(data).whole == data


@pytest.mark.parametrize("data", [b"[]", b"{}", b'{"metadata":7}', b"nonsense"])
def test_nonsense_is_refused_as_everywhere(data: bytes) -> None:
    with pytest.raises(InvalidObject):
        decode_whole_pod(data)


def test_only_wanted_pods_are_kept_whole() -> None:
    decode = whole_pod_decoder(lambda pod: not pod.spec.node_name)

    assert isinstance(decode(encoded()), WholePod)
    assert not isinstance(decode(encoded("n1")), WholePod)


@pytest.mark.parametrize("known", ["", "n1"], ids=["assumed", "bound"])
def test_pod_is_sent_on_the_node_it_is_on(known: str) -> None:
    pod = decode_whole_pod(encoded(known))
    placed = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name="n1"))

    assert json.loads(with_node_name(placed)) == json.loads(trim(encoded("n1")))
