"""The golden files were written by Go with kube-scheduler's own types (see write_golden.go)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ksched.api.decoding import trim
from ksched.extenders.wire import (
    FilterResult,
    MetaVictims,
    decode_binding_result,
    decode_filter_result,
    decode_host_priorities,
    decode_preemption_result,
    encode_args,
    encode_binding,
    encode_meta_preemption,
    encode_preemption,
)

GOLDEN = Path(__file__).parent / "golden"
NOTHING = FilterResult(None, None, {}, {}, "")


def golden(name: str) -> bytes:
    return (GOLDEN / f"{name}.json").read_bytes()


def whole(name: str) -> bytes:
    return trim(golden(name))


def uid(name: str) -> str:
    return str(json.loads(golden(name))["metadata"]["uid"])


# -- requests -----------------------------------------------------------------------------------


def test_whole_nodes_are_written_as_go_writes_them() -> None:
    nodes = [whole("node-a"), whole("node-b")]

    assert encode_args(whole("pod"), nodes, None) == golden("args-whole")


def test_names_of_nodes_are_written_as_go_writes_them() -> None:
    assert encode_args(whole("pod"), None, ["node-a", "node-b"]) == golden("args-names")


def test_binding_is_written_as_go_writes_it() -> None:
    assert encode_binding("pod", "default", uid("pod"), "node-a") == golden("binding")


def test_whole_victims_are_written_as_go_writes_them() -> None:
    victims = [whole("victim")]
    question = encode_preemption(whole("pod"), {"node-b": (victims, 1), "node-a": (victims, 0)})

    assert question == golden("preemption-whole")


def test_uids_of_victims_are_written_as_go_writes_them() -> None:
    uids = [uid("victim")]
    question = encode_meta_preemption(whole("pod"), {"node-b": (uids, 1), "node-a": (uids, 0)})

    assert question == golden("preemption-uids")


# -- answers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        pytest.param("{}", NOTHING, id="empty"),
        pytest.param("null", NOTHING, id="null"),
        pytest.param(
            '{"Nodes":null,"NodeNames":null,"FailedNodes":null,'
            '"FailedAndUnresolvableNodes":null,"Error":""}',
            NOTHING,
            id="as Go writes nothing",
        ),
        pytest.param(
            '{"NodeNames":["a","b"],"FailedNodes":{"c":"full"},'
            '"FailedAndUnresolvableNodes":{"d":"broken"}}',
            FilterResult(None, ["a", "b"], {"c": "full"}, {"d": "broken"}, ""),
            id="names",
        ),
        pytest.param(
            '{"nodenames":["a"],"failedNodes":{"c":"full"},"ERROR":"no"}',
            FilterResult(None, ["a"], {"c": "full"}, {}, "no"),
            id="other spellings",
        ),
        pytest.param(
            '{"Nodes":{"metadata":{},"items":[{"metadata":{"name":"a"},"spec":{}}]}}',
            FilterResult(["a"], None, {}, {}, ""),
            id="whole nodes",
        ),
        pytest.param(
            '{"nodes":{"Items":[{"Metadata":{"Name":"a"}},{"metadata":{"name":"b"}}]}}',
            FilterResult(["a", "b"], None, {}, {}, ""),
            id="whole nodes in other spellings",
        ),
        pytest.param(
            '{"Nodes":{"items":null}}', FilterResult([], None, {}, {}, ""), id="null items"
        ),
        pytest.param(
            '{"Nodes":{"items":[{"metadata":null},{}]}}',
            FilterResult(["", ""], None, {}, {}, ""),
            id="nameless nodes",
        ),
        pytest.param(
            '{"FailedNodes":{"a":null},"future":[1]}',
            FilterResult(None, None, {"a": ""}, {}, ""),
            id="null message and unknown field",
        ),
        pytest.param(
            '{"NodeNames":["a"],"nodeNames":["b"]}',
            FilterResult(None, ["b"], {}, {}, ""),
            id="the last spelling wins",
        ),
    ],
)
def test_filter_result_is_read_as_go_reads_it(answer: str, result: FilterResult) -> None:
    assert decode_filter_result(answer.encode()) == result


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        pytest.param("", "truncated", id="nothing"),
        pytest.param("<html>", "malformed", id="html"),
        pytest.param("[]", "got `array`", id="list"),
        pytest.param('{"NodeNames":"a"}', "^NodeNames: Expected `array", id="text for a list"),
        pytest.param('{"NodeNames":[1]}', "^NodeNames: Expected `str`", id="numbers for names"),
        pytest.param('{"FailedNodes":["a"]}', "^FailedNodes: Expected `object", id="list"),
        pytest.param('{"Nodes":["a"]}', "Expected `object", id="names for nodes"),
        pytest.param('{"Nodes":{"items":[{"metadata":{"name":1}}]}}', "^name: Exp", id="number"),
        pytest.param('{"Error":false}', "^Error: Expected `str", id="boolean error"),
    ],
)
def test_nonsense_is_named(answer: str, complaint: str) -> None:
    with pytest.raises(msgspec.DecodeError, match=complaint):
        decode_filter_result(answer.encode())


@pytest.mark.parametrize(
    ("answer", "priorities"),
    [
        pytest.param("[]", [], id="empty"),
        pytest.param("null", [], id="null"),
        pytest.param('[{"Host":"a","Score":7}]', [("a", 7)], id="as Go writes it"),
        pytest.param('[{"host":"a","score":-1},{}]', [("a", -1), ("", 0)], id="other spellings"),
    ],
)
def test_priorities_are_read_as_go_reads_them(answer: str, priorities: Any) -> None:
    assert decode_host_priorities(answer.encode()) == priorities


@pytest.mark.parametrize("answer", ['{"Host":"a"}', '[{"Score":"9"}]', "[1]", '[{"Score":0.5}]'])
def test_priorities_of_a_wrong_type_are_refused(answer: str) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_host_priorities(answer.encode())


def test_binding_result_is_its_error() -> None:
    assert decode_binding_result(b'{"Error":""}') == ""
    assert decode_binding_result(b'{"error":"pod is gone"}') == "pod is gone"


@pytest.mark.parametrize(
    ("answer", "victims"),
    [
        pytest.param("{}", {}, id="none"),
        pytest.param(
            '{"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"1"}],"NumPDBViolations":2}}}',
            {"a": MetaVictims(["1"], 2)},
            id="as Go writes it",
        ),
        pytest.param(
            '{"nodeNameToMetaVictims":{"a":{"pods":[{"uid":"1"}]},"b":null}}',
            {"a": MetaVictims(["1"], 0), "b": MetaVictims([], 0)},
            id="other spellings and a null",
        ),
    ],
)
def test_preemption_result_is_read_as_go_reads_it(answer: str, victims: Any) -> None:
    assert decode_preemption_result(answer.encode()) == victims


NAMES = ("Nodes", "nodeNames", "FailedNodes", "Error", "items", "metadata", "name", "Host", "Score")
MORE_NAMES = ("NodeNameToMetaVictims", "Pods", "UID", "NumPDBViolations", "n1")
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
ANSWERS = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(NAMES + MORE_NAMES), inner, max_size=4)
    ),
)


@given(ANSWERS)
def test_any_answer_is_understood_or_refused(answer: Any) -> None:
    data = json.dumps(answer).encode()
    decoders: list[Callable[[bytes], Any]] = [
        decode_filter_result,
        decode_host_priorities,
        decode_binding_result,
        decode_preemption_result,
    ]
    for decode in decoders:
        try:
            result = decode(data)
        except msgspec.DecodeError:
            continue
        if isinstance(result, FilterResult):
            names = [*(result.nodes or ()), *(result.node_names or ()), *result.failed_nodes]
            assert all(isinstance(name, str) for name in names)
        if decode is decode_host_priorities:
            assert all(isinstance(s, int) and isinstance(h, str) for h, s in result)
