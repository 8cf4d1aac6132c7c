"""The life of pods and nodes in the cache, and what of it reaches the snapshot.

Covers ``ksched.cache.pod_states`` too.
"""

from __future__ import annotations

import pytest

from ksched.cache.cache import SchedulerCache
from ksched.cache.node_info import NodeInfo
from ksched.cache.pod_info import PodInfo
from ksched.errors import InvalidObject, InvariantBroken
from ksched.testing import make_node, make_pod
from ksched.testing.builders import PodBuilder
from ksched.testing.device_builders import with_claim
from ksched.tuning import TEMPLATES_KEPT

WEB = make_pod("web").req(cpu="1", memory="1Gi")


class Ticker:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def now() -> Ticker:
    return Ticker()


@pytest.fixture
def cache(now: Ticker) -> SchedulerCache:
    cache = SchedulerCache(now, assume_ttl_seconds=30.0)
    cache.add_node(make_node("n1").obj())
    cache.add_node(make_node("n2").obj())
    return cache


def info(cache: SchedulerCache, pod: PodBuilder, node_name: str = "n1") -> PodInfo:
    return cache.pod_info(pod.node(node_name).obj())


def cpu_millis(cache: SchedulerCache, node_name: str) -> int:
    node = cache.update_snapshot().get(node_name)
    assert node is not None
    return node.requested_of("cpu")


def test_a_known_node_may_come_to_offer_any_number_of_new_resources(cache: SchedulerCache) -> None:
    """Device plugins register after the node did."""
    cache.update_snapshot()
    devices = {f"example.com/device-{number}": str(number) for number in range(8)}
    cache.add_node(make_node("n1").capacity(devices, cpu="4").obj())
    nodes = cache.update_snapshot().table.all()

    offered = {name: int(nodes.allocatable(name)[nodes.table.rows["n1"]]) for name in devices}
    assert offered == {name: int(amount) for name, amount in devices.items()}


def test_a_snapshot_may_be_brought_up_to_date_in_parts(cache: SchedulerCache) -> None:
    for number in range(3, 8):
        cache.add_node(make_node(f"n{number}").obj())
    assert len(cache.update_snapshot(at_most=3)) == 3
    cache.remove_node("n1")
    cache.add_node(make_node("n2").label(zone="a").obj())
    assert len(cache.update_snapshot(at_most=3)) == 6
    table = cache.update_snapshot().table
    assert not cache.changed_nodes
    assert set(table.rows) == {f"n{number}" for number in range(2, 8)}
    assert table.infos[table.rows["n2"]].labels["zone"] == "a"


def test_sums_beyond_an_int64_stop_there_and_come_back(cache: SchedulerCache) -> None:
    largest = 2**63 - 1
    cache.add_pod(info(cache, WEB))
    greedy = [
        info(cache, make_pod(name).req(cpu=largest, memory=largest, ephemeral_storage=largest))
        for name in ("greedy1", "greedy2")
    ]
    for pod in greedy:
        cache.add_pod(pod)
    table = cache.update_snapshot().table
    row = table.rows["n1"]
    assert [int(column[row]) for column in table.requested[:3]] == [largest] * 3
    assert table.non_zero[:, row].tolist() == [largest] * 2

    for pod in greedy:
        cache.remove_pod(pod.uid)

    cache.update_snapshot()
    assert [int(column[row]) for column in table.requested[:3]] == [1000, 1 << 30, 0]
    assert table.non_zero[:, row].tolist() == [1000, 1 << 30]


def test_what_a_node_offers_is_from_zero_to_an_int64(cache: SchedulerCache) -> None:
    cache.add_node(make_node("n1").capacity(cpu="-4", memory="1e400", pods="-1").obj())
    table = cache.update_snapshot().table
    row = table.rows["n1"]

    assert [int(column[row]) for column in table.allocatable[:2]] == [0, 2**63 - 1]
    assert table.allowed_pods[row] == 0


