"""Random configurations, good and bad, under load: no pod is lost, none decided by a mix."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any, ClassVar

import pytest

from ksched.errors import ConfigError
from ksched.framework import SUCCESS, PermitResult, Status, unschedulable, wait
from ksched.queue.places import Place
from ksched.scheduling import reloading
from ksched.scheduling.reload_comparison import judge
from ksched.testing import Checkers, Cluster, cluster, make_node, make_pod
from lab.gangs import priority_class

RELOADS = 30


class Stamp:
    """Notes which configuration is asked, at every extension point up to Permit.

    ``args``: the number of the configuration, whether it rejects some pods, and whether it holds
    some at Permit.
    """

    name = "Stamp"
    calls: ClassVar[list[tuple[str, str, int]]]
    """Pod, extension point, configuration."""
    is_compared = False
    """Whether the calls are those of a comparison."""

    def __init__(self, args: Any, handle: Any) -> None:
        args = args or {}
        self.number: int = args.get("number", 0)
        self._gates, self._rejects = args.get("gates", 0), args.get("rejects", 0)
        self._holds = args.get("holds", 0.0)

    def _note(self, pod: Any, point: str) -> int:
        if not self.is_compared:
            self.calls.append((pod.uid, point, self.number))
        return int(pod.name.removeprefix("p"))

    def pre_enqueue(self, pod: Any) -> Status:
        number = self._note(pod, "pre_enqueue")
        return unschedulable("gated") if self._gates and number % self._gates == 0 else SUCCESS

    def pre_filter(self, state: Any, pod: Any, snapshot: Any) -> Status:
        self._note(pod, "pre_filter")
        return SUCCESS

    def filter(self, state: Any, pod: Any, node: Any) -> Status:
        number = self._note(pod, "filter")
        is_rejected = self._rejects and number % self._rejects == 1
        return unschedulable("rejected") if is_rejected else SUCCESS

    def score(self, state: Any, pod: Any, node: Any) -> int:
        self._note(pod, "score")
        return 1

    def reserve(self, state: Any, pod: Any, node_name: str) -> Status:
        self._note(pod, "reserve")
        return SUCCESS

    def unreserve(self, state: Any, pod: Any, node_name: str) -> None:
        self._note(pod, "unreserve")

    def permit(self, state: Any, pod: Any, node_name: str) -> PermitResult | Status:
        number = self._note(pod, "permit")
        return PermitResult(wait(), self._holds) if self._holds and number % 3 == 0 else SUCCESS

    def post_bind(self, state: Any, pod: Any, node_name: str) -> None:
        self._note(pod, "post_bind")


def of_class(value: int) -> dict[str, Any]:
    return {"spec": {"priorityClassName": f"p{value}"}}


def good(rng: random.Random, number: int) -> dict[str, Any]:
    args = {
        "number": number,
        "gates": rng.choice((0, 0, 2, 5)),
        "rejects": rng.choice((0, 0, 2, 3)),
        "holds": rng.choice((0, 0, 0.3, 2.0)),
    }
    kind = rng.choice(("LeastAllocated", "MostAllocated"))
    strategy = {"type": kind, "resources": [{"name": "cpu", "weight": rng.randint(1, 9)}]}
    fit = {"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}
    score = rng.choice(([], [{"name": "ImageLocality"}], [{"name": "PodTopologySpread"}]))
    profile = {
        "schedulerName": "default-scheduler",
        "plugins": {"score": {"disabled": score}},
        "pluginConfig": [{"name": "Stamp", "args": args}, fit],
        "percentageOfNodesToScore": rng.choice((0, 60, 100)),
    }
    return {"profiles": [profile], "podMaxBackoffSeconds": rng.randint(2, 10)}


def bad(rng: random.Random, number: int) -> Any:
    wrong = good(rng, number)
    profile = wrong["profiles"][0]
    match rng.randrange(7):
        case 0:
            profile["schedulerName"] = "other"
        case 1:
            profile["plugins"]["filter"] = {"enabled": [{"name": "Nobody"}]}
        case 2:
            wrong["parallelism"] = 3
        case 3:
            profile["pluginConfig"][1]["args"]["scoringStrategy"]["type"] = "Nonsense"
        case 4:
            profile["plugins"]["multiPoint"] = {"disabled": [{"name": "DynamicResources"}]}
        case 5:
            return "profiles: ["
        case 6:
            wrong["podMaxBackoffSeconds"] = -1
    return wrong


def check_stamps(calls: list[tuple[str, str, int]], c: Cluster) -> None:
    """Within an attempt, from the last PreEnqueue on, one configuration was asked."""
    of_pod: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for uid, point, number in calls:
        of_pod[uid].append((point, number))
    for uid, steps in of_pod.items():
        gate, placed_by = -1, -1
        attempt: list[tuple[str, int]] = []
        for point, number in steps:
            if point == "pre_enqueue":
                gate = number
            elif point in ("unreserve", "post_bind"):
                assert number == placed_by, (uid, steps)
            else:
                if point == "pre_filter":
                    attempt = [("pre_enqueue", gate)]
                attempt.append((point, number))
                assert {asked for _, asked in attempt} == {number}, (uid, attempt)
                if point == "reserve":
                    placed_by = number


@pytest.mark.parametrize("seed", range(3))
async def test_random_reloads_under_load(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)

    class Fresh(Stamp):
        calls: ClassVar[list[tuple[str, str, int]]] = []

    async def compared(*args: Any) -> Any:
        Fresh.is_compared = True
        try:
            return await judge(*args)
        finally:
            Fresh.is_compared = False

    monkeypatch.setattr(reloading, "judge", compared)

    nodes = [make_node(f"n{number}").capacity(cpu="64", pods="500") for number in range(4)]
    start = good(rng, 0)
    pods = applied = refused = 0
    async with cluster(nodes, config=start, plugins={"Stamp": Fresh}, seed=seed) as c:
        await c.create(*map(priority_class, range(3)))
        for number in range(1, RELOADS + 1):
            for _ in range(rng.randint(0, 12)):
                await c.create(
                    make_pod(f"p{pods}").req(cpu="10m").merge(of_class(rng.randint(0, 2)))
                )
                pods += 1
            if rng.random() < 0.5:
                await c.advance(rng.random() * 3)
            held = {one.pod.uid for one in c.scheduler.waiting}
            nominated = dict(c.scheduler.nominator.by_node())
            config = c.scheduler.configuration
            if rng.random() < 0.5:
                with pytest.raises(ConfigError):
                    await c.reload(bad(rng, number))
                assert c.scheduler.configuration is config
                refused += 1
            else:
                assert (await c.reload(good(rng, number))).is_applied
                applied += 1
            # Whoever waited still does, unless it was allowed or its time was over.
            now = {one.pod.uid for one in c.scheduler.waiting}
            assert all(uid in now or _is_decided(c, uid) for uid in held)
            assert dict(c.scheduler.nominator.by_node()) == nominated
        open_to_all = good(random.Random(0), RELOADS + 1)
        args = open_to_all["profiles"][0]["pluginConfig"][0]["args"]
        args.update(gates=0, rejects=0, holds=0)
        await c.reload(open_to_all)
        await c.advance(90)
        assert applied >= 3
        assert refused >= 3
        assert [name for name in c.pod_names() if c.bound(name) is None] == []
        Checkers(c).check_books()
        check_stamps(Fresh.calls, c)
        assert {number for _, point, number in Fresh.calls if point == "reserve"} > {0}
        assert len(c.scheduler.reloading._retired) == 0


def _is_decided(c: Cluster, uid: str) -> bool:
    return c.scheduler.cache.get_pod(uid) is not None or c.scheduler.queue.place_of(uid) in (
        Place.BACKOFF,
        Place.ACTIVE,
        Place.UNSCHEDULABLE,
        Place.GATED,
    )
