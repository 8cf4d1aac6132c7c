"""plugins/nodeaffinity/node_affinity.go.

Covers ``ksched.framework.plugins.node_demand`` and ``ksched.framework.plugins.node_matching`` too.
"""

from __future__ import annotations

from typing import Any

import pytest

from ksched.configuration.plugin_args import NodeAffinityArgs
from ksched.errors import ConfigError
from ksched.framework import (
    PASS_TEMPLATE,
    SKIP_TEMPLATE,
    SUCCESS,
    Action,
    ClusterEvent,
    CycleState,
    PreFilterResult,
    QueueingHint,
    Resource,
    Status,
    error,
    unresolvable,
)
from ksched.framework.plugins.node_affinity import MAX_LOGGED_PROBLEMS, NodeAffinity
from ksched.testing.builders import NodeBuilder, PodBuilder, make_node, make_pod
from ksched.testing.plugin_runner import PluginBench, run_filter, run_hint, run_score

MISMATCH = unresolvable("node(s) didn't match Pod's node affinity/selector")
ENFORCED = unresolvable("node(s) didn't match scheduler-enforced node affinity")
CONFLICT = unresolvable("pod affinity terms conflict")
NARROWED = unresolvable("node(s) didn't satisfy plugin(s) [NodeAffinity]")

NODE_ADD = ClusterEvent(Resource.NODE, Action.ADD)
LABEL_CHANGE = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)

SSD = make_node("n").label(disk="ssd", gen="7")
NAME = "metadata.name"


def _with_added(
    *, required: list[Any] | None = None, preferred: list[Any] | None = None
) -> NodeAffinity:
    added: dict[str, Any] = {}
    if required is not None:
        terms = {"nodeSelectorTerms": required}
        added["requiredDuringSchedulingIgnoredDuringExecution"] = terms
    if preferred is not None:
        added["preferredDuringSchedulingIgnoredDuringExecution"] = preferred
    return NodeAffinity(NodeAffinityArgs.model_validate({"addedAffinity": added}))


def _in(key: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}


@pytest.mark.parametrize(
    ("pod", "status"),
    [
        pytest.param(make_pod(), SUCCESS, id="asks for nothing"),
        pytest.param(make_pod().node_selector(disk="ssd"), SUCCESS, id="selector matches"),
        pytest.param(make_pod().node_selector(disk="hdd"), MISMATCH, id="selector: other value"),
        pytest.param(make_pod().node_selector(gpu="yes"), MISMATCH, id="selector: label absent"),
        pytest.param(
            make_pod().node_selector(disk="ssd", gen="8"), MISMATCH, id="selector: one of two"
        ),
        pytest.param(
            make_pod().required_node_affinity(("disk", "In", ["ssd", "nvme"])), SUCCESS, id="In"
        ),
        pytest.param(make_pod().required_node_affinity(("disk", "In", ["x"])), MISMATCH, id="!In"),
        pytest.param(
            make_pod().required_node_affinity(("disk", "NotIn", ["x"])), SUCCESS, id="NotIn"
        ),
        pytest.param(
            make_pod().required_node_affinity(("gpu", "NotIn", ["x"])),
            SUCCESS,
            id="NotIn: label absent",
        ),
        pytest.param(make_pod().required_node_affinity(("gen", "Exists")), SUCCESS, id="Exists"),
        pytest.param(
            make_pod().required_node_affinity(("gen", "DoesNotExist")), MISMATCH, id="DoesNotExist"
        ),
        pytest.param(make_pod().required_node_affinity(("gen", "Gt", ["6"])), SUCCESS, id="Gt"),
        pytest.param(make_pod().required_node_affinity(("gen", "Gt", ["7"])), MISMATCH, id="!Gt"),
        pytest.param(make_pod().required_node_affinity(("gen", "Lt", ["8"])), SUCCESS, id="Lt"),
        pytest.param(
            make_pod().required_node_affinity(("disk", "Lt", ["8"])), MISMATCH, id="Lt: no number"
        ),
        pytest.param(
            make_pod().required_node_affinity(("disk", "In", ["ssd"]), ("gpu", "Exists")),
            MISMATCH,
            id="all expressions of a term must hold",
        ),
        pytest.param(
            make_pod()
            .required_node_affinity(("gpu", "Exists"))
            .required_node_affinity(("disk", "In", ["ssd"])),
            SUCCESS,
            id="one term is enough",
        ),
        pytest.param(make_pod().required_node_affinity(), MISMATCH, id="an empty term"),
        pytest.param(
            make_pod().required_node_affinity(("disk", "Near", ["ssd"])),
            MISMATCH,
            id="a term nobody understands",
        ),
        pytest.param(
            make_pod().node_selector(disk="hdd").required_node_affinity(("disk", "In", ["ssd"])),
            MISMATCH,
            id="selector and affinity must both hold",
        ),
        pytest.param(
            make_pod().required_node_affinity(fields=[(NAME, "NotIn", ["n"])]),
            MISMATCH,
            id="not on this node",
        ),
        pytest.param(
            make_pod().required_node_affinity(fields=[(NAME, "NotIn", ["m"])]),
            SUCCESS,
            id="not on another node",
        ),
    ],
)
def test_a_pod_goes_where_its_affinity_allows(pod: PodBuilder, status: Status) -> None:
    assert run_filter(NodeAffinity(), pod.obj(), [SSD.obj()]) == {"n": status}


