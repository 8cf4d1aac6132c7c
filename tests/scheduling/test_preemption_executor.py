"""Victims are told, deleted and counted; whatever fails, the preemptor is tried again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ksched.api.objects import Pod, PodCondition
from ksched.cache.cache import SchedulerCache
from ksched.cache.pod_info import PodInfo
from ksched.errors import ApiError, Conflict, NotFound, Unavailable
from ksched.framework import SUCCESS, Status
from ksched.framework.runtime.pre_binding import PreBindingPods
from ksched.framework.runtime.waiting_pods import WaitingPods
from ksched.metrics import Metrics
from ksched.queue.nominator import Nominator
from ksched.queue.pending_pods import PendingPods
from ksched.scheduling.pod_status import PodStatusUpdater
from ksched.scheduling.preemption_executor import PreemptionExecutor, Preemptors, disruption_patch
from ksched.testing import PodBuilder, make_node, make_pod
from ksched.testing.virtual_time import EPOCH, VirtualClock
from ksched.unexpected_errors import UnexpectedErrors

MESSAGE = "default-scheduler: preempting to accommodate a higher priority pod"


class Server:
    """What the executor asks of the API server, in order; every call takes a second."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.bodies: list[Any] = []
        self.problems: dict[tuple[str, str], ApiError] = {}
        self.at_once = self.most_at_once = 0

    async def patch_pod_status(self, namespace: str, name: str, body: bytes) -> bytes:
        self.bodies.append(json.loads(body))
        await self._answer("patch", name)
        return body

    async def delete_pod(self, namespace: str, name: str, uid: str = "") -> None:
        assert uid == f"uid:default/{name}", "only that very pod"
        await self._answer("delete", name)

    async def _answer(self, verb: str, name: str) -> None:
        self.calls.append((verb, name))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(1)
        self.at_once -= 1
        if (verb, name) in self.problems:
            raise self.problems[verb, name]


class Recorder:
    def __init__(self) -> None:
        self.events: list[tuple[str, ...]] = []
        self.related: list[str | None] = []

    def event(self, pod: PodInfo, *about: str, related: PodInfo | None = None) -> None:
        self.events.append((pod.name, *about))
        self.related.append(related.name if related else None)


class Bench:
    """An executor and everything around it."""

    def __init__(self, parallelism: int = 16) -> None:
        clock = VirtualClock()
        self.server, self.recorder, self.metrics = Server(), Recorder(), Metrics()
        self.cache = SchedulerCache(clock.now)
        self.cache.add_node(make_node("n1").obj())
        self.nominator = Nominator()
        self.waiting, self.pre_binding = WaitingPods(), PreBindingPods()
        self.status = PodStatusUpdater(self.server, clock, UnexpectedErrors(self.metrics))
        self.activated: list[str] = []
        self.pod = self.info(make_pod("high").priority(100))
        self.pending = PendingPods()
        self.pending.put(self.pod)
        self.stored: Pod | ApiError = self.pod.pod
        """The preemptor as the API server has it, or its answer."""
        self.reads = 0
        self.executor = PreemptionExecutor(
            client=self.server,
            cache=self.cache,
            nominator=self.nominator,
            waiting=self.waiting,
            pre_binding=self.pre_binding,
            status=self.status,
            clock=clock,
            metrics=self.metrics,
            activate=self._activate,
            preemptors=Preemptors(pending=self.pending, read_pod=self._read_pod),
            unexpected_errors=UnexpectedErrors(self.metrics),
            parallelism=parallelism,
        )

    async def _read_pod(self, pod: PodInfo, since: float) -> Pod:
        assert since <= asyncio.get_running_loop().time()
        self.reads += 1
        if isinstance(self.stored, ApiError):
            raise self.stored
        return self.stored

    def _activate(self, pods: Iterable[PodInfo]) -> None:
        self.activated += [pod.name for pod in pods]

    def info(self, pod: PodBuilder) -> PodInfo:
        return self.cache.pod_info(pod.obj())

    def victims(self, *names: str) -> list[PodInfo]:
        infos = [self.info(make_pod(name).priority(10).node("n1")) for name in names]
        for info in infos:
            self.cache.add_pod(info)
        return infos

    def preempt(self, *victims: PodInfo) -> None:
        self.executor.preempt(self.pod, "n1", victims, "default-scheduler", self.recorder)

    def counts(self) -> tuple[float, float]:
        counter = self.metrics.preemption_goroutines_execution
        return counter.value("success"), counter.value("error")

    @asynccontextmanager
    async def running(self) -> Any:
        task_group = asyncio.TaskGroup()
        async with task_group:
            task = task_group.create_task(self.executor.run())
            yield self
            task.cancel()


