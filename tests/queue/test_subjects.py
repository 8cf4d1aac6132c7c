"""Pods that an event finds by its subjects: the hints of others are not called."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from ksched.cache.pod_info import PodInfo, TemplateRegistry
from ksched.cache.resource_axis import ResourceAxis
from ksched.framework import (
    SUCCESS,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    QueuedPodInfo,
    QueueingHint,
    Resource,
    Status,
    Subjects,
    unschedulable,
)
from ksched.queue import Place
from ksched.testing.builders import PodBuilder, make_pod
from lab.watched_queue import WatchedQueue

PROFILE = "default-scheduler"
CLAIM_UPDATE = ClusterEvent(Resource.RESOURCE_CLAIM, Action.UPDATE)


class Waiting:
    """Pods that wait for the claim that is named as their nominated node, which has no template."""

    def __init__(self, *claims: str, is_gated: bool = False, other: bool = False) -> None:
        self.asked: list[str] = []
        self.answer = QueueingHint.SKIP
        self._is_gated = is_gated
        self._templates = TemplateRegistry(ResourceAxis())
        subjects = Subjects(of_event=self.of_event, of_pod=self.of_pod)
        hints = [
            ("Claims", ClusterEventWithHint(CLAIM_UPDATE, self.hint, subjects=subjects)),
            *([("Other", ClusterEventWithHint(CLAIM_UPDATE, self.hint))] if other else []),
        ]
        self.queue = WatchedQueue(
            now=lambda: 0.0,
            sort_key=lambda queued: queued.timestamp,
            pre_enqueue={PROFILE: [("Claims", self.pre_enqueue)]},
            hints={PROFILE: hints},
        )
        for number, claim in enumerate(claims):
            self.queue.pod_added(self.info(make_pod(f"p{number}").nominated(claim)))
        rejectors = frozenset(plugin for plugin, _ in hints)
        for _ in () if is_gated else claims:
            self.queue.add_unschedulable_if_not_present(self.pop(), rejectors)

    def pop(self) -> QueuedPodInfo:
        pop = self.queue.pop()
        pop.send(None)
        with pytest.raises(StopIteration) as returned:
            pop.send(None)
        queued = returned.value.value
        assert isinstance(queued, QueuedPodInfo)
        return queued

    def info(self, pod: PodBuilder) -> PodInfo:
        return self._templates.pod_info(pod.obj())

    def pre_enqueue(self, pod: PodInfo) -> Status:
        return unschedulable("held") if self._is_gated else SUCCESS

    def of_event(self, old: Any, new: Any) -> Any:
        if new == "broken":
            raise ValueError("broken")
        return new

    def of_pod(self, pod: PodInfo) -> Collection[str]:
        claim = pod.pod.status.nominated_node_name
        if claim == "broken":
            raise ValueError("broken")
        return [claim]

    def hint(self, pod: PodInfo, old: object, new: object) -> QueueingHint:
        self.asked.append(pod.name)
        return self.answer

    def changed(self, claims: object) -> list[str]:
        """The pods whose hints a change of claims calls."""
        self.asked.clear()
        self.queue.move_all_to_active_or_backoff_queue(CLAIM_UPDATE, None, claims)
        while self.queue._wake_ups.unfinished:
            self.queue.continue_wake_ups()
        return sorted(self.asked)


@pytest.mark.parametrize("is_gated", [False, True])
def test_only_pods_with_the_subject_of_an_event_are_asked_about(is_gated: bool) -> None:
    waiting = Waiting("a", "b", "a", "c", is_gated=is_gated)
    assert waiting.changed(["a"]) == ["p0", "p2"]
    assert waiting.changed(["b", "c"]) == ["p1", "p3"]
    assert waiting.changed(["other"]) == []
    assert waiting.changed([]) == []


@pytest.mark.parametrize(
    "claims", [None, "broken", 5, "ab", [("ns", "a")], [b"a"], {5}, ["ab", 7]], ids=repr
)
def test_an_event_without_known_subjects_may_concern_any_pod(claims: object) -> None:
    assert Waiting("a", "b").changed(claims) == ["p0", "p1"]


def test_a_pod_without_known_subjects_is_asked_about_each_time() -> None:
    waiting = Waiting("a", "broken")
    assert waiting.changed(["a"]) == ["p0", "p1"]
    assert waiting.changed(["b"]) == ["p1"]


@pytest.mark.parametrize("keys", ["ab", [("ns", "ab")], [5]], ids=repr)
def test_a_pod_with_subjects_that_are_no_strings_is_asked_about_each_time(keys: Any) -> None:
    class Wrong(Waiting):
        def of_pod(self, pod: PodInfo) -> Collection[str]:
            found: Collection[str] = keys
            return found

    assert Wrong("ab").changed(["ab"]) == ["p0"]
    assert Wrong("ab").changed(["other"]) == ["p0"]


def test_pods_of_a_plugin_that_names_no_subjects_are_all_asked_about() -> None:
    assert set(Waiting("a", "b", other=True).changed(["a"])) == {"p0", "p1"}


@pytest.mark.parametrize("is_gated", [False, True])
def test_a_pod_that_changes_is_found_by_its_new_subject(is_gated: bool) -> None:
    waiting = Waiting("a", "b", is_gated=is_gated)
    waiting.queue.pod_modified(waiting.info(make_pod("p0").nominated("c")))
    assert waiting.changed(["a"]) == []
    assert waiting.changed(["c"]) == ["p0"]


def test_a_pod_that_no_longer_waits_is_not_found() -> None:
    waiting = Waiting("a", "a")
    waiting.answer = QueueingHint.QUEUE
    assert waiting.changed(["a"]) == ["p0", "p1"]
    assert waiting.queue.place_of("uid:default/p0") is not Place.UNSCHEDULABLE
    assert waiting.changed(["a"]) == []
    assert not waiting.queue._unschedulable._by_subject
