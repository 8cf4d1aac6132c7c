"""plugins/podtopologyspread/filtering.go and common.go.

Covers ``ksched.framework.counters.domain_filter``,
``ksched.framework.plugins.pod_topology_spread.constraints`` and
``ksched.framework.plugins.pod_topology_spread.filtering`` too.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from ksched.api.objects import ObjectMeta, Service, ServiceSpec, TopologySpreadConstraint
from ksched.cache.listers import Listers
from ksched.configuration.plugin_args import PodTopologySpreadArgs
from ksched.framework import SUCCESS, CycleState, PodInfo, Status, unresolvable, unschedulable
from ksched.framework.plugins.pod_topology_spread.plugin import PodTopologySpread
from ksched.testing.builders import NodeBuilder, PodBuilder, make_node, make_pod
from ksched.testing.plugin_runner import PluginBench, run_filter

SKEWED = unschedulable("node(s) didn't match pod topology spread constraints")
UNLABELLED = unresolvable(
    "node(s) didn't match pod topology spread constraints (missing required label)"
)
WEB = {"app": "web"}


def _plugin() -> PodTopologySpread:
    return PodTopologySpread(None, Listers())


def _pre_filter(
    plugin: PodTopologySpread, state: CycleState, pod: PodInfo, bench: PluginBench
) -> Status:
    status = plugin.pre_filter(state, pod, bench.snapshot)
    assert isinstance(status, Status)
    return status


def _node(name: str, zone: str | None = None) -> NodeBuilder:
    return make_node(name) if zone is None else make_node(name).label(zone=zone)


def _web(name: str, node: str = "") -> PodBuilder:
    pod = make_pod(name).label(WEB)
    return pod.node(node) if node else pod


def _verdicts(
    pod: PodBuilder, nodes: Iterable[NodeBuilder], running: Iterable[PodBuilder]
) -> dict[str, Status]:
    return run_filter(
        _plugin(), pod.obj(), [node.obj() for node in nodes], [one.obj() for one in running]
    )


A1, A2, B1, C1 = _node("a1", "a"), _node("a2", "a"), _node("b1", "b"), _node("c1", "c")
SPREAD = _web("new").spread("zone", WEB)


@pytest.mark.parametrize(
    ("pod", "running", "rejected"),
    [
        pytest.param(SPREAD, [], set(), id="empty cluster"),
        pytest.param(SPREAD, [_web("1", "a1")], {"a1", "a2"}, id="one ahead already"),
        pytest.param(
            SPREAD, [_web("1", "a1"), _web("2", "b1")], {"a1", "a2", "b1"}, id="c is behind"
        ),
        pytest.param(
            SPREAD, [_web("1", "a2"), _web("2", "b1"), _web("3", "c1")], set(), id="balanced"
        ),
        pytest.param(
            _web("new").spread("zone", WEB, max_skew=2),
            [_web("1", "a1")],
            set(),
            id="larger skew allowed",
        ),
        pytest.param(
            make_pod("new").spread("zone", WEB),
            [_web("1", "a1")],
            set(),
            id="does not count itself",
        ),
        pytest.param(
            SPREAD, [_web("1", "a1").terminating()], set(), id="pods being deleted do not count"
        ),
        pytest.param(
            SPREAD,
            [make_pod("1", "other").label(WEB).node("a1")],
            set(),
            id="other namespaces do not count",
        ),
        pytest.param(
            _web("new").spread("zone", {}),
            [_web("1", "a1"), _web("2", "a1")],
            set(),
            id="an empty selector counts nothing",
        ),
        pytest.param(
            _web("new").spread("zone"),
            [_web("1", "a1"), _web("2", "a1")],
            set(),
            id="no selector counts nothing",
        ),
        pytest.param(
            SPREAD.spread("kubernetes.io/hostname", WEB, max_skew=2),
            [_web("1", "a1"), _web("2", "a1"), _web("3", "b1"), _web("4", "c1")],
            {"a1", "a2"},
            id="all constraints must hold",
        ),
        pytest.param(
            _web("new").spread("zone", WEB, min_domains=4),
            [_web("1", "a1"), _web("2", "b1"), _web("3", "c1")],
            {"a1", "a2", "b1", "c1"},
            id="too few domains: the emptiest counts as empty",
        ),
        pytest.param(
            _web("new").spread("zone", WEB, min_domains=3),
            [_web("1", "a1"), _web("2", "b1"), _web("3", "c1")],
            set(),
            id="just enough domains",
        ),
        pytest.param(
            _web("new").spread("zone", WEB).node_selector(zone="a"),
            [_web("1", "a1")],
            set(),
            id="nodes that the pod's selector excludes do not count",
        ),
        pytest.param(
            _web("new").spread("zone", WEB, node_affinity_policy="Ignore").node_selector(zone="a"),
            [_web("1", "a1")],
            {"a1", "a2"},
            id="unless told otherwise",
        ),
        pytest.param(
            _web("new").label(rev="2").spread("zone", WEB, match_label_keys=["rev", "absent"]),
            [_web("1", "a1").label(rev="1")],
            set(),
            id="matchLabelKeys: only pods of the same revision",
        ),
        pytest.param(
            _web("new").spread("zone", WEB, when_unsatisfiable="ScheduleAnyway"),
            [_web("1", "a1")],
            set(),
            id="a soft constraint rejects nothing",
        ),
    ],
)
def test_skew_is_bounded(pod: PodBuilder, running: list[PodBuilder], rejected: set[str]) -> None:
    verdicts = _verdicts(pod, [A1, A2, B1, C1], running)

    assert {name for name, status in verdicts.items() if status == SKEWED} == rejected
    assert {status for name, status in verdicts.items() if name not in rejected} <= {SUCCESS}


@pytest.mark.parametrize(
    ("policy", "tolerates", "rejected"),
    [
        pytest.param(None, False, True, id="a tainted node counts"),
        pytest.param("Ignore", False, True, id="explicitly"),
        pytest.param("Honor", False, False, id="unless taints are honoured"),
        pytest.param("Honor", True, True, id="and not tolerated"),
    ],
)
def test_tainted_nodes_count_as_the_policy_says(
    policy: str | None, tolerates: bool, rejected: bool
) -> None:
    """The empty zone is on a tainted node: if that counts, the other zone is too full."""
    pod = _web("new").spread("zone", WEB, node_taints_policy=policy)
    if tolerates:
        pod = pod.toleration("team")
    nodes = [A1, _node("b1", "b").taint("team")]

    assert (_verdicts(pod, nodes, [_web("1", "a1")])["a1"] == SKEWED) is rejected


def test_a_node_without_the_label_is_rejected_for_good() -> None:
    verdicts = _verdicts(SPREAD, [A1, _node("bare")], [])

    assert verdicts == {"a1": SUCCESS, "bare": UNLABELLED}


def test_a_node_lacking_one_key_counts_for_none() -> None:
    """The pod on the node without a rack is not seen, so its zone is empty for the first."""
    pod = _web("new").spread("zone", WEB).spread("rack", WEB)
    nodes = [_node("n1", "a"), _node("n2", "a").label(rack="r"), _node("n3", "b").label(rack="s")]
    verdicts = _verdicts(pod, nodes, [_web("1", "n1"), _web("2", "n1")])

    assert verdicts == {"n1": UNLABELLED, "n2": SUCCESS, "n3": SUCCESS}


def test_the_first_constraint_that_rejects_gives_the_reason() -> None:
    pod = _web("new").spread("zone", WEB).spread("rack", WEB)
    racked, bare = _node("n1", "a").label(rack="r"), _node("n2", "a")
    other = _node("n3", "b").label(rack="s")
    verdicts = _verdicts(pod, [racked, bare, other], [_web("1", "n1")])

    assert verdicts["n2"] == SKEWED


def test_pods_without_hard_constraints_are_skipped() -> None:
    bench = PluginBench([A1.obj()])
    for pod in (make_pod(), _web("p").spread("zone", WEB, when_unsatisfiable="ScheduleAnyway")):
        info = bench.pod_info(pod.obj())
        assert _pre_filter(_plugin(), CycleState(), info, bench).is_skip


def test_a_selector_that_cannot_be_parsed_is_an_error() -> None:
    bench = PluginBench([A1.obj()])
    info = bench.pod_info(_web("p").spread("zone", None, [("app", "Near", ["web"])]).obj())
    status = _pre_filter(_plugin(), CycleState(), info, bench)

    assert status.message == (
        "obtaining pod's hard topology spread constraints: "
        '"Near" is not a valid label selector operator'
    )


def test_hard_default_constraints_use_the_services_of_the_pod() -> None:
    hard = TopologySpreadConstraint(
        max_skew=1, topology_key="zone", when_unsatisfiable="DoNotSchedule"
    )
    args = PodTopologySpreadArgs(defaulting_type="List", default_constraints=(hard,))
    listers = Listers()
    plugin = PodTopologySpread(args, listers)
    bench = PluginBench([A1.obj(), B1.obj()], [_web("1", "a1").obj()])

    assert set(bench.filter(plugin, _web("new").obj()).values()) == {SUCCESS}

    listers.require(Service).put(
        Service(
            metadata=ObjectMeta(name="web", namespace="default"), spec=ServiceSpec(selector=WEB)
        )
    )
    assert bench.filter(plugin, _web("new").obj()) == {"a1": SKEWED, "b1": SUCCESS}


def test_an_empty_list_of_defaults_needs_no_watches() -> None:
    listers = Listers()
    PodTopologySpread(PodTopologySpreadArgs(defaulting_type="List"), listers)

    assert listers.required() == {}


# -- dry runs ------------------------------------------------------------------------------------


def _after(pod: PodBuilder, running: list[PodBuilder], change: str, other: PodBuilder) -> bool:
    """Whether node a1 takes a pod after another was added to it, or removed from it."""
    bench = PluginBench([A1.obj(), B1.obj()], [one.obj() for one in running])
    plugin, state, info = _plugin(), CycleState(), bench.pod_info(pod.obj())
    assert _pre_filter(plugin, state, info, bench).is_success
    changed = state.clone()
    node = bench.snapshot.table.infos[0].clone()
    update = plugin.add_pod if change == "add" else plugin.remove_pod
    assert update(changed, info, bench.pod_info(other.obj()), node).is_success
    overlay = bench.snapshot.overlay([node]).all()
    untouched = plugin.filter_nodes(state, info, bench.snapshot.table.all()).codes
    again = plugin.filter_nodes(state, info, bench.snapshot.table.all()).codes
    assert untouched.tolist() == again.tolist(), "a dry run must not reach the attempt's state"
    return not plugin.filter_nodes(changed, info, overlay).codes[0]


@pytest.mark.parametrize(
    ("pod", "running", "change", "other", "fits"),
    [
        pytest.param(SPREAD, [], "add", _web("n"), False, id="one more"),
        pytest.param(SPREAD, [], "add", make_pod("n"), True, id="one more that does not match"),
        pytest.param(
            SPREAD, [], "add", make_pod("n", "other").label(WEB), True, id="of another namespace"
        ),
        pytest.param(SPREAD, [_web("1", "a1")], "remove", _web("1", "a1"), True, id="one fewer"),
        pytest.param(
            SPREAD,
            [],
            "add",
            _web("n").terminating(),
            False,
            id="upstream counts pods being deleted here",
        ),
        pytest.param(
            _web("new").spread("zone", {}),
            [],
            "add",
            _web("n"),
            False,
            id="and pods under an empty selector",
        ),
        pytest.param(
            _web("new").spread("zone", WEB, max_skew=2),
            [_web("1", "b1"), _web("2", "b1"), _web("3", "a1")],
            "add",
            _web("n"),
            True,
            id="the emptiest domain is another one then",
        ),
    ],
)
def test_a_dry_run_moves_the_counts_of_the_nodes_domain(
    pod: PodBuilder, running: list[PodBuilder], change: str, other: PodBuilder, fits: bool
) -> None:
    assert _after(pod, running, change, other) is fits