def test_an_assumed_pod_counts_before_the_api_server_knows(cache: SchedulerCache) -> None:
    cache.assume_pod(info(cache, WEB))
    assert cpu_millis(cache, "n1") == 1000
    assert cache.is_assumed("uid:default/web")


def test_the_watch_confirms_an_assumed_pod_without_counting_it_twice(cache: SchedulerCache) -> None:
    cache.assume_pod(info(cache, WEB))
    cache.add_pod(info(cache, WEB))
    assert cpu_millis(cache, "n1") == 1000
    assert not cache.is_assumed("uid:default/web")


def test_a_confirmed_pod_and_its_status_updates_change_no_row(cache: SchedulerCache) -> None:
    cache.assume_pod(info(cache, WEB))
    log = cache.update_snapshot().table.row_log
    before = log.generation
    cache.add_pod(info(cache, WEB))
    cache.update_pod(info(cache, WEB.phase("Running")))
    node = cache.update_snapshot().get("n1")
    assert log.generation == before
    assert node is not None
    assert node.pods["uid:default/web"].pod.status.phase == "Running"


def test_a_pod_seen_on_another_node_than_assumed_moves_there(cache: SchedulerCache) -> None:
    cache.assume_pod(info(cache, WEB, "n1"))
    cache.add_pod(info(cache, WEB, "n2"))
    assert (cpu_millis(cache, "n1"), cpu_millis(cache, "n2")) == (0, 1000)


def test_a_forgotten_pod_gives_its_room_back(cache: SchedulerCache) -> None:
    pod = info(cache, WEB)
    cache.assume_pod(pod)
    cache.forget_pod(pod)
    assert cpu_millis(cache, "n1") == 0
    assert cache.get_pod(pod.uid) is None
    cache.forget_pod(pod)  # unknown by now: nothing to do


def test_a_confirmed_pod_cannot_be_forgotten(cache: SchedulerCache) -> None:
    cache.add_pod(info(cache, WEB))
    with pytest.raises(InvariantBroken, match="was not assumed"):
        cache.forget_pod(info(cache, WEB))


def test_a_known_pod_cannot_be_assumed(cache: SchedulerCache) -> None:
    cache.add_pod(info(cache, WEB))
    with pytest.raises(InvariantBroken, match="cannot be assumed"):
        cache.assume_pod(info(cache, WEB))


def test_a_bound_pod_is_where_the_api_server_says(cache: SchedulerCache) -> None:
    cache.add_pod(info(cache, WEB, "n1"))
    cache.update_pod(info(cache, WEB, "n2"))
    assert (cpu_millis(cache, "n1"), cpu_millis(cache, "n2")) == (0, 1000)


def test_assumed_pods_are_bound_when_their_binding_was_answered(cache: SchedulerCache) -> None:
    pod = info(cache, WEB)
    cache.assume_pod(pod)
    assert cache.bound_assumed() == []
    cache.finish_binding(pod.uid)
    assert cache.bound_assumed() == [pod.uid]
    cache.add_pod(pod)
    assert cache.bound_assumed() == []


def test_an_assumed_pod_expires_only_after_its_binding_finished(
    cache: SchedulerCache, now: Ticker
) -> None:
    pod = info(cache, WEB)
    cache.assume_pod(pod)
    now.seconds = 1000.0
    assert cache.expire_assumed() == []
    cache.finish_binding(pod.uid)
    now.seconds = 1029.0
    assert cache.expire_assumed() == []
    now.seconds = 1030.0
    assert [expired.uid for expired in cache.expire_assumed()] == [pod.uid]
    assert cpu_millis(cache, "n1") == 0


def test_a_time_to_live_of_zero_never_expires(now: Ticker) -> None:
    cache = SchedulerCache(now)
    cache.add_node(make_node("n1").obj())
    pod = info(cache, WEB)
    cache.assume_pod(pod)
    cache.finish_binding(pod.uid)
    now.seconds = 1e9
    assert cache.expire_assumed() == []