@pytest.mark.parametrize(
    ("pod", "answer"),
    [
        pytest.param(make_pod(), SKIP_TEMPLATE, id="nothing to check"),
        pytest.param(make_pod().node_selector(disk="ssd"), PASS_TEMPLATE, id="no names"),
        pytest.param(
            make_pod().required_node_affinity(fields=[(NAME, "In", ["a"])]),
            PreFilterResult(node_names=frozenset("a")),
            id="one name",
        ),
        pytest.param(
            make_pod()
            .required_node_affinity(fields=[(NAME, "In", ["a"])])
            .required_node_affinity(("disk", "Exists"), fields=[(NAME, "In", ["b"])]),
            PreFilterResult(node_names=frozenset("ab")),
            id="names of all terms",
        ),
        pytest.param(
            make_pod()
            .required_node_affinity(fields=[(NAME, "In", ["a"])])
            .required_node_affinity(("disk", "Exists")),
            PASS_TEMPLATE,
            id="one term without a name",
        ),
        pytest.param(
            make_pod().required_node_affinity(fields=[(NAME, "NotIn", ["a"])]),
            PASS_TEMPLATE,
            id="names to avoid do not narrow",
        ),
        pytest.param(
            make_pod().required_node_affinity(fields=[(NAME, "In", ["a"]), (NAME, "In", ["b"])]),
            CONFLICT,
            id="two names at once",
        ),
        pytest.param(
            make_pod()
            .required_node_affinity(fields=[(NAME, "In", ["a"]), (NAME, "In", ["b"])])
            .required_node_affinity(fields=[(NAME, "In", ["c"])]),
            PreFilterResult(node_names=frozenset("c")),
            id="a conflict in one term of two",
        ),
    ],
)
def test_names_in_the_affinity_narrow_the_search(pod: PodBuilder, answer: object) -> None:
    bench = PluginBench([SSD.obj()])

    info = bench.pod_info(pod.obj())

    assert NodeAffinity().pre_filter(CycleState(), info, bench.snapshot) == answer


def test_narrowing_and_filter_agree() -> None:
    pod = make_pod().required_node_affinity(("disk", "Exists"), fields=[(NAME, "In", ["n"])])
    nodes = [SSD.obj(), make_node("m").label(disk="ssd").obj()]

    assert run_filter(NodeAffinity(), pod.obj(), nodes) == {"n": SUCCESS, "m": NARROWED}


@pytest.mark.parametrize(
    ("pod", "status"),
    [
        pytest.param(make_pod(), ENFORCED, id="a pod without affinity"),
        pytest.param(make_pod().node_selector(disk="hdd"), ENFORCED, id="it is checked first"),
    ],
)
def test_the_added_affinity_binds_every_pod(pod: PodBuilder, status: Status) -> None:
    plugin = _with_added(required=[_in("pool", "batch")])
    nodes = [SSD.obj(), make_node("batch").label(pool="batch", disk="hdd").obj()]

    assert run_filter(plugin, pod.obj(), nodes) == {"n": status, "batch": SUCCESS}


def test_the_pods_own_affinity_holds_beside_the_added_one() -> None:
    plugin = _with_added(required=[_in("disk", "ssd")])

    status = run_filter(plugin, make_pod().node_selector(gen="8").obj(), [SSD.obj()])["n"]

    assert status == MISMATCH


NONSENSE = {"matchExpressions": [{"key": "disk", "operator": "Near", "values": ["ssd"]}]}


@pytest.mark.parametrize(
    "added",
    [
        pytest.param({"required": [NONSENSE]}, id="required"),
        pytest.param({"preferred": [{"weight": 1, "preference": NONSENSE}]}, id="preferred"),
    ],
)
def test_an_added_affinity_that_cannot_be_parsed_stops_the_start(added: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r'parsing addedAffinity.*Unsupported value: "Near"'):
        _with_added(**added)


PREFERS_SSD = make_pod().preferred_node_affinity(30, ("disk", "In", ["ssd"]))


