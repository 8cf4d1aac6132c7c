"""Cached verdicts beside nominated pods are those of asking every filter again."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ksched.cache.pod_info import PodInfo
from ksched.framework.cycle_state import CycleState
from ksched.framework.runtime.node_search import EVERYWHERE, Search
from ksched.framework.runtime.nominated_rows import NominatedRows
from ksched.testing import PodBuilder, make_node, make_pod
from ksched.testing.virtual_time import run
from lab.decider import Decider

PRIORITIES = (0, 5, 10)
Statuses = dict[str, tuple[str, ...]]


async def judge(decider: Decider, pod: PodInfo) -> Statuses:
    """The reasons against every node."""
    decider.cache.update_snapshot()
    pipeline = decider.profiles["default-scheduler"].pipeline
    state = CycleState()
    await pipeline.run_pre_filter(state, pod)
    nominated = decider.nominator.expected_with(pod)
    search = Search(nominated=nominated) if nominated else EVERYWHERE
    fit = await pipeline.find_nodes_that_fit(state, pod, search)
    names = [info.name for info in decider.cache.snapshot.table.infos]
    return {
        name: fit.book.status(code).reasons if code else ()
        for name, code in zip(names, fit.codes.tolist(), strict=True)
    }


async def judge_anew(decider: Decider, pod: PodInfo) -> Statuses:
    """The same without anything cached for nominated pods."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NominatedRows, "cached_codes", lambda *args: None)
        return await judge(decider, pod)


def nominated_pod(rng: random.Random, number: int, names: list[str]) -> PodBuilder:
    pod = make_pod(f"nominated{number}").req(cpu=rng.choice(("500m", "1", "2")))
    return pod.priority(rng.choice(PRIORITIES)).nominated(rng.choice(names))


def change(rng: random.Random, decider: Decider, names: list[str], number: int) -> None:
    cache, nominator = decider.cache, decider.nominator
    kind = rng.random()
    nominated = [pod for pods in nominator.by_node().values() for pod in pods]
    if kind < 0.35:
        nominator.add(cache.pod_info(nominated_pod(rng, number, names).obj()))
    elif kind < 0.5 and nominated:
        nominator.delete(rng.choice(nominated).uid)
    elif kind < 0.7:
        pod = make_pod(f"running{number}").req(cpu=rng.choice(("1", "2"))).node(rng.choice(names))
        cache.add_pod(cache.pod_info(pod.obj()))
    elif kind < 0.8 and cache.pods():
        cache.remove_pod(rng.choice(cache.pods()).uid)
    elif kind < 0.9:
        names.append(f"n{len(names) + 100 * number}")
        cache.add_node(make_node(names[-1]).obj())
    elif kind < 0.95 and len(names) > 1:
        cache.remove_node(names.pop(rng.randrange(len(names))))
    else:
        cache.add_node(make_node(rng.choice(names)).taint("x").obj())


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_verdicts_follow_nodes_and_nominations(seed: int) -> None:
    rng = random.Random(seed)
    decider = Decider(seed=seed)
    names = [f"n{number}" for number in range(rng.choice((1, 3, 6)))]
    decider.set_cluster([make_node(name).obj() for name in names])
    for number in range(30):
        change(rng, decider, names, number)
        if rng.random() < 0.4:
            continue
        priority = rng.choice(PRIORITIES)
        pod = make_pod(f"p{number}").req(cpu="2").priority(priority).label(app=rng.choice("ab"))
        info = decider.cache.pod_info(pod.obj())
        if rng.random() < 0.3:
            # Its own nomination is no obstacle.
            decider.nominator.add(info, rng.choice(names))
        assert run(judge(decider, info)) == run(judge_anew(decider, info))
        if rng.random() < 0.5:
            decider.nominator.delete(info.uid)


@pytest.mark.parametrize("nodes", [20, 200])
async def test_an_attempt_costs_what_changed_and_not_who_is_nominated(nodes: int) -> None:
    decider = Decider()
    decider.set_cluster([make_node(f"n{number}").obj() for number in range(nodes)])
    for number in range(nodes):
        nominated = make_pod(f"nominated{number}").req(cpu="3").priority(5).nominated(f"n{number}")
        decider.nominator.add(decider.cache.pod_info(nominated.obj()))
    work = decider.profiles["default-scheduler"].pipeline.work
    pods = [decider.cache.pod_info(make_pod(f"p{n}").req(cpu="2").obj()) for n in range(3)]
    for pod in pods[:2]:
        assert set((await judge(decider, pod)).values()) == {("Insufficient cpu",)}
    before = work.rows
    decider.nominator.delete("uid:default/nominated7")
    running = make_pod("running").req(cpu="1").node("n3")
    decider.cache.add_pod(decider.cache.pod_info(running.obj()))
    found = await judge(decider, pods[2])
    assert [name for name, reasons in found.items() if not reasons] == ["n7"]
    assert work.rows - before < 40


async def test_nodes_with_equal_amounts_are_judged_once() -> None:
    decider = Decider()
    decider.set_cluster([make_node(f"n{number}").obj() for number in range(20)])
    work = decider.profiles["default-scheduler"].pipeline.work
    spent = [work.rows]
    for number in range(20):
        nominated = make_pod(f"nominated{number}").req(cpu="3").priority(5).nominated(f"n{number}")
        decider.nominator.add(decider.cache.pod_info(nominated.obj()))
        found = await judge(decider, decider.cache.pod_info(make_pod("p").req(cpu="2").obj()))
        assert sum(map(bool, found.values())) == number + 1
        spent.append(work.rows)
    assert spent[0] < spent[1] == spent[-1]