async def test_a_victim_is_told_why_before_it_is_deleted() -> None:
    async with Bench().running() as bench:
        bench.preempt(*bench.victims("a"))
        await asyncio.sleep(5)

        assert bench.server.calls == [("patch", "a"), ("delete", "a")]
        [condition] = bench.server.bodies[0]["status"]["conditions"]
        assert condition == {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": MESSAGE,
            "lastTransitionTime": "2023-11-14T22:13:20Z",
        }
        note = "Preempted by pod uid:default/high on node n1"
        assert bench.recorder.events == [("a", "Normal", "Preempted", "Preempting", note)]
        assert bench.recorder.related == ["high"]
        assert bench.counts() == (1, 0)
        duration = bench.metrics.preemption_goroutines_duration.of("success")
        assert (duration.count, duration.sum) == (1, 2)


async def test_the_last_victim_goes_when_all_others_are_gone() -> None:
    async with Bench().running() as bench:
        bench.preempt(*bench.victims("a", "b", "c"))
        await asyncio.sleep(10)

        assert sorted(bench.server.calls[:2]) == [("patch", "a"), ("patch", "b")]
        assert sorted(bench.server.calls[2:4]) == [("delete", "a"), ("delete", "b")]
        assert bench.server.calls[4:] == [("patch", "c"), ("delete", "c")]
        assert bench.metrics.preemption_victims.of().sum == 3


async def test_victims_being_deleted_already_are_counted_and_left_alone() -> None:
    async with Bench().running() as bench:
        going = bench.info(make_pod("going").node("n1").terminating())
        bench.preempt(going, *bench.victims("a"))
        await asyncio.sleep(5)
        assert bench.server.calls == [("patch", "a"), ("delete", "a")]
        assert bench.metrics.preemption_victims.of().sum == 2

        bench.cache.remove_pod("uid:default/a")
        bench.preempt(going)
        assert not bench.executor.is_preempting(bench.pod.uid)
        assert len(bench.executor) == 0
        assert bench.metrics.preemption_victims.of().count == 1


async def test_calls_at_once_are_bounded() -> None:
    async with Bench(parallelism=4).running() as bench:
        bench.preempt(*bench.victims(*(f"v{number}" for number in range(100))))
        await asyncio.sleep(100)

        assert bench.server.most_at_once == 4
        assert len(bench.server.calls) == 200


@pytest.mark.parametrize(
    ("verb", "problem"),
    [
        pytest.param("patch", NotFound(404, "NotFound", "gone"), id="gone before"),
        pytest.param("delete", NotFound(404, "NotFound", "gone"), id="gone meanwhile"),
        pytest.param("delete", Conflict(409, "Conflict", "uid"), id="another of its name"),
    ],
)
async def test_a_victim_that_is_gone_already_is_no_failure(verb: str, problem: ApiError) -> None:
    async with Bench().running() as bench:
        bench.server.problems[verb, "a"] = problem
        bench.preempt(*bench.victims("a", "b"))
        await asyncio.sleep(10)

        assert ("delete", "b") in bench.server.calls
        assert [event[0] for event in bench.recorder.events] == ["b"]
        assert bench.counts() == (1, 0)
        assert not bench.activated


@pytest.mark.parametrize("verb", ["patch", "delete"])
async def test_a_failure_spares_the_last_victim_and_has_the_pod_tried_again(verb: str) -> None:
    async with Bench().running() as bench:
        bench.server.problems[verb, "a"] = Unavailable(503, "", "try later")
        bench.preempt(*bench.victims("a", "b", "c"))
        assert bench.executor.is_preempting(bench.pod.uid)
        await asyncio.sleep(10)

        assert ("delete", "b") in bench.server.calls
        assert ("delete", "c") not in bench.server.calls
        assert bench.activated == ["high"]
        assert not bench.executor.is_preempting(bench.pod.uid), "nothing gates it any more"
        assert bench.counts() == (0, 1)


async def test_a_pod_is_being_preempted_for_until_every_victim_is_seen_to_go() -> None:
    async with Bench().running() as bench:
        a, b = bench.victims("a", "b")
        bench.preempt(a, b)
        uid = bench.pod.uid
        assert bench.executor.is_preempting(uid)
        await asyncio.sleep(10)
        assert bench.executor.is_preempting(uid), "deleted, but not seen to go"

        bench.cache.update_pod(bench.info(make_pod("a").priority(10).node("n1").terminating()))
        assert bench.executor.is_preempting(uid)
        bench.cache.remove_pod(b.uid)
        assert not bench.executor.is_preempting(uid)


