"""When DefaultPreemption acts, whom it evicts, and what it says otherwise.

default_preemption.go, preemption.go (v1.36).
"""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import Any

import pytest

from ksched.api.objects import PodDisruptionBudget
from ksched.configuration import load_config
from ksched.configuration.plugin_args import DefaultPreemptionArgs
from ksched.framework import QueueingHint, Status, error, unresolvable, unschedulable
from ksched.framework.cluster_events import ASSIGNED_POD_DELETE
from ksched.framework.plugins.default_preemption.dry_run import DryRun, Findings
from ksched.framework.plugins.default_preemption.outcomes import Rows
from ksched.framework.plugins.default_preemption.plugin import DefaultPreemption
from ksched.testing import FakePlugin, NodeBuilder, PodBuilder, make_node, make_pod
from ksched.testing.plugin_runner import run_hint
from ksched.testing.virtual_time import VirtualClock
from lab.decider import Decider, Verdict
from lab.random_preemption import NAMESPACE, Budget

HOSTNAME = "kubernetes.io/hostname"
NOT_HELPFUL = "Preemption is not helpful for scheduling"
NOBODY = "No preemption victims found for incoming pod"


def low(name: str, node: str = "n1", cpu: str = "1") -> PodBuilder:
    return make_pod(name, NAMESPACE).req(cpu=cpu).priority(10).node(node).label(app="low")


def high(cpu: str = "2") -> PodBuilder:
    return make_pod("high", NAMESPACE).req(cpu=cpu).priority(100)


def node(name: str = "n1", cpu: str = "2") -> NodeBuilder:
    return make_node(name).capacity(cpu=cpu)


async def decide(
    nodes: list[NodeBuilder],
    pods: list[PodBuilder],
    pod: PodBuilder,
    *,
    budgets: list[Budget] | None = None,
    nominated: list[PodBuilder] | None = None,
    plugins: list[FakePlugin] | None = None,
) -> Verdict:
    names = [{"name": plugin.name} for plugin in plugins or ()]
    profile = {"schedulerName": "default-scheduler", "plugins": {"multiPoint": {"enabled": names}}}
    config = load_config(
        json.dumps(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "profiles": [profile],
            }
        )
    )
    registry: dict[str, Any] = {plugin.name: plugin for plugin in plugins or ()}
    decider = Decider(config, registry=registry)
    for budget in budgets or ():
        decider.listers.require(PodDisruptionBudget).put(budget.obj())
    decider.set_cluster([one.obj() for one in nodes], [one.obj() for one in pods])
    for other in nominated or ():
        decider.nominator.add(decider.cache.pod_info(other.obj()))
    return await decider.decide(pod.obj())


def names(verdict: Verdict) -> set[str]:
    return {key.removeprefix(f"{NAMESPACE}/") for key in verdict.victims}


def said(verdict: Verdict) -> str:
    return verdict.message.partition(" preemption: ")[2]


# -- eligibility ----------------------------------------------------------------------------------


async def test_a_pod_that_may_never_preempt_does_not() -> None:
    verdict = await decide([node()], [low("a", cpu="2")], high().preemption_policy("Never"))

    assert said(verdict) == "not eligible due to preemptionPolicy=Never."
    assert verdict.nominated is None, "whatever nomination it has is left alone"


async def test_nothing_is_tried_where_it_could_help_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(DryRun, "run")
    for count in (1, 2, 1):
        nodes = [node(f"n{number}").taint("x") for number in range(count)]
        verdict = await decide(nodes, [low("a", node="n0")], high())
        assert said(verdict) == f"0/{count} nodes are available: {count} {NOT_HELPFUL}."
        assert not verdict.nominated


def preempted(pod: PodBuilder) -> PodBuilder:
    return pod.terminating().condition("DisruptionTarget", "True", "PreemptionByScheduler")


