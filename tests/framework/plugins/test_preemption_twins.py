"""Preemption decided by columns, by copies of nodes, and by the reference.

Covers ``ksched.framework.plugins.default_preemption.outcomes`` too.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ksched.api.objects import Pod, PodDisruptionBudget
from ksched.framework.cycle_state import CycleState
from ksched.framework.diagnosis import Diagnosis
from ksched.framework.plugins.default_preemption import dry_run
from ksched.framework.plugins.default_preemption.candidates import pick_one_node_for_preemption
from ksched.framework.plugins.default_preemption.dry_run import DryRun, Findings
from ksched.framework.plugins.default_preemption.outcomes import KnownOutcomes, Rows
from ksched.framework.plugins.default_preemption.plugin import DefaultPreemption
from ksched.framework.status import Code
from ksched.testing import make_node, make_pod
from ksched.testing.virtual_time import run
from lab.decider import Decider, Verdict
from lab.random_preemption import NAMESPACE, PRIORITIES, Budget, Case, random_case
from lab.reference import DEFAULT_PROFILE, World, decide
from lab.reference.preemption import preempt

SEEDS = st.integers(0, 10**6)


def _nominated(rng: random.Random, case: Case) -> dict[str, list[Pod]]:
    """Some pods that are expected on nodes, of all priorities."""
    nominated: dict[str, list[Pod]] = {}
    for number in range(rng.choice((0, 0, 1, 3))):
        name = rng.choice(case.nodes).obj().metadata.name
        pod = make_pod(f"nominated{number}", NAMESPACE).req(cpu=rng.choice(("500m", "1")))
        pod = pod.priority(rng.choice(PRIORITIES)).label(app=rng.choice("abc")).nominated(name)
        nominated.setdefault(name, []).append(pod.obj())
    return nominated


def _decider(case: Case, nominated: dict[str, list[Pod]], seed: int) -> Decider:
    decider = Decider(seed=seed)
    for budget in case.budgets:
        decider.listers.require(PodDisruptionBudget).put(budget.obj())
    decider.set_cluster([node.obj() for node in case.nodes], [pod.obj() for pod in case.pods])
    for pods in nominated.values():
        for pod in pods:
            decider.nominator.add(decider.cache.pod_info(pod))
    return decider


@settings(max_examples=150, deadline=None)
@given(seed=SEEDS)
def test_agrees_with_the_reference(seed: int) -> None:
    rng = random.Random(seed)
    case = random_case(rng)
    nominated = _nominated(rng, case)
    by_node: dict[str, list[Pod]] = {}
    for builder in case.pods:
        by_node.setdefault(builder.obj().spec.node_name, []).append(builder.obj())
    nodes, pod = [node.obj() for node in case.nodes], case.pod.obj()
    world = World(nodes, by_node, pod, DEFAULT_PROFILE)
    budgets = [budget.obj() for budget in case.budgets]

    verdict = run(_decider(case, nominated, seed).decide(pod))

    if not nominated:
        decision = decide(nodes, by_node, pod, DEFAULT_PROFILE)
        assert verdict.feasible == decision.scores.keys()
    if verdict.feasible:
        return
    wanted = preempt(world, budgets, nominated)
    _check(verdict, wanted.choices, wanted.message)


def _check(verdict: Verdict, choices: dict[str, frozenset[str]], message: str) -> None:
    if choices:
        assert verdict.nominated in choices
        assert verdict.victims == choices[verdict.nominated]
        assert "preemption" not in verdict.message
    else:
        assert not verdict.nominated
        assert not verdict.victims
        assert verdict.message.partition(" preemption: ")[2] == message.removeprefix("preemption: ")


class ExactDryRun(DryRun):
    """Tries every row on a copy, without looking at columns."""

    async def run(self, rows: Rows, num_candidates: int) -> Findings:
        await self._evictable.catch_up(self._turn)
        # Of its own: what the columns know must not be refreshed by this.
        self._known = KnownOutcomes(self._table)
        self._known.begin()
        findings = Findings(num_candidates, self._known)
        for row in rows.tolist():
            pods = self._table.infos[row].pods.values()
            if any(pod.priority < self._pod.priority for pod in pods):
                outcome = await self._select_victims_on_node(row)
                self._known.put(row, outcome)
                findings.extend(np.array([row]))
            else:
                findings.reject(1)
        return findings


async def _find(decider: Decider, pod: Pod, kind: type[DryRun], num_candidates: int) -> Findings:
    info, state = decider.cache.pod_info(pod), CycleState()
    profile = decider.profiles["default-scheduler"]
    plugin = profile.framework.plugins["DefaultPreemption"]
    assert isinstance(plugin, DefaultPreemption)
    decider.cache.update_snapshot()
    fit = await decider.cycle.find_nodes(profile, state, info)
    if not isinstance(fit, Diagnosis):
        return Findings(0, KnownOutcomes(plugin._handle.snapshot.table))
    assert fit.node_statuses is not None
    rows = fit.node_statuses.rows_with(Code.UNSCHEDULABLE)
    evictable = plugin.evictable.below(info.priority, plugin._handle.snapshot.table)
    attempt = kind(plugin._handle, state, info, plugin.budgets, evictable)
    return await attempt.run(rows, num_candidates)


@settings(max_examples=100, deadline=None)
@given(seed=SEEDS)
def test_columns_leave_out_no_node_and_no_victim(seed: int) -> None:
    rng = random.Random(seed)
    case = random_case(rng)
    decider = _decider(case, _nominated(rng, case), seed)
    pod = case.pod.obj()

    by_columns = run(_find(decider, pod, DryRun, 1000))
    _check_choice(by_columns, seed)
    found = (by_columns.candidates, by_columns.statuses)
    exactly = run(_find(decider, pod, ExactDryRun, 1000))

    assert found == (exactly.candidates, exactly.statuses)


def _check_choice(findings: Findings, seed: int) -> None:
    """The choice by columns is that by objects, and leaves as much to chance."""
    if candidates := findings.candidates:
        ours, theirs = random.Random(seed), random.Random(seed)
        assert findings.pick(ours) is pick_one_node_for_preemption(candidates, theirs)
        assert ours.getstate() == theirs.getstate()


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS)
def test_columns_follow_a_changing_cluster(seed: int) -> None:
    rng = random.Random(seed)
    case = random_case(rng)
    decider = _decider(case, {}, seed)
    names = [builder.obj().metadata.name for builder in case.nodes]
    for number in range(12):
        _change(rng, decider, names, number)
        pod = case.pod.uid(f"uid:{number}").obj()
        by_columns = run(_find(decider, pod, DryRun, 1000))
        _check_choice(by_columns, seed)
        found = (by_columns.candidates, by_columns.statuses)
        exactly = run(_find(decider, pod, ExactDryRun, 1000))
        assert found == (exactly.candidates, exactly.statuses)


def _change(rng: random.Random, decider: Decider, names: list[str], number: int) -> None:
    cache = decider.cache
    kind = rng.random()
    if kind < 0.4 and cache.pods():
        cache.remove_pod(rng.choice(cache.pods()).uid)
    elif kind < 0.8 and names:
        pod = make_pod(f"new{number}", NAMESPACE).req(cpu="1").priority(rng.choice(PRIORITIES))
        if rng.random() < 0.3:
            pod = pod.req({f"example.com/thing{number}": "1"})
        cache.add_pod(cache.pod_info(pod.node(rng.choice(names)).obj()))
    elif len(names) > 1 and kind < 0.85:
        cache.remove_node(names.pop(rng.randrange(len(names))))
    else:
        _change_beside(rng, decider, names, number)


def _change_beside(rng: random.Random, decider: Decider, names: list[str], number: int) -> None:
    """Change what outcomes depend on besides which pods are where."""
    cache, nominator = decider.cache, decider.nominator
    kind = rng.choice(("nominate", "nominate", "withdraw", "budget", "start", "node"))
    nominated = [pod for pods in nominator.by_node().values() for pod in pods]
    if kind == "nominate":
        pod = make_pod(f"nominated{number}", NAMESPACE).req(cpu=rng.choice(("500m", "1", "3")))
        pod = pod.priority(rng.choice(PRIORITIES)).nominated(rng.choice(names))
        nominator.add(cache.pod_info(pod.obj()))
    elif kind == "withdraw" and nominated:
        nominator.delete(rng.choice(nominated).uid)
    elif kind == "budget":
        budget = Budget(rng.choice("abc"), rng.choice((0, 1, 2)))
        decider.listers.require(PodDisruptionBudget).put(budget.obj())
    elif kind == "start" and cache.pods():
        running = rng.choice(cache.pods()).pod
        status = replace(running.status, start_time=f"2026-01-01T00:00:{number:02}Z")
        cache.update_pod(cache.pod_info(replace(running, status=status)))
    elif kind == "node":
        size = rng.choice(("2", "4", "8"))
        cache.add_node(
            make_node(rng.choice(names)).capacity(cpu=size, memory="8Gi", pods="20").obj()
        )


@pytest.mark.parametrize("num_candidates", [1, 2, 3])
@pytest.mark.parametrize("batch", [1, 2, 64])
@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_stops_at_the_same_candidates(num_candidates: int, batch: int, seed: int) -> None:
    rng = random.Random(seed)
    case = random_case(rng)
    decider = _decider(case, {}, seed)
    pod = case.pod.obj()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dry_run, "NODES_PER_DRY_RUN", batch)
        by_columns = run(_find(decider, pod, DryRun, num_candidates))
    found = {one.node_name: one for one in by_columns.candidates}
    everything = run(_find(decider, pod, ExactDryRun, 1000))

    all_found = {one.node_name: one for one in everything.candidates}
    assert found.items() <= all_found.items()
    assert len(found) >= min(num_candidates, len(all_found))
    assert bool(by_columns.non_violating) == bool(everything.non_violating)