@pytest.mark.parametrize("are_terminating", [False, True])
async def test_less_important_pods_lose_their_nomination_to_the_node(are_terminating: bool) -> None:
    async with Bench().running() as bench:
        for name, priority, node in (("lower", 99, "n1"), ("equal", 100, "n1"), ("far", 1, "n2")):
            pod = bench.info(make_pod(name).priority(priority).nominated(node))
            bench.nominator.add(pod)
        victims = bench.victims("a")
        if are_terminating:
            victims = [bench.info(make_pod("a").priority(10).node("n1").terminating())]
        bench.preempt(*victims)
        await asyncio.sleep(0.5)

        assert bench.nominator.node_of("uid:default/lower") is None
        assert bench.nominator.node_of("uid:default/equal") == "n1"
        assert bench.nominator.node_of("uid:default/far") == "n2"
        assert len(bench.status) == 1


@pytest.mark.parametrize(
    "stored",
    [
        NotFound(404, "NotFound", "gone"),
        make_pod("high").merge({"metadata": {"uid": "another"}}).obj(),
        make_pod("high").node("n2").obj(),
        make_pod("high").terminating().obj(),
    ],
    ids=["gone", "another of its name", "bound by somebody else", "being deleted"],
)
async def test_nobody_is_evicted_for_a_pod_that_needs_no_room_any_more(
    stored: Pod | ApiError,
) -> None:
    async with Bench().running() as bench:
        bench.nominator.add(bench.info(make_pod("lower").priority(1).nominated("n1")))
        bench.stored = stored
        bench.preempt(*bench.victims("a", "b"))
        await asyncio.sleep(5)

        assert bench.server.calls == []
        assert bench.reads == 1
        assert not bench.activated, "it would be tried, and read, without end until the watch tells"
        assert not bench.executor.is_preempting(bench.pod.uid)
        assert bench.nominator.node_of("uid:default/lower") == "n1"


async def test_what_the_watch_told_spares_the_question() -> None:
    async with Bench().running() as bench:
        bench.pending.put(bench.info(make_pod("high").terminating()))
        bench.preempt(*bench.victims("a"))
        bench.pending.put(bench.pod)
        bench.preempt(*bench.victims("b"))
        bench.pending.remove(bench.pod.uid)
        await asyncio.sleep(5)
        assert (bench.server.calls, bench.reads) == ([], 0)


async def test_a_preemptor_that_cannot_be_read_is_tried_again() -> None:
    async with Bench().running() as bench:
        bench.stored = Unavailable(503, "", "try later")
        bench.preempt(*bench.victims("a"))
        await asyncio.sleep(5)
        assert bench.server.calls == []
        assert bench.activated == ["high"]
        assert bench.counts() == (0, 1)


async def test_a_victim_at_permit_is_sent_back_without_the_server() -> None:
    async with Bench().running() as bench:
        [a] = bench.victims("a")
        held = bench.waiting.hold(a, "n1", {"Gate": 60})
        bench.preempt(a)
        await asyncio.sleep(1)

        assert held.settled.result().message == "waiting on permit for pod: preempted"
        assert bench.server.calls == []
        note = "Preempted by pod uid:default/high on node n1 (in kube-scheduler memory)."
        assert bench.recorder.events[0][-1] == note
        assert not bench.executor.is_preempting(bench.pod.uid), "it may even be placed again"


async def test_a_victim_that_was_just_permitted_is_deleted() -> None:
    async with Bench().running() as bench:
        [a] = bench.victims("a")
        bench.waiting.hold(a, "n1", {"Gate": 60}).allow("Gate")
        bench.preempt(a)
        await asyncio.sleep(5)

        assert bench.server.calls == [("patch", "a"), ("delete", "a")]


async def test_a_victim_in_pre_bind_is_called_off_without_the_server() -> None:
    async def forever() -> Status:
        await asyncio.Event().wait()
        return SUCCESS

    async with Bench().running() as bench, asyncio.TaskGroup() as tasks:
        [a] = bench.victims("a")
        work = tasks.create_task(bench.pre_binding.run(a.uid, forever()))
        await asyncio.sleep(0)
        bench.preempt(a)
        status = await work

        assert status.message == "preempted by DefaultPreemption"
        assert bench.server.calls == []
        assert bench.recorder.events[0][-1].endswith("(in kube-scheduler memory).")


async def test_what_is_left_when_the_leader_stops_gates_nobody() -> None:
    bench = Bench()
    async with bench.running():
        bench.preempt(*bench.victims("a", "b"))
        await asyncio.sleep(0.5)
    assert not bench.executor.is_preempting(bench.pod.uid)
    assert bench.counts() == (0, 0)

    async with bench.running():
        bench.preempt(*bench.victims("c"))
        await asyncio.sleep(5)
        assert bench.counts() == (1, 0)