@pytest.mark.parametrize(
    ("there", "is_eligible"),
    [
        pytest.param(preempted(low("a", cpu="2")), False, id="its victim is shutting down"),
        pytest.param(low("a", cpu="2").terminating(), True, id="deleted by somebody else"),
        pytest.param(
            low("a", cpu="2").terminating().condition("DisruptionTarget", "True", "EvictionByAPI"),
            True,
            id="evicted by somebody else",
        ),
        pytest.param(
            low("a", cpu="2")
            .terminating()
            .condition("DisruptionTarget", "False", "PreemptionByScheduler"),
            True,
            id="not preempted after all",
        ),
        pytest.param(
            low("a", cpu="2").condition("DisruptionTarget", "True", "PreemptionByScheduler"),
            True,
            id="not deleted yet",
        ),
        pytest.param(
            preempted(low("a", cpu="2").priority(100)), True, id="as important as the pod"
        ),
    ],
)
async def test_while_its_victims_shut_down_a_pod_waits(
    there: PodBuilder, is_eligible: bool
) -> None:
    nodes = [node(), node("n2")]
    verdict = await decide(nodes, [there, low("b", "n2", "2")], high().nominated("n1"))

    if is_eligible:
        assert verdict.nominated in {"n1", "n2"}
    else:
        assert said(verdict) == "not eligible due to a terminating pod on the nominated node."
        assert verdict.nominated is None
        assert not verdict.victims


async def test_a_nominated_node_that_will_not_do_any_more_is_given_up() -> None:
    nodes = [node().taint("gone"), node("n2")]
    pods = [preempted(low("a", cpu="2")), low("b", "n2", "2")]

    verdict = await decide(nodes, pods, high().nominated("n1"))

    assert (verdict.nominated, names(verdict)) == ("n2", {"b"})


async def test_a_nominated_node_that_is_gone_is_no_obstacle() -> None:
    verdict = await decide([node()], [low("a", cpu="2")], high().nominated("gone"))

    assert verdict.nominated == "n1"


# -- candidates -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "pods", "message"),
    [
        pytest.param(
            [node().taint("x")], [low("a")], f"1 {NOT_HELPFUL}", id="no node where it could help"
        ),
        pytest.param(
            [node(), node("n2").taint("x"), node("n3", "1")],
            [low("a", cpu="2").priority(100), low("b", "n3")],
            f"1 {NOBODY}, 2 {NOT_HELPFUL}",
            id="nobody below, untolerated, too small",
        ),
        pytest.param(
            [node()],
            [low("a"), low("b").priority(100)],
            "1 Insufficient cpu",
            id="what stays is too much",
        ),
        pytest.param(
            [node().capacity(pods="1"), node("n2")],
            [low("a").priority(100), low("b", "n2").priority(100)],
            f"2 {NOBODY}",
            id="equal priority is not below",
        ),
    ],
)
async def test_why_preemption_does_not_help(
    nodes: list[NodeBuilder], pods: list[PodBuilder], message: str
) -> None:
    verdict = await decide(nodes, pods, high())

    assert said(verdict) == f"0/{len(nodes)} nodes are available: {message}."
    assert verdict.nominated == "", "a nomination it had is of no use"


@pytest.mark.parametrize(
    ("potential", "percentage", "absolute", "expected"),
    [
        *((nodes, 10, 100, found) for nodes, found in ((50, 50), (100, 100), (500, 100))),
        *((nodes, 10, 100, found) for nodes, found in ((1000, 100), (2000, 200), (5000, 500))),
        (10, 0, 3, 3),
        (10, 50, 0, 5),
        (10, 100, 100, 10),
    ],
)
def test_how_many_candidates_are_enough(
    potential: int, percentage: int, absolute: int, expected: int
) -> None:
    plugin = DefaultPreemption.__new__(DefaultPreemption)
    plugin._args = DefaultPreemptionArgs(
        min_candidate_nodes_percentage=percentage, min_candidate_nodes_absolute=absolute
    )

    assert plugin._num_candidates(potential) == expected


