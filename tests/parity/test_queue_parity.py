"""Who comes first when there is not room for all: kube-scheduler and ksched side by side.

Pods wait in several lines, some of them behind gates, until a node comes for each line that takes a
few; then the gates open and the nodes grow. Both schedulers have their own copies of the same pods
and nodes. ``make parity SEEDS=1000-1049`` plays other seeds than those of every run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lab.control_plane import ControlPlane
from lab.parity.tally import Tally
from lab.seeds import asked_seeds

pytestmark = [pytest.mark.real]

PODS, NODES = "/api/v1/namespaces/default/pods", "/api/v1/nodes"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
RBAC = Path(__file__).parents[2] / "config" / "rbac.yaml"
MERGE = "application/merge-patch+json"
THEIRS, OURS = SCHEDULERS = ("theirs", "ours")
PRIORITIES = (0, 0, 10, 100)
LINES = 5
LINE = "example.com/line"
NO_NODE, NO_ROOM = "node affinity/selector", "Insufficient example.com/"
GATES, SORT = "SchedulingGates", "PrioritySort"
PATIENCE_SECONDS = 30.0
BACKOFF = {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 1}
BACKOFF_SECONDS = 2.1
"""A pod that still backs off when the node comes would be decided later than its rank says; and
whole seconds are what counts."""


@dataclass(frozen=True)
class Waiting:
    """A pod of either scheduler; the earlier of equals has the smaller number."""

    line: int
    number: int
    priority: int
    is_gated: bool


@dataclass(frozen=True)
class Line:
    """Pods that want the same node, for how many it has room, and for how many more later."""

    number: int
    pods: tuple[Waiting, ...]
    first: int
    second: int

    @classmethod
    def random(cls, random: Random, line: int) -> Line:
        pods = tuple(
            Waiting(line, number, random.choice(PRIORITIES), random.random() < 0.35)
            for number in range(random.randint(6, 9))
        )
        at_once = sum(not pod.is_gated for pod in pods)
        first = min(random.randint(1, 4), at_once)
        return cls(line, pods, first, random.randint(1, len(pods) - first))


Placed = dict[str, set[Waiting]]
"""Those who have a place, by scheduler."""


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    control_plane.kubectl("apply", "-f", str(RBAC))
    for value in {*PRIORITIES}:
        body = {"metadata": {"name": f"q{value}"}, "value": value, "preemptionPolicy": "Never"}
        assert control_plane.request("POST", CLASSES, body).status == 201
    # Without any node no plugin would reject the pods, and any node would wake them all.
    assert control_plane.request("POST", NODES, {"metadata": {"name": "other"}}).status == 201
    with (
        control_plane.kube_scheduler(scheduler_name=THEIRS, config=BACKOFF),
        control_plane.ksched(scheduler_name=OURS, config=BACKOFF),
    ):
        yield control_plane


class Trial:
    """The lines of one seed, twice, on the API server."""

    def __init__(self, plane: ControlPlane, lines: list[Line]) -> None:
        self._plane, self._lines = plane, lines
        self._pods = [pod for line in lines for pod in line.pods]

    def begin(self) -> None:
        for pod in self._pods:
            for scheduler in SCHEDULERS:
                answer = self._plane.request("POST", PODS, _manifest(pod, scheduler))
                assert answer.status == 201, answer.body
        self._until_told(NO_NODE, (pod for pod in self._pods if not pod.is_gated))

    def offer(self, room_of: Callable[[Line], int]) -> Placed:
        """Make room for so many in all of a line; who has a place then."""
        time.sleep(BACKOFF_SECONDS)
        for line in self._lines:
            for scheduler in SCHEDULERS:
                self._offer(f"{scheduler}-{line.number}", room_of(line))
        room = sum(map(room_of, self._lines))
        _until(f"{room} have places", lambda: all(len(p) == room for p in self._placed().values()))
        return self._placed()

    def _offer(self, name: str, room: int) -> None:
        allocatable = {f"example.com/{name}": str(room), "pods": "110"}
        status = {"status": {"allocatable": allocatable, "capacity": allocatable}}
        node = {"metadata": {"name": name, "labels": {LINE: name}}, **status}
        if self._plane.request("POST", NODES, node).status == 409:
            path = f"{NODES}/{name}/status"
            answer = self._plane.request("PATCH", path, status, content_type=MERGE)
            assert answer.status == 200, answer.body

    def open_gates(self) -> None:
        """Wait until everybody who may has tried in vain, those behind the gates last."""
        placed = self._placed()
        self._until_told(
            NO_ROOM,
            (pod for pod in self._pods if not pod.is_gated and pod not in placed[THEIRS]),
        )
        gated = [pod for pod in self._pods if pod.is_gated]
        for pod in gated:
            for scheduler in SCHEDULERS:
                path = f"{PODS}/{_name(pod, scheduler)}"
                patch: dict[str, Any] = {"spec": {"schedulingGates": []}}
                answer = self._plane.request("PATCH", path, patch, content_type=MERGE)
                assert answer.status == 200, answer.body
        self._until_told(NO_ROOM, gated)

    def end(self) -> None:
        self._plane.request("DELETE", f"{PODS}?gracePeriodSeconds=0")
        self._plane.request("DELETE", f"{NODES}?labelSelector={LINE}")

    def _listed(self) -> dict[str, Any]:
        items = self._plane.request("GET", PODS).body["items"]
        return {item["metadata"]["name"]: item for item in items}

    def _placed(self) -> Placed:
        listed = self._listed()
        return {
            scheduler: {
                pod for pod in self._pods if listed[_name(pod, scheduler)]["spec"].get("nodeName")
            }
            for scheduler in SCHEDULERS
        }

    def _until_told(self, message: str, pods: Iterable[Waiting]) -> None:
        names = [_name(pod, scheduler) for pod in pods for scheduler in SCHEDULERS]

        def told() -> bool:
            listed = self._listed()
            return all(message in str(listed[name]["status"].get("conditions")) for name in names)

        _until(f"{names} are told: {message}", told)


def _until(what: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_SECONDS:g} s: {what}"
        time.sleep(0.05)


def _name(pod: Waiting, scheduler: str) -> str:
    return f"{scheduler}-{pod.line}-{pod.number}"


def _manifest(pod: Waiting, scheduler: str) -> dict[str, Any]:
    line = f"{scheduler}-{pod.line}"
    # A resource of its own: room in one line must not wake the pods of another.
    resources = {"limits": {f"example.com/{line}": "1"}}
    return {
        "metadata": {"name": _name(pod, scheduler)},
        "spec": {
            "schedulerName": scheduler,
            "priorityClassName": f"q{pod.priority}",
            "nodeSelector": {LINE: line},
            "schedulingGates": [{"name": "example.com/wait"}] if pod.is_gated else [],
            "containers": [{"name": "c", "image": "pause", "resources": resources}],
        },
    }


def influences(line: Line, early: Placed) -> Iterator[tuple[Waiting, set[str]]]:
    """The pods of a line, each with what its fate hung on."""
    free = [pod for pod in line.pods if not pod.is_gated]
    left = [pod for pod in free if pod not in early[THEIRS]]
    left += [pod for pod in line.pods if pod.is_gated]
    for pod in line.pods:
        mattered = set()
        if pod.is_gated and pod in by_rank(line.pods)[: line.first]:
            mattered.add(GATES)
        for pods, room in ((free, line.first), (left, line.second)):
            if (pod in by_rank(pods)[:room]) != (pod in pods[:room]):
                mattered.add(SORT)
        yield pod, mattered


def by_rank(pods: Iterable[Waiting]) -> list[Waiting]:
    return sorted(pods, key=lambda pod: -pod.priority)


@pytest.mark.parametrize("seed", asked_seeds(4))
def test_the_same_pods_come_first(plane: ControlPlane, tally: Tally, seed: int) -> None:
    random = Random(seed)
    lines = [Line.random(random, number) for number in range(LINES)]
    trial = Trial(plane, lines)
    try:
        trial.begin()
        early = trial.offer(lambda line: line.first)
        trial.open_gates()
        late = trial.offer(lambda line: line.first + line.second)
    finally:
        trial.end()

    tally.expect((GATES, SORT))
    differing = []
    for line in lines:
        for pod, mattered in influences(line, early):
            differs = any((pod in one[OURS]) != (pod in one[THEIRS]) for one in (early, late))
            tally.add(mattered, differs=differs)
            if differs:
                differing.append(f"seed {seed}: {pod} of {line}")
    assert not differing, "\n".join(differing)
