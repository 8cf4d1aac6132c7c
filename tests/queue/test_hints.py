from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from ksched.cache.pod_info import PodInfo, TemplateRegistry
from ksched.cache.resource_axis import ResourceAxis
from ksched.framework import (
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    QueuedPodInfo,
    QueueingHint,
    Resource,
)
from ksched.framework.cluster_events import (
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    UNSCHEDULABLE_TIMEOUT,
)
from ksched.metrics import Metrics
from ksched.queue.hints import (
    TIMED_EVERY,
    HintTable,
    Requeue,
    registrations,
    registrations_without_hints,
)
from ksched.queue.unschedulable import UnschedulablePods
from ksched.testing.builders import make_pod

PROFILE = "default-scheduler"
TEMPLATES = TemplateRegistry(ResourceAxis())
TAINT = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)


def rejected(name: str, *by: str, pending: str = "", app: str = "web") -> QueuedPodInfo:
    queued = QueuedPodInfo(TEMPLATES.pod_info(make_pod(name).label(app=app).obj()), 0.0)
    queued.unschedulable_plugins = frozenset(by)
    queued.pending_plugins = frozenset(pending.split())
    return queued


def saying(*answers: QueueingHint) -> tuple[Callable[..., QueueingHint], list[str]]:
    """A hint that gives these answers in turn, then the last for ever; and whom it was asked."""
    asked: list[str] = []

    def hint(pod: PodInfo, old: Any, new: Any) -> QueueingHint:
        asked.append(pod.name)
        return answers[min(len(asked), len(answers)) - 1]

    return hint, asked


def make_plugin(
    plugin_name: str, *methods: str, events: list[ClusterEventWithHint] | None = None
) -> Any:
    members: dict[str, Any] = {"name": plugin_name}
    members |= {method: lambda self: None for method in methods}
    if events is not None:
        members["events_to_register"] = lambda self: events
    return type(plugin_name, (), members)()


@pytest.mark.parametrize(
    "point", ["pre_enqueue", "pre_filter", "filter", "filter_nodes", "reserve", "permit"]
)
def test_rejecting_plugin_without_events_is_woken_by_nearly_everything(point: str) -> None:
    found = registrations([make_plugin("P", point)])
    assert found == registrations_without_hints("P")
    resources = {registered.event.resource for _, registered in found}
    assert {Resource.POD, Resource.NODE, Resource.PERSISTENT_VOLUME_CLAIM} <= resources
    assert not resources & {Resource.RESOURCE_SLICE, Resource.VOLUME_ATTACHMENT}


def test_plugin_that_rejects_nothing_registers_nothing() -> None:
    assert registrations([make_plugin("P", "score", "bind", "post_bind")]) == []


def test_plugin_may_say_that_no_event_helps() -> None:
    assert registrations([make_plugin("P", "filter", events=[])]) == []


@pytest.mark.parametrize(
    ("event", "adds_taint"),
    [
        pytest.param(NODE_ADD, True, id="waits for nodes"),
        pytest.param(ClusterEvent(Resource.NODE, Action.ADD | Action.DELETE), True, id="and more"),
        pytest.param(
            ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT), False, id="knows"
        ),
        pytest.param(ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL), False, id="no nodes"),
        pytest.param(ASSIGNED_POD_DELETE, False, id="not about nodes"),
    ],
)
def test_who_waits_for_nodes_waits_for_their_taints(event: ClusterEvent, adds_taint: bool) -> None:
    found = registrations([make_plugin("P", events=[ClusterEventWithHint(event)])])
    extra = [("P", ClusterEventWithHint(TAINT))] if adds_taint else []
    assert found == [("P", ClusterEventWithHint(event)), *extra]


def test_interest_is_by_profile() -> None:
    table = HintTable({"one": [("P", ClusterEventWithHint(NODE_ADD))], "two": []})
    assert list(table.interest(NODE_ADD)) == [("one", "P")]
    assert not table.interest(TAINT)


@pytest.mark.parametrize(
    ("queued", "event", "expected"),
    [
        pytest.param(rejected("p"), NODE_ADD, Requeue.AFTER_BACKOFF, id="met an error"),
        pytest.param(rejected("p", "Other"), NODE_ADD, Requeue.SKIP, id="another's event"),
        pytest.param(rejected("p", "Fit"), NODE_ADD, Requeue.AFTER_BACKOFF, id="its event"),
        pytest.param(
            rejected("p", "Fit", pending="Fit"), NODE_ADD, Requeue.IMMEDIATELY, id="pending"
        ),
        pytest.param(
            rejected("p", "Fit", pending="Other"), NODE_ADD, Requeue.AFTER_BACKOFF, id="not by it"
        ),
        pytest.param(
            rejected("p", "Fit", pending="Fit"),
            UNSCHEDULABLE_TIMEOUT,
            Requeue.AFTER_BACKOFF,
            id="a wildcard does not skip backoff",
        ),
    ],
)
def test_answer_for_one_pod(queued: QueuedPodInfo, event: ClusterEvent, expected: Requeue) -> None:
    table = HintTable({PROFILE: [("Fit", ClusterEventWithHint(NODE_ADD))]})
    assert table.is_pod_worth_requeuing(queued, event, None, None) is expected