async def test_the_search_starts_anywhere_and_keeps_the_order_of_zones() -> None:
    seen: set[tuple[int, ...]] = set()

    async def note(self: DryRun, rows: Rows, num_candidates: int) -> Findings:
        seen.add(tuple(rows.tolist()))
        return await original(self, rows, num_candidates)

    original = DryRun.run
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DryRun, "run", note)
        for seed in range(30):
            decider = Decider(seed=seed)
            decider.set_cluster([node(f"n{number}").obj() for number in range(3)])
            await decider.decide(high("2").host_port(80).obj())
            for number in range(3):
                pod = low(f"v{number}", f"n{number}", "2").obj()
                decider.cache.add_pod(decider.cache.pod_info(pod))
            await decider.decide(high().obj())

    assert seen == {(0, 1, 2), (1, 2, 0), (2, 0, 1)}


async def test_errors_of_plugins_are_told_if_there_is_no_candidate() -> None:
    def refuse(state: object, pod: object, removed: Any, info: object) -> Status:
        return error(f"cannot remove {removed.name}")

    plugin = FakePlugin("Touchy", pre_filter=Status(), remove_pod=refuse)
    pods = [low("a", cpu="2"), low("b", "n2", "2")]
    verdict = await decide([node(), node("n2")], [*pods], high().host_port(1), plugins=[plugin])

    told = [
        f'running PreFilterExtensionRemovePod plugin "Touchy": cannot remove {name}'
        for name in "ab"
    ]
    assert said(verdict) in (f"[{told[0]}, {told[1]}]", f"[{told[1]}, {told[0]}]")
    assert verdict.nominated is None


async def test_a_node_that_needs_no_victims_is_an_error() -> None:
    # PreFilter rejects the pod, but no filter rejects a node.
    plugin = FakePlugin("Gloomy", pre_filter=unresolvable("not today"))
    verdict = await decide([node()], [low("a")], high("1"), plugins=[plugin])
    assert said(verdict) == f"0/1 nodes are available: 1 {NOT_HELPFUL}."

    plugin = FakePlugin("Gloomy", pre_filter=unschedulable("not today"))
    verdict = await decide([node()], [low("a")], high("1"), plugins=[plugin])
    assert said(verdict) == 'expected at least one victim pod on node "n1"'


# -- victims --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pods", "cpu", "expected"),
    [
        pytest.param([low("a"), low("b")], "2", {"a", "b"}, id="as many as needed"),
        pytest.param(
            [low("a").started("2026-01-02T00:00:00Z"), low("b").started("2026-01-01T00:00:00Z")],
            "1",
            {"a"},
            id="the younger goes",
        ),
        pytest.param([low("a").priority(20), low("b")], "1", {"b"}, id="the less important goes"),
        pytest.param(
            [low("a", cpu="1500m").priority(20), low("b", cpu="500m")],
            "1",
            {"a"},
            id="the more important goes if only that makes room, and the other stays",
        ),
        pytest.param(
            [low("a", cpu="500m").priority(20), low("b"), low("c", cpu="500m").priority(5)],
            "1500m",
            {"b", "c"},
            id="who is more important comes back first",
        ),
        pytest.param([low("a").terminating(), low("b")], "2", {"a", "b"}, id="terminating too"),
    ],
)
async def test_victims_on_a_node(pods: list[PodBuilder], cpu: str, expected: set[str]) -> None:
    verdict = await decide([node()], pods, high(cpu))

    assert (verdict.nominated, names(verdict)) == ("n1", expected)
    assert verdict.message == "0/1 nodes are available: 1 Insufficient cpu."

    # The same on a copy of the node, because host ports are not amounts.
    verdict = await decide([node()], pods, high(cpu).host_port(80))
    assert (verdict.nominated, names(verdict)) == ("n1", expected)


@pytest.mark.parametrize("port", [0, 80])
async def test_a_protected_pod_comes_back_before_a_more_important_one(port: int) -> None:
    pods = [low("protected").label(app="a"), low("important").priority(50)]
    pod = high("1").host_port(port) if port else high("1")

    verdict = await decide([node()], pods, pod, budgets=[Budget("a", 0)])

    assert names(verdict) == {"important"}


async def test_another_node_is_preferred_to_violating_a_budget() -> None:
    pods = [low("protected").label(app="a"), low("other", "n2").priority(99)]

    verdict = await decide([node(cpu="1"), node("n2", "1")], pods, high("1"))
    assert verdict.nominated == "n1"

    verdict = await decide(
        [node(cpu="1"), node("n2", "1")], pods, high("1"), budgets=[Budget("a", 0)]
    )
    assert verdict.nominated == "n2"