def test_pods_of_a_removed_node_are_kept_by_a_ghost(cache: SchedulerCache) -> None:
    cache.add_pod(info(cache, WEB))
    cache.remove_node("n1")
    assert cache.update_snapshot().get("n1") is None
    assert cache.statistics().nodes == 2, "n2 and the ghost of n1"
    cache.add_node(make_node("n1").obj())
    assert cpu_millis(cache, "n1") == 1000


def test_a_ghost_goes_with_its_last_pod(cache: SchedulerCache) -> None:
    cache.add_pod(info(cache, WEB))
    cache.remove_node("n1")
    cache.remove_pod("uid:default/web")
    assert cache.statistics().nodes == 1


def test_a_pod_may_come_before_its_node(cache: SchedulerCache) -> None:
    cache.add_pod(info(cache, WEB, "late"))
    assert cache.update_snapshot().get("late") is None
    cache.add_node(make_node("late").obj())
    assert cpu_millis(cache, "late") == 1000


def test_a_nonsense_quantity_names_the_node_and_keeps_its_last_good_version(
    cache: SchedulerCache,
) -> None:
    broken = make_node("n1").merge({"status": {"allocatable": {"cpu": "many"}}})
    with pytest.raises(InvalidObject, match=r"Node n1: status.allocatable\[cpu\]"):
        cache.add_node(broken.obj())
    node = cache.update_snapshot().get("n1")
    assert node is not None
    assert node.allocatable_of("cpu") == 4000


def test_a_broken_new_node_leaves_no_trace(cache: SchedulerCache) -> None:
    broken = make_node("n9").merge({"status": {"allocatable": {"cpu": "many"}}})
    with pytest.raises(InvalidObject):
        cache.add_node(broken.obj())
    assert cache.statistics().nodes == 2
    assert cache.update_snapshot().get("n9") is None


def test_the_snapshot_does_not_change_until_it_is_updated(cache: SchedulerCache) -> None:
    snapshot = cache.update_snapshot()
    cache.assume_pod(info(cache, WEB))
    cache.remove_node("n2")
    node = snapshot.get("n1")
    assert node is not None
    assert node.requested_of("cpu") == 0
    assert snapshot.table.all().requested("cpu").tolist() == [0, 0]
    assert snapshot.get("n2") is not None


def test_pods_tried_in_the_snapshot_are_rolled_back_without_a_trace(cache: SchedulerCache) -> None:
    snapshot = cache.update_snapshot()
    row = snapshot.table.rows["n1"]
    pods = [info(cache, WEB.uid(f"u{number}")) for number in range(3)]
    for pod in pods:
        snapshot.assume(pod, row)
    assert snapshot.table.all().requested("cpu")[row] == 3000
    for pod in pods:
        snapshot.forget(pod, row)
    assert snapshot.table.all().requested("cpu")[row] == 0
    assert cache.statistics().pods == 0


def test_an_overlay_is_a_table_of_its_own(cache: SchedulerCache) -> None:
    snapshot = cache.update_snapshot()
    node = snapshot.get("n1")
    assert node is not None
    crowded = node.clone()
    crowded.add_pod(info(cache, WEB))
    overlay = snapshot.overlay([crowded])
    assert overlay.all().requested("cpu").tolist() == [1000]
    assert snapshot.table.all().requested("cpu").tolist() == [0, 0]


def test_removing_a_node_keeps_the_rows_dense(cache: SchedulerCache) -> None:
    cache.add_node(make_node("n3").label(zone="z").obj())
    snapshot = cache.update_snapshot()
    assert snapshot.table.all().label("zone").ids.tolist() == [0, 0, 1]
    cache.remove_node("n1")
    cache.update_snapshot()
    assert sorted(snapshot.table.rows.values()) == [0, 1]
    row = snapshot.table.rows["n3"]
    assert snapshot.table.all().label("zone").ids[row] == 1
    assert snapshot.table.infos[row].name == "n3"


