"""Work per decision is counted, not timed: how many rows the plugins were asked about."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest

from ksched.api.storage import PersistentVolume, PersistentVolumeClaim
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.framework.runtime.filter_columns import Work
from ksched.scheduling.scheduling_cycle import Placed, Rejected
from ksched.testing import make_node, make_pod
from ksched.testing.builders import PodBuilder
from ksched.testing.storage_builders import make_claim, make_volume
from lab.decider import Decider

NODES = 5_000


@pytest.fixture(scope="module")
def decider() -> Decider:
    decider = Decider()
    shape = make_node("shape").capacity(cpu="32", memory="256Gi", pods="110")
    decider.set_cluster(
        shape.merge({"metadata": {"name": f"n{i}", "labels": {"zone": f"z{i % 10}"}}}).obj()
        for i in range(NODES)
    )
    # The first snapshot of a cluster is made in slices.
    decider.cache.update_snapshot()
    return decider


def work_of(decider: Decider) -> Work:
    return decider.profiles["default-scheduler"].pipeline.work


def attempt(decider: Decider, pod: PodBuilder, uid: str) -> Placed | Rejected:
    queued = QueuedPodInfo(decider.cache.pod_info(pod.uid(uid).obj()), timestamp=0.0)
    return run_now(decider.cycle.run(queued))


def run_now(cycle: Coroutine[Any, Any, Placed | Rejected]) -> Placed | Rejected:
    try:
        cycle.send(None)
    except StopIteration as done:
        outcome: Placed | Rejected = done.value
        return outcome
    raise AssertionError("a columnar cycle suspended")


def test_ten_thousand_identical_pods_ask_about_fewer_than_five_rows_each(decider: Decider) -> None:
    pod = make_pod("web").req(cpu="100m", memory="500Mi").label(app="web")
    assert isinstance(attempt(decider, pod, "web-first"), Placed)
    before = work_of(decider).rows
    for number in range(10_000):
        assert isinstance(attempt(decider, pod, f"web-{number}"), Placed)
    assert (work_of(decider).rows - before) / 10_000 < 5


def test_pods_that_differ_in_labels_share_what_is_kept(decider: Decider) -> None:
    pod = make_pod("shared").req(cpu="70m", memory="300Mi")
    assert isinstance(attempt(decider, pod.label(app="a0"), "shared-first"), Placed)
    before = work_of(decider).rows
    for number in range(1, 100):
        labelled = pod.label(app=f"a{number}")
        assert isinstance(attempt(decider, labelled, f"shared-{number}"), Placed)
    assert (work_of(decider).rows - before) / 100 < 5


def with_claim(decider: Decider, pod: PodBuilder, name: str) -> PodBuilder:
    """A pod with a bound claim of its own; all pods call the volume alike."""
    volume = make_volume(f"pv-{name}").obj()
    decider.listers.require(PersistentVolume).put(volume)
    decider.listers.require(PersistentVolumeClaim).put(
        make_claim(name).bound_to(f"pv-{name}").obj()
    )
    return pod.volume({"persistentVolumeClaim": {"claimName": name}})


def test_pods_with_claims_of_their_own_share_what_is_kept(decider: Decider) -> None:
    pod = make_pod("db").req(cpu="90m", memory="300Mi")
    assert isinstance(attempt(decider, with_claim(decider, pod, "c0"), "db-first"), Placed)
    before = work_of(decider).rows
    for number in range(1, 21):
        own = with_claim(decider, pod, f"c{number}")
        assert isinstance(attempt(decider, own, f"db-{number}"), Placed)
    asked = (work_of(decider).rows - before) / 20
    assert asked - 2 * NODES < 5, (
        "NodeVolumeLimits and VolumeBinding about all, the others about few"
    )


def test_a_new_group_of_pods_asks_only_those_who_tell_it_apart(decider: Decider) -> None:
    def pod(group: str) -> PodBuilder:
        return make_pod(group).req(cpu="80m").label(g=group).pod_anti_affinity("zone", {"g": group})

    assert isinstance(attempt(decider, pod("g0"), "g0"), Placed)
    before = work_of(decider).rows
    for number in range(1, 6):
        assert isinstance(attempt(decider, pod(f"g{number}"), f"g{number}"), Placed)
        assert isinstance(attempt(decider, pod(f"g{number}"), f"g{number}-again"), Placed)
    asked = (work_of(decider).rows - before) / 5
    assert NODES <= asked < 2 * NODES, "InterPodAffinity about all once, the others about few"


def test_pods_that_a_term_tells_apart_by_their_labels_share_nothing(decider: Decider) -> None:
    apart = make_pod("apart").label(app="loner").pod_anti_affinity("zone", {"app": "meant"})
    where = attempt(decider, apart, "apart")
    assert isinstance(where, Placed)
    row = decider.cache.snapshot.table.rows[where.node_name]
    zone = decider.cache.snapshot.table.infos[row].labels["zone"]
    pod = make_pod("kin").req(cpu="60m")
    for number in range(50):
        kept_out = attempt(decider, pod.label(app="meant"), f"meant-{number}")
        free = attempt(decider, pod.label(app="other"), f"other-{number}")
        assert isinstance(kept_out, Placed)
        assert isinstance(free, Placed)
        assert kept_out.feasible_nodes == NODES - NODES // 10, f"not in {zone}"
        assert free.feasible_nodes == NODES


def test_a_nominated_node_is_judged_by_what_is_known(decider: Decider) -> None:
    pod = make_pod("preemptor").req(cpu="110m")
    assert isinstance(attempt(decider, pod, "preemptor-first"), Placed)
    before = work_of(decider).rows
    for number in range(10):
        placed = attempt(decider, pod.nominated(f"n{number}"), f"preemptor-{number}")
        assert isinstance(placed, Placed)
        assert (placed.node_name, placed.evaluated_nodes) == (f"n{number}", 1)
    assert (work_of(decider).rows - before) / 10 <= 1, "about the node of the pod before"


async def test_a_template_that_fits_nowhere_costs_no_row_until_something_relevant_changes(
    decider: Decider,
) -> None:
    pod = make_pod("huge").req(cpu="64")
    first = attempt(decider, pod, "huge-0")
    assert isinstance(first, Rejected)
    before = work_of(decider).rows
    for number in range(1, 100):
        again = attempt(decider, pod, f"huge-{number}")
        assert isinstance(again, Rejected)
        assert again.message == first.message
    assert work_of(decider).rows == before

    decider.cache.add_node(make_node("bigger").capacity(cpu="96", memory="256Gi").obj())
    placed = attempt(decider, pod, "huge-placed")
    assert isinstance(placed, Placed)
    assert placed.node_name == "bigger"
    asked = work_of(decider).rows - before
    assert 0 < asked < 20, "only the new node is worth a question"
