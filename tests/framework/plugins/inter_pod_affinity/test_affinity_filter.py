"""plugins/interpodaffinity/filtering.go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from ksched.api.objects import Namespace, ObjectMeta
from ksched.cache.listers import Listers
from ksched.framework import SUCCESS, CycleState, Status, unresolvable, unschedulable
from ksched.framework.plugins.inter_pod_affinity.plugin import InterPodAffinity
from ksched.testing.builders import PodBuilder, make_node, make_pod
from ksched.testing.plugin_runner import PluginBench

LONELY = unresolvable("node(s) didn't match pod affinity rules")
APART = unschedulable("node(s) didn't match pod anti-affinity rules")
KEPT_AWAY = unschedulable("node(s) didn't satisfy existing pods anti-affinity rules")

DB, WEB = {"app": "db"}, {"app": "web"}
NODES = [
    make_node("a1").label(zone="a"),
    make_node("a2").label(zone="a"),
    make_node("b1").label(zone="b"),
    make_node("bare"),
]
NAMESPACES = {"default": {"team": "red"}, "other": {"team": "blue"}, "third": {}}


def _plugin(namespaces: Mapping[str, Mapping[str, str]] = NAMESPACES) -> InterPodAffinity:
    listers = Listers()
    plugin = InterPodAffinity(None, listers, lambda: 0.0)
    for name, labels in namespaces.items():
        meta = ObjectMeta(name=name, labels=dict(labels))
        listers.require(Namespace).put(Namespace(metadata=meta))
    return plugin


def _verdicts(pod: PodBuilder, running: Iterable[PodBuilder] = ()) -> dict[str, Status]:
    bench = PluginBench([node.obj() for node in NODES], [one.obj() for one in running])
    return bench.filter(_plugin(), pod.obj())


def _rejected(pod: PodBuilder, running: Iterable[PodBuilder] = ()) -> dict[str, Status]:
    return {n: one for n, one in _verdicts(pod, running).items() if not one.is_success}


def _all(status: Status, *names: str) -> dict[str, Status]:
    return dict.fromkeys(names, status)


def _db(name: str = "db", namespace: str = "default", node: str = "a1") -> PodBuilder:
    return make_pod(name, namespace).label(DB).node(node)


NEAR_DB = make_pod("new").pod_affinity("zone", DB)
FAR_FROM_DB = make_pod("new").pod_anti_affinity("zone", DB)


@pytest.mark.parametrize(
    ("pod", "running", "rejected"),
    [
        pytest.param(NEAR_DB, [_db()], _all(LONELY, "b1", "bare"), id="only in its zone"),
        pytest.param(NEAR_DB, [], _all(LONELY, "a1", "a2", "b1", "bare"), id="nobody there"),
        pytest.param(
            NEAR_DB, [_db(node="bare")], _all(LONELY, "a1", "a2", "b1", "bare"), id="not in a zone"
        ),
        pytest.param(
            NEAR_DB,
            [_db().terminating()],
            _all(LONELY, "b1", "bare"),
            id="one being deleted counts",
        ),
        pytest.param(
            NEAR_DB.label(DB), [], _all(LONELY, "bare"), id="the first of a group goes anywhere"
        ),
        pytest.param(
            NEAR_DB.label(DB), [_db(node="b1")], _all(LONELY, "a1", "a2", "bare"), id="the second"
        ),
        pytest.param(
            make_pod("new", "other").label(DB).pod_affinity("zone", DB, namespaces=["default"]),
            [],
            _all(LONELY, "a1", "a2", "b1", "bare"),
            id="not the first if it does not mean itself",
        ),
        pytest.param(
            NEAR_DB.pod_affinity("zone", {"tier": "1"}),
            [_db(), make_pod("x").label(tier="1").node("a1")],
            _all(LONELY, "a1", "a2", "b1", "bare"),
            id="one pod must satisfy all terms",
        ),
        pytest.param(
            NEAR_DB.pod_affinity("zone", {"tier": "1"}),
            [_db().label(tier="1")],
            _all(LONELY, "b1", "bare"),
            id="one pod satisfies all terms",
        ),
        pytest.param(
            NEAR_DB.pod_affinity("kubernetes.io/hostname", DB),
            [_db()],
            _all(LONELY, "a2", "b1", "bare"),
            id="every key must have such a pod",
        ),
        pytest.param(
            make_pod("new").pod_affinity("zone"),
            [_db()],
            _all(LONELY, "a1", "a2", "b1", "bare"),
            id="no selector means nobody",
        ),
        pytest.param(
            make_pod("new").pod_affinity("zone", {}),
            [make_pod("x").node("b1")],
            _all(LONELY, "a1", "a2", "bare"),
            id="an empty selector means everybody",
        ),
    ],
)
def test_required_affinity(
    pod: PodBuilder, running: list[PodBuilder], rejected: dict[str, Status]
) -> None:
    assert _rejected(pod, running) == rejected


@pytest.mark.parametrize(
    ("pod", "running", "rejected"),
    [
        pytest.param(FAR_FROM_DB, [_db()], _all(APART, "a1", "a2"), id="not in its zone"),
        pytest.param(FAR_FROM_DB, [], {}, id="nobody there"),
        pytest.param(FAR_FROM_DB, [_db(node="bare")], {}, id="it is in no zone"),
        pytest.param(
            FAR_FROM_DB, [_db().terminating()], _all(APART, "a1", "a2"), id="being deleted counts"
        ),
        pytest.param(
            FAR_FROM_DB.pod_anti_affinity("kubernetes.io/hostname", WEB),
            [_db(), make_pod("x").label(WEB).node("b1")],
            _all(APART, "a1", "a2", "b1"),
            id="any term is enough",
        ),
        pytest.param(
            NEAR_DB.pod_anti_affinity("kubernetes.io/hostname", DB),
            [_db()],
            {**_all(APART, "a1"), **_all(LONELY, "b1", "bare")},
            id="near, but not on the same node",
        ),
        pytest.param(
            FAR_FROM_DB.label(WEB),
            [FAR_FROM_DB.merge({"metadata": {"name": "twin"}}).label(WEB).node("a1")],
            {},
            id="a twin does not mind",
        ),
    ],
)
def test_required_anti_affinity(
    pod: PodBuilder, running: list[PodBuilder], rejected: dict[str, Status]
) -> None:
    assert _rejected(pod, running) == rejected


SHY = make_pod("shy").pod_anti_affinity("zone", WEB).node("a1")


@pytest.mark.parametrize(
    ("pod", "running", "rejected"),
    [
        pytest.param(
            make_pod().label(WEB), [SHY], _all(KEPT_AWAY, "a1", "a2"), id="meant by an existing pod"
        ),
        pytest.param(make_pod().label(DB), [SHY], {}, id="not meant"),
        pytest.param(make_pod("p", "other").label(WEB), [SHY], {}, id="other namespace"),
        pytest.param(
            make_pod().label(WEB),
            [make_pod("x").pod_anti_affinity("zone", WEB, weight=5).node("a1")],
            {},
            id="a preference keeps nobody away",
        ),
        pytest.param(
            FAR_FROM_DB.label(WEB),
            [SHY, _db(node="b1")],
            {**_all(KEPT_AWAY, "a1", "a2"), **_all(APART, "b1")},
            id="both sides",
        ),
        pytest.param(
            FAR_FROM_DB.label(WEB),
            [SHY.label(DB)],
            _all(APART, "a1", "a2"),
            id="the own rule gives the reason",
        ),
    ],
)
def test_existing_pods_keep_others_away(
    pod: PodBuilder, running: list[PodBuilder], rejected: dict[str, Status]
) -> None:
    assert _rejected(pod, running) == rejected


# -- namespaces ----------------------------------------------------------------------------------


def _meets(pod: PodBuilder, namespace: str) -> bool:
    """Whether a term of a pod in default means a db in a namespace."""
    return _verdicts(pod, [_db(namespace=namespace)])["a1"] == APART


def _selects(*expression: object) -> dict[str, object]:
    key, operator, *values = expression
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def _with_namespace_selector(selector: dict[str, object], namespaces: list[str]) -> PodBuilder:
    term = {
        "topologyKey": "zone",
        "labelSelector": {"matchLabels": DB},
        "namespaces": namespaces,
        "namespaceSelector": selector,
    }
    rules = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return make_pod("new").merge({"spec": {"affinity": {"podAntiAffinity": rules}}})


@pytest.mark.parametrize(
    ("pod", "namespaces"),
    [
        pytest.param(FAR_FROM_DB, {"default"}, id="its own"),
        pytest.param(
            make_pod("new").pod_anti_affinity("zone", DB, namespaces=["other"]),
            {"other"},
            id="those listed",
        ),
        pytest.param(
            make_pod("new").pod_anti_affinity("zone", DB, namespace_labels={"team": "blue"}),
            {"other"},
            id="those selected",
        ),
        pytest.param(
            make_pod("new").pod_anti_affinity("zone", DB, namespace_labels={}),
            {"default", "other", "third", "unknown"},
            id="all",
        ),
        pytest.param(
            _with_namespace_selector(_selects("team", "In", "red"), ["third"]),
            {"default", "third"},
            id="listed and selected",
        ),
        pytest.param(
            _with_namespace_selector(_selects("team", "NotIn", "red"), []),
            {"default", "other", "third", "unknown"},
            id="a selector satisfied by no labels selects all, as upstream",
        ),
        pytest.param(
            _with_namespace_selector(_selects("team", "Exists"), []),
            {"default", "other"},
            id="those with the label",
        ),
    ],
)
def test_terms_of_the_incoming_pod_mean_namespaces(pod: PodBuilder, namespaces: set[str]) -> None:
    met = {name for name in (*NAMESPACES, "unknown") if _meets(pod, name)}

    assert met == namespaces


@pytest.mark.parametrize(
    ("selector", "namespaces"),
    [
        pytest.param(_selects("team", "In", "blue"), {"other"}, id="selected by label"),
        pytest.param(
            _selects("team", "NotIn", "blue"), {"default", "third", "unknown"}, id="not selected"
        ),
        pytest.param({}, {"default", "other", "third", "unknown"}, id="all"),
    ],
)
def test_terms_of_existing_pods_look_at_the_labels_of_the_namespace(
    selector: dict[str, object], namespaces: set[str]
) -> None:
    shy = _with_namespace_selector(selector, []).label(app="shy").node("a1")
    kept_away = {
        name
        for name in (*NAMESPACES, "unknown")
        if _verdicts(make_pod("new", name).label(DB), [shy])["a1"] == KEPT_AWAY
    }

    assert kept_away == namespaces


def test_new_labels_of_a_namespace_are_noticed_on_both_sides() -> None:
    listers = Listers()
    plugin = InterPodAffinity(None, listers, lambda: 0.0)
    namespaces = listers.require(Namespace)

    def relabel(name: str, team: str) -> None:
        namespaces.put(Namespace(metadata=ObjectMeta(name=name, labels={"team": team})))

    mean_blue: dict[str, Any] = {"namespace_labels": {"team": "blue"}}
    shy = make_pod("shy", "third").pod_anti_affinity("zone", WEB, **mean_blue).node("b1")
    bench = PluginBench([node.obj() for node in NODES], [_db(namespace="other").obj(), shy.obj()])
    new = make_pod("new").label(WEB).pod_anti_affinity("zone", DB, **mean_blue).obj()

    def rejected() -> dict[str, Status]:
        return {n: one for n, one in bench.filter(plugin, new).items() if not one.is_success}

    assert rejected() == {}
    relabel("other", "blue")
    assert rejected() == _all(APART, "a1", "a2")
    relabel("default", "blue")
    assert rejected() == {**_all(APART, "a1", "a2"), **_all(KEPT_AWAY, "b1")}
    relabel("other", "red")
    assert rejected() == _all(KEPT_AWAY, "b1")


# -- skipping, mistakes --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "running", "skips"),
    [
        pytest.param(make_pod(), [], True, id="nobody has terms"),
        pytest.param(make_pod().label(WEB), [SHY], False, id="an existing pod means it"),
        pytest.param(make_pod().label(DB), [SHY], True, id="existing pods mean others"),
        pytest.param(
            make_pod().label(WEB), [SHY.node("bare")], True, id="the one that does is in no zone"
        ),
        pytest.param(FAR_FROM_DB, [], False, id="it has terms that mean nobody"),
        pytest.param(
            make_pod().pod_affinity("zone", DB, weight=1), [], True, id="it has preferences only"
        ),
    ],
)
def test_pods_with_nothing_required_are_skipped(
    pod: PodBuilder, running: list[PodBuilder], skips: bool
) -> None:
    bench = PluginBench([node.obj() for node in NODES], [one.obj() for one in running])
    status = _plugin().pre_filter(CycleState(), bench.pod_info(pod.obj()), bench.snapshot)

    assert isinstance(status, Status)
    assert status.is_skip is skips


def test_a_selector_that_cannot_be_parsed_rejects_the_pod() -> None:
    pod = (
        make_pod()
        .pod_affinity("zone", None, [("app", "Near", ["db"])])
        .pod_anti_affinity("zone", None, [("app", "In")], weight=3)
    )

    assert set(_verdicts(pod).values()) == {
        unresolvable(
            'parsing pod: [requiredAffinityTerms: "Near" is not a valid label selector operator, '
            "preferredAntiAffinityTerms: matchExpressions[0].values: Invalid value: []: "
            "for 'in', 'notin' operators, values set can't be empty]"
        )
    }


def test_mistakes_of_an_existing_pod_hurt_only_the_list_they_are_in() -> None:
    mistaken = SHY.pod_affinity("zone", None, [("app", "Near", ["db"])])

    assert _rejected(make_pod().label(WEB), [mistaken]) == _all(KEPT_AWAY, "a1", "a2")


# -- dry runs ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "running", "change", "other", "verdict"),
    [
        pytest.param(FAR_FROM_DB, [_db()], "remove", _db(), SUCCESS, id="the pod to avoid goes"),
        pytest.param(FAR_FROM_DB, [], "add", _db(), APART, id="a pod to avoid comes"),
        pytest.param(
            FAR_FROM_DB,
            [_db("db1"), _db("db2", node="a2")],
            "remove",
            _db("db1"),
            APART,
            id="another one stays in the zone",
        ),
        pytest.param(NEAR_DB, [_db()], "remove", _db(), LONELY, id="the pod to be near to goes"),
        pytest.param(NEAR_DB, [], "add", _db(), SUCCESS, id="a pod to be near to comes"),
        pytest.param(
            NEAR_DB.label(DB), [_db()], "remove", _db(), SUCCESS, id="it becomes the first"
        ),
        pytest.param(
            NEAR_DB.pod_affinity("zone", {"tier": "1"}).label(DB).label(tier="1"),
            [_db().label(tier="1")],
            "remove",
            _db().label(tier="1"),
            SUCCESS,
            id="it becomes the first, two terms of one key",
        ),
        pytest.param(
            FAR_FROM_DB.label(WEB), [SHY], "remove", SHY, SUCCESS, id="the pod that minds goes"
        ),
        pytest.param(
            FAR_FROM_DB.label(WEB), [], "add", SHY, KEPT_AWAY, id="a pod that minds comes"
        ),
        pytest.param(
            FAR_FROM_DB.label(WEB),
            [],
            "add",
            make_pod("x").pod_anti_affinity("kubernetes.io/hostname", WEB),
            KEPT_AWAY,
            id="by a key that nobody used before",
        ),
    ],
)
def test_a_dry_run_changes_the_counts(
    pod: PodBuilder, running: list[PodBuilder], change: str, other: PodBuilder, verdict: Status
) -> None:
    bench = PluginBench([node.obj() for node in NODES], [one.obj() for one in running])
    plugin, state, info = _plugin(), CycleState(), bench.pod_info(pod.obj())
    status = plugin.pre_filter(state, info, bench.snapshot)
    assert isinstance(status, Status)
    assert status.is_success
    before = plugin.filter_nodes(state, info, bench.snapshot.table.all()).codes.tolist()
    changed, node = state.clone(), bench.snapshot.table.infos[0].clone()
    update = plugin.add_pod if change == "add" else plugin.remove_pod
    assert update(changed, info, bench.pod_info(other.obj()), node).is_success

    verdicts = plugin.filter_nodes(changed, info, bench.snapshot.overlay([node]).all())

    assert (SUCCESS, *verdicts.statuses)[verdicts.codes[0]] == verdict
    after = plugin.filter_nodes(state, info, bench.snapshot.table.all()).codes.tolist()
    assert after == before, "a dry run must not reach the attempt's own state"
