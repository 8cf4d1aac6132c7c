"""What a tenant's pods cost others: counted while they are there, and gone when they are."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from itertools import count

import msgspec
import pytest

from ksched.api.objects import Pod
from ksched.benchmark import make_workload_node
from ksched.cache.pod_info import PodInfo
from ksched.framework.counters import counters_of
from ksched.framework.plugins.inter_pod_affinity.terms import AffinityTerm
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.scheduling.scheduling_cycle import Placed, Rejected
from ksched.scheduling.sweeping import Sweeper
from ksched.testing import make_pod
from ksched.testing.virtual_time import VirtualClock
from lab import hostile
from lab.decider import Decider

NODES = 60
NODE = "node-00003"


class Tenants:
    """A cluster in which pods are tried one by one."""

    def __init__(self) -> None:
        self.decider = Decider()
        self.calls = 0
        self.decider.set_cluster(make_workload_node(number) for number in range(NODES))
        self.cache, self.cycle = self.decider.cache, self.decider.cycle
        self.sweeper = Sweeper(
            cache=self.cache,
            cycle=self.cycle,
            profiles=self.decider.profiles.values(),
            clock=VirtualClock(),
        )

    async def attempt(self, pod: Pod) -> PodInfo:
        """Try a pod; if it is placed it runs."""
        info = self.cache.pod_info(pod)
        if info.node_name:
            self.cache.add_pod(info)
            return info
        outcome: Placed | Rejected = await self.cycle.run(QueuedPodInfo(info, timestamp=0.0))
        return outcome.pod if isinstance(outcome, Placed) else info

    async def attack(self, name: str, node: str = NODE) -> list[PodInfo]:
        return [
            await self.attempt(msgspec.convert(manifest, Pod, strict=False))
            for manifest in _named(hostile.ATTACKS[name]("evil", node))
        ]

    async def others(self, first: int, number: int, *, choosy: bool = False) -> list[str]:
        """Where as many pods of other tenants go, each of a template of its own."""
        self.calls += 1
        pods = [
            make_pod(f"p{one}-{self.calls}").label(app=f"a{one}").req(cpu="1m")
            for one in range(first, first + number)
        ]
        if choosy:
            near = {"app": "nobody"}
            pods[::3] = [pod.pod_affinity(hostile.HOSTNAME, near, weight=1) for pod in pods[::3]]
        return [(await self.attempt(pod.obj())).node_name for pod in pods]

    def leave(self, pods: list[PodInfo]) -> None:
        for pod in pods:
            self.cache.remove_pod(pod.uid)

    @property
    def counters(self) -> int:
        ledger = counters_of(self.cache.update_snapshot().table)
        return len(ledger._pods) + len(ledger._domains) + len(ledger._topologies)


def _named(manifests: list[hostile.Manifest]) -> list[hostile.Manifest]:
    """What an API server adds."""
    for number, manifest in enumerate(manifests):
        manifest["metadata"] |= {"namespace": "evil", "uid": f"evil-{number}"}
    return manifests


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a term was compared with a pod, by topology key."""
    asked: Counter[str] = Counter()
    matches = AffinityTerm.matches

    def noted(term: AffinityTerm, *args: object) -> bool:
        asked[term.topology_key] += 1
        return matches(term, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(AffinityTerm, "matches", noted)
    return asked


async def test_terms_by_labels_that_no_node_has_are_never_looked_at(asked: Counter[str]) -> None:
    tenants = Tenants()
    await tenants.others(0, 5)
    before = tenants.counters
    await tenants.attack("absent keys")
    await tenants.others(5, 20)

    assert not asked
    assert tenants.counters <= before


@pytest.mark.parametrize("attack", ["host terms", "wishes", "value lists"])
async def test_a_term_is_asked_about_once_for_a_template_and_all_share_a_counter(
    asked: Counter[str], attack: str
) -> None:
    tenants = Tenants()
    await tenants.others(0, 2)
    before = tenants.counters
    await tenants.attack(attack)
    await tenants.others(2, 4)
    once = asked.total()
    assert once <= 4 * 6000
    assert tenants.counters <= before + 3

    await tenants.others(2, 4)
    assert asked.total() == once


async def test_templates_that_no_term_tells_apart_are_compared_once(asked: Counter[str]) -> None:
    tenants = Tenants()
    await tenants.attack("host terms")
    await tenants.others(0, 1)
    once = asked.total()
    await tenants.others(1, 10)
    assert asked.total() == once

    watched = make_pod("watched").label(app="a3").pod_anti_affinity(hostile.HOSTNAME, {"app": "a3"})
    await tenants.attempt(watched.obj())
    before = asked.total()
    await tenants.others(0, 10)
    # The label matters from now on, so each asks for itself, but only about the new term.
    assert before < asked.total() <= before + 12


async def test_terms_of_a_running_pod_keep_others_away_from_its_host_only() -> None:
    tenants = Tenants()
    await tenants.attack("host terms")
    placed = await tenants.others(0, 2 * NODES)
    assert NODE not in placed
    assert "" not in placed


async def test_others_have_their_turn_while_many_terms_are_taken_over() -> None:
    tenants = Tenants()
    ticks = count()
    for plugin in tenants.decider.profiles["default-scheduler"].framework.plugins.values():
        if hasattr(plugin, "_now"):
            # A millisecond for each question: a few steps are a slice.
            plugin._now = lambda: next(ticks) / 1000
    await tenants.attack("host terms")
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    await tenants.others(0, 1)
    task.cancel()
    # 6,000 terms are compiled and matched 64 at a time, and about five such steps are a slice.
    assert turns > 2 * 6000 / 64 / 6


@pytest.mark.parametrize("attack", hostile.ATTACKS)
async def test_nothing_is_left_of_an_attack(attack: str) -> None:
    tenants = Tenants()
    # What the first pod that fits nowhere brings about stays.
    await tenants.attempt(make_pod("nowhere").node_selector(nobody="has").obj())
    before = await _settled(tenants)
    evil = await tenants.attack(attack)
    await tenants.others(0, 10, choosy=True)
    during = _live_objects()
    tenants.leave(evil)
    del evil
    after = await _settled(tenants)

    assert during["PodTemplate"] > after["PodTemplate"] == before["PodTemplate"]
    of_a_pod = {"PodInfo", "CachedPod", "Pod", "PodSpec", "ObjectMeta", "Container", "Resources"}
    of_a_pod |= {"Affinity", "PodAffinity", "WeightedPodAffinityTerm", "PodAffinityTerm"}
    of_a_pod |= {"LabelSelector"}
    # One call in a hundred is timed; a series appears with the first of its plugin and point.
    of_a_sample = {"Distribution"}
    # The last statuses of every plugin that returned some.
    of_a_plugin = {"Status"}
    known = of_a_pod | of_a_sample | of_a_plugin
    grown = {kind: more for kind, more in (after - before).items() if kind not in known}
    assert grown == {}
    assert after["PodInfo"] - before["PodInfo"] <= 4 * 10
    assert after["Status"] - before["Status"] <= 10


async def _settled(tenants: Tenants) -> Counter[str]:
    """What there is while the same pods of others go on coming."""
    for _ in range(3):
        await tenants.others(0, 10, choosy=True)
        tenants.sweeper.sweep()
    return _live_objects()


def _live_objects() -> Counter[str]:
    """Objects of our own types."""
    gc.collect()
    return Counter(
        type(one).__name__
        for one in gc.get_objects()
        if str(type(one).__module__).startswith("ksched.")
    )