def test_an_unknown_extended_resource_widens_the_table(cache: SchedulerCache) -> None:
    cache.update_snapshot()
    names = [f"example.com/r{number}" for number in range(12)]
    node = make_node("n9").capacity(dict.fromkeys(names, "3"))
    cache.add_node(node.obj())
    table = cache.update_snapshot().table
    for name in names:
        assert table.all().allocatable(name).tolist() == [0, 0, 3]


def test_equal_pods_share_a_template_wherever_they_run(cache: SchedulerCache) -> None:
    pending = cache.pod_info(WEB.uid("a").obj())
    bound = cache.pod_info(WEB.uid("b").node("n1").phase("Running").obj())
    assert pending.template is bound.template


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(WEB.label(app="x"), id="labels"),
        pytest.param(WEB.req(cpu="2"), id="requests"),
        pytest.param(WEB.priority(7), id="priority"),
        pytest.param(WEB.toleration(key="k"), id="tolerations"),
        pytest.param(WEB.host_port(80), id="ports"),
        pytest.param(WEB.node_selector(a="b"), id="node selector"),
        pytest.param(WEB.owner("ReplicaSet", "rs"), id="controller"),
        pytest.param(WEB.scheduler("mine"), id="profile"),
        pytest.param(WEB.pvc("data"), id="volumes"),
    ],
)
def test_pods_that_a_plugin_can_tell_apart_do_not(cache: SchedulerCache, other: PodBuilder) -> None:
    assert cache.pod_info(WEB.obj()).template is not cache.pod_info(other.obj()).template


def test_pods_that_ask_for_the_same_share_what_is_derived_from_it(cache: SchedulerCache) -> None:
    """Every pod of a StatefulSet has labels and claims of its own."""

    def member(pod: PodBuilder, number: str) -> PodInfo:
        volume = {"persistentVolumeClaim": {"claimName": f"data-{number}"}}
        return cache.pod_info(
            with_claim(pod.volume(volume), f"gpu-{number}").label(pod=number).obj()
        )

    one, other, larger = member(WEB, "0"), member(WEB, "1"), member(WEB.req(cpu="2"), "2")
    assert one.template is not other.template
    assert one.template.claimless_signature is other.template.claimless_signature
    assert one.template.signature is not other.template.signature
    assert one.template.demand is other.template.demand
    assert larger.template.claimless_signature is not one.template.claimless_signature
    assert larger.template.requests["cpu"] == 2 * one.template.requests["cpu"]


def test_templates_die_with_the_sweep_after_their_last_pod(cache: SchedulerCache) -> None:
    pod = cache.pod_info(WEB.obj())
    cache.sweep()
    assert cache.statistics().templates == 1
    del pod
    assert cache.statistics().templates == 0


def test_a_template_waits_for_the_next_pod_of_its_kind(cache: SchedulerCache) -> None:
    """A bound pod has labels of its node, so it is of another one."""
    number = cache.pod_info(WEB.obj()).template.number
    cache.add_pod(info(cache, WEB.label(zone="a")))
    assert cache.pod_info(WEB.uid("next").obj()).template.number == number


def test_only_few_templates_without_pods_are_kept(cache: SchedulerCache) -> None:
    for number in range(TEMPLATES_KEPT + 10):
        cache.pod_info(WEB.label(number=str(number)).obj())
    assert cache.statistics().templates == TEMPLATES_KEPT


def test_a_confirmed_pod_with_labels_of_its_node_is_not_counted_anew(
    cache: SchedulerCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.assume_pod(info(cache, WEB))
    monkeypatch.delattr(NodeInfo, "_count")
    cache.add_pod(info(cache, WEB.label(zone="a")))
    node = cache.update_snapshot().get("n1")
    assert node is not None
    [template] = node.running
    assert template.labels["zone"] == "a"
    assert cpu_millis(cache, "n1") == 1000