def ask_groups(
    table: HintTable, pods: list[QueuedPodInfo], event: ClusterEvent = NODE_ADD
) -> dict[str, Requeue]:
    waiting = UnschedulablePods()
    for queued in pods:
        waiting.add(queued)
    return {
        queued.pod.name: answer
        for group in waiting.groups_woken_by(table.interest(event))
        for queued, answer in table.pods_worth_requeuing(
            group, group.pods.values(), event, None, None
        )
        if answer is not Requeue.SKIP
    }


def test_hint_that_knows_templates_is_asked_once_for_each() -> None:
    hint, asked = saying(QueueingHint.QUEUE)
    table = HintTable({PROFILE: [("Fit", ClusterEventWithHint(NODE_ADD, hint, per_pod=False))]})
    pods = [rejected(f"web-{n}", "Fit") for n in range(100)]
    pods += [rejected(f"db-{n}", "Fit", app="db") for n in range(100)]
    assert len(ask_groups(table, pods)) == 200
    assert asked == ["web-0", "db-0"]


def test_hint_that_knows_pods_is_asked_about_each() -> None:
    hint, asked = saying(QueueingHint.QUEUE, QueueingHint.SKIP)
    table = HintTable({PROFILE: [("Fit", ClusterEventWithHint(NODE_ADD, hint))]})
    pods = [rejected(f"web-{n}", "Fit") for n in range(3)]
    assert ask_groups(table, pods) == {"web-0": Requeue.AFTER_BACKOFF}
    assert asked == ["web-0", "web-1", "web-2"]


def test_single_pods_are_not_asked_about_when_their_template_is_decided() -> None:
    shared, _ = saying(QueueingHint.QUEUE)
    single, asked = saying(QueueingHint.QUEUE)
    table = HintTable(
        {
            PROFILE: [
                ("Single", ClusterEventWithHint(NODE_ADD, single)),
                ("Shared", ClusterEventWithHint(NODE_ADD, shared, per_pod=False)),
            ]
        }
    )
    assert len(ask_groups(table, [rejected(f"p{n}", "Single", "Shared") for n in range(3)])) == 3
    assert asked == []


def test_pending_and_waiting_pods_of_one_template_go_different_ways() -> None:
    table = HintTable({PROFILE: [("Gang", ClusterEventWithHint(NODE_ADD))]})
    pods = [rejected("pending", "Gang", pending="Gang"), rejected("waiting", "Gang")]
    assert ask_groups(table, pods) == {
        "pending": Requeue.IMMEDIATELY,
        "waiting": Requeue.AFTER_BACKOFF,
    }


def test_pods_of_other_plugins_and_profiles_are_not_touched() -> None:
    hint, asked = saying(QueueingHint.QUEUE)
    registration = ("Fit", ClusterEventWithHint(NODE_ADD, hint))
    table = HintTable({PROFILE: [registration], "other": []})
    elsewhere = QueuedPodInfo(TEMPLATES.pod_info(make_pod("x").scheduler("other").obj()), 0.0)
    elsewhere.unschedulable_plugins = frozenset(["Fit"])
    assert ask_groups(table, [rejected("p", "Taint"), elsewhere]) == {}
    assert asked == []


def test_hint_that_raises_says_yes_and_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    def hint(pod: PodInfo, old: Any, new: Any) -> QueueingHint:
        raise ZeroDivisionError

    table = HintTable({PROFILE: [("Broken", ClusterEventWithHint(NODE_ADD, hint))]})
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            answer = table.is_pod_worth_requeuing(rejected("p", "Broken"), NODE_ADD, None, None)
            assert answer is Requeue.AFTER_BACKOFF
    (record,) = caplog.records
    assert record.__dict__["plugin"] == "Broken"
    assert record.exc_info is not None


def test_one_call_in_a_hundred_is_measured() -> None:
    answers = {"a": QueueingHint.SKIP, "b": QueueingHint.QUEUE}

    def hint(pod: PodInfo, old: Any, new: Any) -> QueueingHint:
        return answers[pod.name]

    durations = Metrics().queueing_hint_execution_duration
    table = HintTable({PROFILE: [("Fit", ClusterEventWithHint(NODE_ADD, hint))]}, durations)

    def ask(name: str, times: int) -> None:
        for _ in range(times):
            table.is_pod_worth_requeuing(rejected(name, "Fit"), NODE_ADD, None, None)

    ask("a", TIMED_EVERY)
    assert durations.of("Fit", NODE_ADD.label, "QueueSkip").count == 1
    ask("b", TIMED_EVERY)
    assert durations.of("Fit", NODE_ADD.label, "Queue").count == 1
    ask("unknown", TIMED_EVERY)
    assert durations.of("Fit", NODE_ADD.label, "Error").count == 1