async def test_finished_preemptions_are_forgotten() -> None:
    async with Bench().running() as bench:
        for number in range(300):
            pod = bench.info(make_pod(f"high{number}").priority(100))
            bench.pending.put(pod)
            bench.stored = pod.pod
            [victim] = bench.victims(f"v{number}")
            bench.executor.preempt(pod, "n1", [victim], "default-scheduler", bench.recorder)
            await asyncio.sleep(3)
            bench.cache.remove_pod(victim.uid)
        assert len(bench.executor._preemptions) <= 64


def test_what_is_said_already_is_not_said_again() -> None:
    cache = SchedulerCache(lambda: 0.0)
    pod = make_pod("a").condition("DisruptionTarget", "True", "PreemptionByScheduler")
    told = cache.pod_info(pod.obj())
    assert disruption_patch(told, "", EPOCH) is None

    body = disruption_patch(told, MESSAGE, EPOCH)
    assert body is not None
    assert "lastTransitionTime" not in json.loads(body)["status"]["conditions"][0]

    untold = cache.pod_info(make_pod("b").merge({"metadata": {"generation": 3}}).obj())
    assert untold.pod.status.conditions == list[PodCondition]()
    body = disruption_patch(untold, MESSAGE, EPOCH)
    assert body is not None
    assert json.loads(body)["status"]["conditions"][0]["observedGeneration"] == 3


# -- who is released ------------------------------------------------------------------------------


async def test_a_held_pod_is_released_when_the_last_of_its_own_victims_is_seen_to_go() -> None:
    async with Bench().running() as bench:
        a, b = bench.victims("a", "b")
        bench.victims("other")
        bench.preempt(a, b)
        assert bench.executor.awaits_victims(bench.pod.uid)
        bench.cache.remove_pod("uid:default/other")
        bench.cache.remove_pod(b.uid)
        assert bench.executor.released() == []

        bench.cache.update_pod(bench.info(make_pod("a").priority(10).node("n1").terminating()))
        assert bench.executor.released() == [bench.pod.uid]
        assert bench.executor.released() == [bench.pod.uid], "until PreEnqueue has seen it"
        assert not bench.executor.awaits_victims(bench.pod.uid)
        assert bench.executor.released() == []


@pytest.mark.parametrize(("finalizers", "is_held"), [([], True), (["example.com/log"], False)])
async def test_a_victim_without_a_grace_period_is_waited_for_until_it_is_gone(
    finalizers: list[str], is_held: bool
) -> None:
    async with Bench().running() as bench:
        [victim] = bench.victims("a")
        bench.preempt(victim)
        assert bench.executor.awaits_victims(bench.pod.uid)
        marks = {"deletionGracePeriodSeconds": 0, "finalizers": finalizers}
        marked = make_pod("a").priority(10).node("n1").terminating().merge({"metadata": marks})
        bench.cache.update_pod(bench.info(marked))
        assert bench.executor.released() == ([] if is_held else [bench.pod.uid])
        assert bench.executor.is_preempting(bench.pod.uid) == is_held
        bench.cache.remove_pod(victim.uid)
        assert bench.executor.released() == [bench.pod.uid]


async def test_a_pod_that_was_not_held_is_not_released() -> None:
    async with Bench().running() as bench:
        bench.preempt(*bench.victims("a"))
        bench.cache.remove_pod("uid:default/a")
        assert bench.executor.released() == []


async def test_a_held_pod_is_released_when_its_preemption_does_not_take_place() -> None:
    async with Bench().running() as bench:
        bench.stored = Unavailable(503, "", "try later")
        bench.preempt(*bench.victims("a"))
        assert bench.executor.awaits_victims(bench.pod.uid)
        await asyncio.sleep(5)
        assert bench.executor.released() == [bench.pod.uid]


async def test_a_held_pod_is_released_when_the_leader_stops() -> None:
    bench = Bench()
    async with bench.running():
        bench.preempt(*bench.victims("a"))
        assert bench.executor.awaits_victims(bench.pod.uid)
        await asyncio.sleep(0.5)
    assert bench.executor.released() == [bench.pod.uid]


async def test_a_deleted_pod_is_not_released_and_leaves_nothing_behind() -> None:
    async with Bench().running() as bench:
        bench.preempt(*bench.victims("a"))
        assert bench.executor.awaits_victims(bench.pod.uid)
        bench.pending.remove(bench.pod.uid)
        bench.cache.remove_pod("uid:default/a")
        assert bench.executor.released() == []
        assert not bench.executor._held
        assert not bench.executor._by_victim


async def test_of_two_preemptions_of_a_pod_the_later_holds_it() -> None:
    async with Bench().running() as bench:
        bench.preempt(*bench.victims("a"))
        bench.preempt(*bench.victims("b"))
        assert bench.executor.awaits_victims(bench.pod.uid)
        bench.cache.remove_pod("uid:default/a")
        assert bench.executor.released() == []
        bench.cache.remove_pod("uid:default/b")
        assert bench.executor.released() == [bench.pod.uid]
