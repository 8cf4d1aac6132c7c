"""An event is decoded at once only from a line that means nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from ksched.api.decoding import decode_pod, decode_watch_event
from ksched.api.objects import Pod
from ksched.client.watch_store import Store

POD = b'{"metadata":{"name":"a","namespace":"d","uid":"u","resourceVersion":"7"},"spec":{}}'


class Ignored:
    def added(self, obj: Pod) -> None: ...
    def modified(self, old: Pod, new: Pod) -> None: ...
    def deleted(self, obj: Pod) -> None: ...
    def synced(self) -> None: ...


def store(decode: Callable[[msgspec.Raw], Pod] = decode_pod) -> Store[Pod]:
    return Store("Pod", decode, Ignored())


@pytest.mark.parametrize("kind", [b"ADDED", b"MODIFIED"])
def test_a_line_as_servers_write_it_is_decoded_at_once(kind: bytes) -> None:
    line = b'{"type":"%b","object":%b}\n' % (kind, POD)
    assert store().decoded_at_once(line) == decode_pod(decode_watch_event(line).object)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b'{"type":"DELETED","object":%b}\n' % POD, id="deleted"),
        pytest.param(b'{"type":"BOOKMARK","object":%b}\n' % POD, id="bookmark"),
        pytest.param(b'{"type":"ADDED","object":%b}' % POD, id="without an end"),
        pytest.param(b'{"type":"ADDED","object":%b\n' % POD, id="cut"),
        pytest.param(b'{"type":"ADDED","object":%b,"type":"DELETED"}\n' % POD, id="type again"),
        pytest.param(b'{"type":"ADDED","object":%b,"object":{}}\n' % POD, id="object again"),
        pytest.param(b'{"type":"ADDED","object":%b,"more":{"a":1}}\n' % POD, id="more"),
        pytest.param(b'{"type": "ADDED", "object": %b}\n' % POD, id="spaces"),
        pytest.param(b'{"object":%b,"type":"ADDED"}\n' % POD, id="object first"),
        pytest.param(b'{"type":"ADDED","object":null}\n', id="no object"),
        pytest.param(b'{"type":"ADDED","object":{"metadata":3}}\n', id="not a pod"),
    ],
)
def test_any_other_line_is_parsed_first(line: bytes) -> None:
    assert store().decoded_at_once(line) is None


def test_a_decoder_that_fails_is_asked_again_after_parsing() -> None:
    """So the failure is logged and counted in one place."""

    def fail(data: Any) -> Pod:
        raise msgspec.DecodeError("no")

    assert store(fail).decoded_at_once(b'{"type":"ADDED","object":%b}\n' % POD) is None