@pytest.mark.parametrize(
    ("plugin", "pod", "scores"),
    [
        pytest.param(NodeAffinity(), make_pod(), {}, id="no preference"),
        pytest.param(
            NodeAffinity(),
            PREFERS_SSD.preferred_node_affinity(30, ("gen", "Gt", ["6"])),
            {"old": 0, "ssd": 50, "new": 100},
            id="weights of matching terms add up",
        ),
        pytest.param(
            NodeAffinity(),
            PREFERS_SSD.preferred_node_affinity(10, fields=[(NAME, "In", ["old"])]),
            {"old": 33, "ssd": 100, "new": 100},
            id="a preferred name",
        ),
        pytest.param(
            NodeAffinity(),
            make_pod().merge(
                {
                    "spec": {
                        "affinity": {
                            "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}
                        }
                    }
                }
            ),
            {"old": 0, "ssd": 0, "new": 0},
            id="an empty list of preferences is not skipped",
        ),
        pytest.param(
            NodeAffinity(),
            PREFERS_SSD.preferred_node_affinity(0, ("gen", "Near")).preferred_node_affinity(9),
            {"old": 0, "ssd": 100, "new": 100},
            id="weight 0 and empty terms are not even parsed",
        ),
        pytest.param(
            _with_added(preferred=[{"weight": 10, "preference": _in("gen", "7")}]),
            PREFERS_SSD,
            {"old": 0, "ssd": 75, "new": 100},
            id="added preferences count too",
        ),
        pytest.param(
            _with_added(preferred=[{"weight": 10, "preference": _in("gen", "7")}]),
            make_pod(),
            {"old": 0, "ssd": 0, "new": 100},
            id="added preferences alone",
        ),
    ],
)
def test_preferred_nodes_score_higher(
    plugin: NodeAffinity, pod: PodBuilder, scores: dict[str, int]
) -> None:
    nodes = [
        make_node("old").obj(),
        make_node("ssd").label(disk="ssd").obj(),
        make_node("new").label(disk="ssd", gen="7").obj(),
    ]

    assert run_score(plugin, pod.obj(), nodes) == scores


def test_a_preference_that_cannot_be_parsed_is_an_error() -> None:
    bench = PluginBench([SSD.obj()])
    pod = bench.pod_info(make_pod().preferred_node_affinity(1, ("gen", "Near")).obj())

    status = NodeAffinity().pre_score(CycleState(), pod, bench.snapshot.table.all())

    assert isinstance(status, Status)
    assert status.code is error().code
    assert 'Unsupported value: "Near"' in status.message


WANTS_SSD = make_pod().node_selector(disk="ssd")
HDD = make_node("n").label(disk="hdd")
ADDED_POOL = _with_added(required=[_in("pool", "batch")])


@pytest.mark.parametrize(
    ("plugin", "event", "old", "new", "hint"),
    [
        pytest.param(NodeAffinity(), NODE_ADD, None, SSD, QueueingHint.QUEUE, id="matching node"),
        pytest.param(NodeAffinity(), NODE_ADD, None, HDD, QueueingHint.SKIP, id="other node"),
        pytest.param(
            NodeAffinity(), LABEL_CHANGE, HDD, SSD, QueueingHint.QUEUE, id="node matches now"
        ),
        pytest.param(
            NodeAffinity(), LABEL_CHANGE, SSD, HDD, QueueingHint.SKIP, id="matches no longer"
        ),
        pytest.param(
            NodeAffinity(),
            LABEL_CHANGE,
            SSD,
            SSD.label(gen="8"),
            QueueingHint.SKIP,
            id="matched before",
        ),
        pytest.param(
            ADDED_POOL, NODE_ADD, None, SSD, QueueingHint.SKIP, id="added affinity does not match"
        ),
        pytest.param(
            ADDED_POOL,
            LABEL_CHANGE,
            SSD,
            SSD.label(pool="batch"),
            QueueingHint.QUEUE,
            id="added affinity matches now",
        ),
    ],
)
def test_nodes_that_begin_to_match_wake_the_pod(
    plugin: NodeAffinity,
    event: ClusterEvent,
    old: NodeBuilder | None,
    new: NodeBuilder,
    hint: QueueingHint,
) -> None:
    before = old.obj() if old else None

    assert run_hint(plugin, event, WANTS_SSD.obj(), before, new.obj()) is hint


def test_an_expression_that_cannot_be_parsed_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plugin = NodeAffinity()
    for name in ("a", "b"):
        pod = make_pod(name).required_node_affinity(("gen", "Gt", ["x"]))
        assert run_filter(plugin, pod.obj(), [SSD.obj()]) == {"n": MISMATCH}
    parsed = make_pod().required_node_affinity(("gen", "Gt", ["6"]))
    assert run_filter(plugin, parsed.obj(), [SSD.obj()]) == {"n": SUCCESS}
    (record,) = caplog.records
    fields = vars(record)
    assert fields["pod"] == "default/a"
    assert fields["err"].startswith(
        'nodeSelectorTerms[0].matchExpressions[0].values[0]: Invalid value: "x"'
    )


def test_complaints_about_expressions_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    plugin = NodeAffinity()
    for number in range(MAX_LOGGED_PROBLEMS + 5):
        pod = make_pod().required_node_affinity(("gen", "Gt", [f"x{number}"]))
        run_filter(plugin, pod.obj(), [SSD.obj()])
    assert len(caplog.records) == MAX_LOGGED_PROBLEMS
