"""Status patches: only what changes, the newest desired, one at a time for a pod."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
import pytest

from ksched.cache.pod_info import PodInfo
from ksched.errors import ApiError, NotFound, Unavailable
from ksched.metrics import Metrics
from ksched.scheduling.pod_status import (
    HOLD_SECONDS,
    NOTHING,
    PATIENCE_SECONDS,
    WORKERS,
    DesiredStatus,
    PodStatusUpdater,
    patch_body,
)
from ksched.testing import PodBuilder, make_pod
from ksched.testing.plugin_runner import PluginBench
from ksched.testing.virtual_time import VirtualClock
from ksched.unexpected_errors import UnexpectedErrors

BENCH = PluginBench(nodes=[])
REFUSED = DesiredStatus("Unschedulable", "0/1 nodes are available: 1 Insufficient cpu.")


def info(builder: PodBuilder) -> PodInfo:
    return BENCH.pod_info(builder.obj())


def said(desired: DesiredStatus, name: str = "web") -> PodBuilder:
    """A pod whose status says already what is wished."""
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": desired.reason,
        "message": desired.message,
    }
    return make_pod(name).merge({"status": {"conditions": [condition]}})


class FakeClient:
    """Takes a second for each patch and remembers when it began."""

    def __init__(self) -> None:
        self.sent: list[tuple[float, str, dict[str, Any]]] = []
        self.answer: ApiError | None = None
        self.at_once = 0
        self.most_at_once = 0

    async def patch_pod_status(self, namespace: str, name: str, body: bytes) -> bytes:
        at = asyncio.get_running_loop().time()
        self.sent.append((at, name, msgspec.json.decode(body)["status"]))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(1)
        self.at_once -= 1
        if self.answer is not None:
            raise self.answer
        return body

    def messages(self) -> list[str]:
        return [status["conditions"][0]["message"] for _, _, status in self.sent]


@asynccontextmanager
async def updater(
    client: FakeClient, gives_way: Callable[[], bool] = lambda: False
) -> AsyncIterator[PodStatusUpdater]:
    status = PodStatusUpdater(client, VirtualClock(), UnexpectedErrors(Metrics()), gives_way)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(status.run())
        yield status
        running.cancel()


async def test_the_patch_says_what_upstream_says() -> None:
    pod = info(make_pod("web").merge({"metadata": {"generation": 3}}))
    body = patch_body(
        pod, DesiredStatus("Unschedulable", "no room", "n1"), NOTHING, 1_700_000_000.0
    )
    assert body is not None
    assert msgspec.json.decode(body) == {
        "status": {
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": "no room",
                    "lastTransitionTime": "2023-11-14T22:13:20Z",
                    "observedGeneration": 3,
                }
            ],
            "nominatedNodeName": "n1",
        }
    }


@pytest.mark.parametrize(
    ("pod", "desired", "sent", "changes"),
    [
        pytest.param(make_pod(), REFUSED, NOTHING, {"conditions"}, id="nothing was said"),
        pytest.param(said(REFUSED), REFUSED, NOTHING, set(), id="said already"),
        pytest.param(
            said(REFUSED), DesiredStatus("Unschedulable", "x"), NOTHING, {"conditions"}, id="other"
        ),
        pytest.param(
            said(REFUSED),
            REFUSED,
            DesiredStatus("Unschedulable", "x"),
            {"conditions"},
            id="said, but something else was sent since",
        ),
        pytest.param(make_pod(), DesiredStatus(), NOTHING, set(), id="no desired"),
        pytest.param(
            make_pod(),
            DesiredStatus(nominated_node_name="n1"),
            NOTHING,
            {"nominatedNodeName"},
            id="a nomination",
        ),
        pytest.param(
            make_pod().nominated("n1"),
            DesiredStatus(nominated_node_name="n1"),
            NOTHING,
            set(),
            id="nominated already",
        ),
        pytest.param(
            make_pod().nominated("n1"),
            DesiredStatus(nominated_node_name=""),
            NOTHING,
            {"nominatedNodeName"},
            id="the end of a nomination",
        ),
        pytest.param(
            make_pod(),
            DesiredStatus(nominated_node_name=""),
            DesiredStatus(nominated_node_name="n1"),
            {"nominatedNodeName"},
            id="the end of a nomination that the watch has not shown yet",
        ),
        pytest.param(
            make_pod(),
            DesiredStatus(nominated_node_name=""),
            NOTHING,
            set(),
            id="no nomination to end",
        ),
    ],
)
def test_only_what_changes_is_sent(
    pod: PodBuilder, desired: DesiredStatus, sent: DesiredStatus, changes: set[str]
) -> None:
    body = patch_body(info(pod), desired, sent, 0.0)
    assert (set(msgspec.json.decode(body)["status"]) if body else set()) == changes


def test_the_transition_time_changes_only_with_the_status() -> None:
    body = patch_body(info(said(REFUSED)), DesiredStatus("Unschedulable", "x"), NOTHING, 0.0)
    assert body is not None
    [condition] = msgspec.json.decode(body)["status"]["conditions"]
    assert "lastTransitionTime" not in condition


async def test_the_end_of_a_nomination_is_sent_as_null() -> None:
    body = patch_body(
        info(make_pod().nominated("n1")), DesiredStatus(nominated_node_name=""), NOTHING, 0.0
    )
    assert body == b'{"status":{"nominatedNodeName":null}}'


async def test_of_many_wishes_only_the_newest_is_sent() -> None:
    client = FakeClient()
    async with updater(client) as status:
        for number in range(100):
            status.set(info(make_pod("web")), DesiredStatus("Unschedulable", str(number)))
        await asyncio.sleep(0.5)
        for number in range(100, 200):
            status.set(info(make_pod("web")), DesiredStatus("Unschedulable", str(number)))
        await asyncio.sleep(5)
    assert client.messages() == ["99", "199"]


async def test_the_same_wish_is_sent_once() -> None:
    client = FakeClient()
    async with updater(client) as status:
        for _ in range(3):
            status.set(info(make_pod("web")), REFUSED)
            await asyncio.sleep(5)
    assert len(client.sent) == 1


async def test_patches_of_one_pod_do_not_overtake_each_other() -> None:
    client = FakeClient()
    async with updater(client) as status:
        for number in range(3):
            status.set(info(make_pod("web")), DesiredStatus("Unschedulable", str(number)))
            await asyncio.sleep(0.1)
        await asyncio.sleep(5)
    assert client.messages() == ["0", "2"]
    assert [at for at, _, _ in client.sent] == [0.0, 1.0]
    assert client.most_at_once == 1


async def test_patches_of_many_pods_are_sent_a_few_at_a_time() -> None:
    client = FakeClient()
    async with updater(client) as status:
        for number in range(10):
            status.set(info(make_pod(f"p{number}")), REFUSED)
        assert len(status) == 10
        await asyncio.sleep(10)
        assert len(status) == 0
    assert len(client.sent) == 10
    assert client.most_at_once == WORKERS


@pytest.mark.parametrize(
    "answer", [NotFound(404, "NotFound", "gone"), Unavailable(503, "", "try later")]
)
async def test_a_patch_that_fails_is_tried_again_with_the_next_wish(answer: ApiError) -> None:
    client = FakeClient()
    client.answer = answer
    async with updater(client) as status:
        status.set(info(make_pod("web")), REFUSED)
        await asyncio.sleep(5)
        client.answer = None
        status.set(info(make_pod("web")), REFUSED)
        await asyncio.sleep(5)
        status.set(info(make_pod("web")), REFUSED)
        await asyncio.sleep(5)
    assert len(client.sent) == 2


async def test_a_patch_that_was_cut_short_is_sent_by_the_next_leader() -> None:
    client = FakeClient()
    status = PodStatusUpdater(client, VirtualClock(), UnexpectedErrors(Metrics()))
    for _ in range(2):
        status.set(info(make_pod("web")), REFUSED)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await status.run()
    assert len(client.sent) == 2
    assert len(status) == 0


NOMINATED = DesiredStatus(nominated_node_name="n1")
MOMENTARY = DesiredStatus("Unschedulable", "resource claim is in the process of being allocated")


async def test_a_nomination_waits_while_the_server_is_busy_but_not_for_ever() -> None:
    client = FakeClient()
    async with updater(client, lambda: True) as status:
        began = asyncio.get_running_loop().time()
        status.set(info(make_pod("web")), NOMINATED, can_wait=True)
        status.set(info(make_pod("urgent")), NOMINATED)
        await asyncio.sleep(2 * PATIENCE_SECONDS)
    times = {name: at - began for at, name, _ in client.sent}
    assert times["urgent"] == 0
    assert PATIENCE_SECONDS <= times["web"] < PATIENCE_SECONDS + 0.2


async def test_a_nomination_that_waits_is_sent_when_the_server_has_time() -> None:
    client, is_busy = FakeClient(), True
    async with updater(client, lambda: is_busy) as status:
        for number in range(3):
            status.set(info(make_pod(f"p{number}")), NOMINATED, can_wait=True)
        status.set(info(make_pod("p1")), REFUSED)
        status.forget(info(make_pod("p2")).uid)
        await asyncio.sleep(5)
        assert [(name, set(sent)) for _, name, sent in client.sent] == [
            ("p1", {"conditions", "nominatedNodeName"})
        ]
        assert len(status) == 1
        is_busy = False
        await asyncio.sleep(0.2)
        assert [name for _, name, _ in client.sent] == ["p1", "p0"]
        status.set(info(make_pod("p3")), NOMINATED, can_wait=True)
        await asyncio.sleep(0)
        assert client.sent[-1][1] == "p3"
    assert len(status) == 0


async def test_what_a_bind_makes_pointless_waits_for_it() -> None:
    client = FakeClient()
    announced: list[str] = []
    async with updater(client) as status:
        began = asyncio.get_running_loop().time()
        for name in ("bound", "rejected", "refused", "placed"):
            pod = info(make_pod(name))
            status.set_unless_bound_soon(pod, MOMENTARY, partial(announced.append, name))
        await asyncio.sleep(1)
        status.forget(info(make_pod("bound")).uid)
        status.set_unless_bound_soon(info(make_pod("placed")), NOMINATED)
        status.set(info(make_pod("refused")), REFUSED)
        assert len(status) == 3
        await asyncio.sleep(HOLD_SECONDS)
    assert {(name, at - began) for at, name, _ in client.sent} == {
        ("refused", 1.0),
        ("rejected", HOLD_SECONDS),
        ("placed", HOLD_SECONDS),
    }
    assert {name: set(sent) for _, name, sent in client.sent}["placed"] == {
        "conditions",
        "nominatedNodeName",
    }
    assert client.messages() == [REFUSED.message, MOMENTARY.message, MOMENTARY.message]
    assert announced == ["rejected", "placed"], "the later rejection has an Event of its own"
    assert len(status) == 0


@pytest.mark.parametrize(("busy_seconds", "sent_after"), [(1, 3), (4, 6), (100, 9)])
async def test_what_is_held_waits_while_the_server_is_busy_but_not_for_ever(
    busy_seconds: int, sent_after: int
) -> None:
    client, loop = FakeClient(), asyncio.get_running_loop()
    began = loop.time()
    async with updater(client, lambda: loop.time() < began + busy_seconds) as status:
        status.set_unless_bound_soon(info(make_pod("web")), MOMENTARY)
        status.set_unless_bound_soon(info(make_pod("other")), NOMINATED)
        await asyncio.sleep(2 * PATIENCE_SECONDS)
    assert [(name, at - began) for at, name, _ in client.sent] == [
        ("web", sent_after),
        ("other", sent_after),
    ]


async def test_a_rejection_that_repeats_is_held_once() -> None:
    client = FakeClient()
    announced: list[int] = []
    async with updater(client) as status:
        pod = info(make_pod("web"))
        for second in range(5):
            status.set_unless_bound_soon(pod, MOMENTARY, partial(announced.append, second))
            await asyncio.sleep(1)
        await asyncio.sleep(HOLD_SECONDS)
    assert announced == [2, 4]
    assert client.messages() == [MOMENTARY.message]


async def test_what_is_held_goes_with_what_is_sent() -> None:
    client = FakeClient()
    announced: list[str] = []
    async with updater(client) as status:
        pod = info(make_pod("web"))
        status.set_unless_bound_soon(pod, MOMENTARY, partial(announced.append, "held"))
        status.set(pod, NOMINATED)
        status.set_unless_bound_soon(pod, MOMENTARY, partial(announced.append, "queued"))
        await asyncio.sleep(5)
    assert [set(sent) for _, _, sent in client.sent] == [{"conditions", "nominatedNodeName"}]
    assert announced == ["held", "queued"]


async def test_what_is_forgotten_is_not_sent() -> None:
    client = FakeClient()
    async with updater(client) as status:
        pod = info(make_pod("web"))
        status.set(pod, REFUSED)
        status.forget(pod.uid)
        await asyncio.sleep(5)
    assert client.sent == []


async def test_a_pod_that_is_gone_while_a_patch_is_sent_and_another_waits() -> None:
    client = FakeClient()
    async with updater(client) as status:
        pod = info(make_pod("web"))
        status.set(pod, REFUSED)
        await asyncio.sleep(0.5)
        status.set(pod, NOMINATED)
        waiting = asyncio.ensure_future(status.answer(pod.uid, 0.0))
        await asyncio.sleep(0)
        status.forget(pod.uid)
        assert await waiting is None
        await asyncio.sleep(5)
        status.set(info(make_pod("other")), REFUSED)
        await asyncio.sleep(5)
    assert [name for _, name, _ in client.sent] == ["web", "other"]
    assert len(status) == 0


def test_a_status_about_one_thing_leaves_the_other_alone() -> None:
    nominated = DesiredStatus(nominated_node_name="n1")
    assert REFUSED.after(None) == REFUSED
    assert nominated.after(REFUSED) == DesiredStatus(REFUSED.reason, REFUSED.message, "n1")
    assert REFUSED.after(nominated) == DesiredStatus(REFUSED.reason, REFUSED.message, "n1")


class TestOwnUpdates:
    """Which updates of a pending pod only echo what was written here."""

    async def sent(self, *statuses: DesiredStatus) -> PodStatusUpdater:
        pod = make_pod("web")
        async with updater(FakeClient()) as status:
            for desired in statuses:
                status.set(info(pod), desired)
                await asyncio.sleep(2)
                pod = make_pod("web").nominated(desired.nominated_node_name or "")
        return status

    async def test_the_condition_is_ours(self) -> None:
        status = await self.sent()
        old, new = make_pod("web").obj(), said(REFUSED).obj()
        assert status.is_own_update(old, new)
        assert status.is_own_update(new, old)

    async def test_a_nomination_is_ours_if_it_was_sent(self) -> None:
        status = await self.sent(
            DesiredStatus(nominated_node_name="n1"), DesiredStatus(nominated_node_name="")
        )
        plain, nominated = make_pod("web"), make_pod("web").nominated("n1")
        assert status.is_own_update(plain.obj(), nominated.obj())
        assert status.is_own_update(nominated.obj(), plain.obj())
        assert not status.is_own_update(plain.obj(), make_pod("web").nominated("n2").obj())
        status.forget(plain.obj().metadata.uid)
        assert not status.is_own_update(plain.obj(), nominated.obj())

    @pytest.mark.parametrize(
        "change",
        [
            pytest.param({"metadata": {"labels": {"app": "web"}}}, id="label"),
            pytest.param({"metadata": {"annotations": {"a": "b"}}}, id="annotation"),
            pytest.param({"metadata": {"generation": 2}}, id="a field that is not read"),
            pytest.param({"spec": {"priority": 7}}, id="spec"),
            pytest.param(
                {"status": {"conditions": [{"type": "Mine", "status": "True"}]}}, id="condition"
            ),
        ],
    )
    async def test_what_others_change_is_theirs(self, change: dict[str, Any]) -> None:
        status = await self.sent()
        changed = make_pod("web").merge(change)
        assert not status.is_own_update(make_pod("web").obj(), changed.obj())
        if "status" not in change:
            together = said(REFUSED).merge(change)
            assert not status.is_own_update(make_pod("web").obj(), together.obj())

    async def test_a_version_without_any_difference_is_not_ours(self) -> None:
        status = await self.sent()
        assert not status.is_own_update(make_pod("web").obj(), make_pod("web").obj())


async def test_who_waits_for_a_patch_gets_the_pod_as_it_is_then() -> None:
    client = FakeClient()
    async with updater(client) as status, asyncio.TaskGroup() as tasks:
        web = info(make_pod("web"))
        assert await status.answer(web.uid, 0) is None
        status.set(web, REFUSED)
        waiting = [tasks.create_task(status.answer(web.uid, 0))]
        await asyncio.sleep(0.5)
        # On its way.
        waiting.append(tasks.create_task(status.answer(web.uid, 0)))
        await asyncio.sleep(0)
        assert await status.answer(web.uid, 0.5) is None
        status.set(web, DesiredStatus("Unschedulable", "later"))
        waiting.append(tasks.create_task(status.answer(web.uid, 0.5)))
        await asyncio.sleep(1)
        assert [task.done() for task in waiting] == [True, True, False]
        await asyncio.sleep(1)
        assert await status.answer(web.uid, 0) is None
    said_then = [msgspec.json.decode(task.result() or b"") for task in waiting]
    messages = [one["status"]["conditions"][0]["message"] for one in said_then]
    assert messages == [REFUSED.message, REFUSED.message, "later"]


async def test_a_patch_that_is_waited_for_is_sent_before_others() -> None:
    client = FakeClient()
    async with updater(client) as status:
        pods = [info(make_pod(f"p{number}")) for number in range(10 * WORKERS)]
        for pod in pods:
            status.set(pod, REFUSED)
        await asyncio.sleep(0.5)
        async with asyncio.timeout(2):
            assert await status.answer(pods[-1].uid, 0) is not None
    assert client.sent[WORKERS][1] == pods[-1].name


async def test_who_waits_for_a_patch_that_fails_or_is_not_sent_gets_nothing() -> None:
    client = FakeClient()
    client.answer = Unavailable(503, "", "try later")
    async with updater(client) as status, asyncio.TaskGroup() as tasks:
        refused, gone = info(make_pod("refused")), info(make_pod("gone"))
        as_it_is = info(said(REFUSED))
        pods = (refused, as_it_is, gone)
        for pod in pods:
            status.set(pod, REFUSED)
        waiting = [tasks.create_task(status.answer(pod.uid, 0)) for pod in pods]
        await asyncio.sleep(0)
        status.forget(gone.uid)
        await asyncio.sleep(2)
        assert [task.result() for task in waiting] == [None, None, None]