async def test_a_budget_is_violated_if_nothing_else_helps() -> None:
    verdict = await decide(
        [node()], [low("a", cpu="2").label(app="a")], high(), budgets=[Budget("a", 0)]
    )

    assert names(verdict) == {"a"}


async def test_victims_make_room_for_ports_and_affinity_too() -> None:
    pods = [low("port", cpu="100m").host_port(80), low("other", cpu="100m")]
    verdict = await decide([node()], pods, high("1").host_port(80))
    assert names(verdict) == {"port"}

    pods = [low("disliked", cpu="100m").label(kind="x"), low("other", cpu="100m")]
    wary = high("1").pod_anti_affinity(HOSTNAME, {"kind": "x"})
    verdict = await decide([node()], pods, wary)
    assert names(verdict) == {"disliked"}


@pytest.mark.parametrize("port", [0, 80])
@pytest.mark.parametrize(
    ("priority", "expected"),
    [
        pytest.param(100, {"b", "c"}, id="an equal pod that is expected takes its room"),
        pytest.param(99, {"c"}, id="a lesser one does not"),
    ],
)
async def test_nominated_pods_count(priority: int, expected: set[str], port: int) -> None:
    pods = [low("a").priority(50), low("b").priority(30), low("c").priority(20)]
    coming = make_pod("coming", NAMESPACE).req(cpu="1").priority(priority).nominated("n1")
    pod = high("1").host_port(port) if port else high("1")

    verdict = await decide([node(cpu="3")], pods, pod, nominated=[coming])

    assert names(verdict) == expected


# -- the rest of the contract ---------------------------------------------------------------------


async def test_a_pod_is_gated_while_its_victims_are_seen_running() -> None:
    decider = Decider()
    plugin = decider.profiles["default-scheduler"].framework.plugins["DefaultPreemption"]
    pod = decider.cache.pod_info(high().obj())
    assert plugin.pre_enqueue(pod).is_success

    running = {pod.uid}
    plugin._handle.is_preempting = running.__contains__
    plugin._handle.awaits_victims = running.__contains__
    gated = plugin.pre_enqueue(pod)

    assert gated == unresolvable("waiting for the preemption for this pod to be finished")
    gone = low("gone").obj()
    assert run_hint(plugin, ASSIGNED_POD_DELETE, pod.pod, gone) is QueueingHint.SKIP
    running.clear()
    assert run_hint(plugin, ASSIGNED_POD_DELETE, pod.pod, gone) is QueueingHint.QUEUE


async def test_attempts_are_counted() -> None:
    decider = Decider()
    decider.set_cluster([node().taint("x").obj()])
    plugin = decider.profiles["default-scheduler"].framework.plugins["DefaultPreemption"]
    for _ in range(3):
        await decider.decide(high().obj())

    assert plugin._handle.metrics.preemption_attempts.value() == 3


class TickingClock(VirtualClock):
    """Every look at it costs a millisecond."""

    def __init__(self) -> None:
        self.looks = 0

    def now(self) -> float:
        self.looks += 1
        return self.looks / 1000


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(high(), id="together"),
        pytest.param(high().host_port(80), id="one by one"),
    ],
)
async def test_a_long_search_lets_others_run(pod: PodBuilder) -> None:
    clock = TickingClock()
    decider = Decider(clock=clock)
    nodes = [f"n{number}" for number in range(60)]
    victims = [low(f"v{name}-{number}", name, "200m") for name in nodes for number in range(10)]
    decider.set_cluster([node(name).obj() for name in nodes], [one.obj() for one in victims])
    turns: list[int] = []

    async def watch() -> None:
        while True:
            turns.append(clock.looks)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        watcher = tasks.create_task(watch())
        verdict = await decider.decide(pod.obj())
        watcher.cancel()

    assert len(verdict.victims) == 10
    waits = [after - before for before, after in pairwise(turns)]
    assert len(waits) > 10
    assert max(waits) < 10, "in the clock's milliseconds"
