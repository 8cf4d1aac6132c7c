"""Random gangs of equal pods on random clusters, decided by both schedulers.

Both must come to the same verdict: all members are bound, or none. If they are, there must be an
order of the members in which each is on a node of the highest score, given those before it: with
the scores in kube-scheduler's log, which must be those that ksched computes, for its members; with
these for the members of ksched. Nobody is preempted, and members have no affinity to each other:
there kube-scheduler does not count the members before (docs/deviations.md).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from lab.parity.arena import POD_GROUPS, Arena
from lab.parity.manifests import (
    NEVER_PREEMPTING,
    POD_PARTS,
    Json,
    RandomManifests,
    with_pod_affinity,
)
from lab.parity.scenario import Scenario
from lab.parity.verdicts import GangDecision, Outcome, comparable, describe

GANGS = 8
SIZES = (2, 6)
PARTS = tuple(part for part in POD_PARTS if part is not with_pod_affinity)

Matches = Callable[[Outcome, Outcome], bool]


@dataclass
class GangReport:
    """What came out of one seed."""

    seed: int
    placed: int = 0
    refused: int = 0
    disagreements: list[str] = field(default_factory=list)

    @property
    def gangs(self) -> int:
        return self.placed + self.refused


class GangScenario(Scenario):
    """The cluster of one seed, and its gangs."""

    @classmethod
    async def play_gangs(cls, arena: Arena, seed: int, gangs: int = GANGS) -> GangReport:
        """Build the seed's cluster, have its gangs decided, and take everything away again."""
        report = GangReport(seed)
        scenario = cls(arena, seed)
        scenario._source = RandomManifests(Random(seed), PARTS)
        async with scenario._standing():
            for number in range(gangs):
                if number and scenario._source.sometimes(60):
                    await scenario._change()
                group, members = scenario._gang(f"gang-{seed}-{number}")
                decision = await arena.decide_gang(group, members)
                if decision.theirs[0].node:
                    report.placed += 1
                else:
                    report.refused += 1
                found = await _difference(arena, members[0], decision)
                if found:
                    pod = json.dumps(members[0])
                    where = f"seed {seed}, gang {number} of {len(members)}"
                    report.disagreements.append(f"{where}: {found}\npod: {pod}")
        return report

    def _gang(self, name: str) -> tuple[Json, list[Json]]:
        pod = self._source.pod(name, at_most_parts=3)
        pod["spec"] |= {
            "priorityClassName": NEVER_PREEMPTING,
            "schedulingGroup": {"podGroupName": name},
        }
        size = self._source.random.randint(*SIZES)
        metadata = pod["metadata"]
        members = [
            {**pod, "metadata": {**metadata, "name": f"{name}-{number}"}} for number in range(size)
        ]
        group = {
            "apiVersion": f"{POD_GROUPS.group}/{POD_GROUPS.version}",
            "kind": POD_GROUPS.kind,
            "metadata": {"name": name, "namespace": metadata["namespace"]},
            "spec": {"schedulingPolicy": {"gang": {"minCount": size}}},
        }
        return group, members


async def _difference(arena: Arena, pod: Json, decision: GangDecision) -> str:
    """What the two do not agree about; empty if nothing."""
    bound = [sum(bool(one.node) for one in some) for some in (decision.theirs, decision.ours)]
    size = len(decision.ours)
    if bound[0] != bound[1] or bound[0] not in (0, size):
        told = {one.message for one in (*decision.theirs, *decision.ours) if not one.node}
        return f"kube-scheduler binds {bound[0]}, ksched {bound[1]}: {told}"
    if not bound[0]:
        return ""
    if not await _in_some_order(arena, pod, decision.theirs, _is_same):
        return "\n".join(
            [
                "in no order ksched scores like kube-scheduler",
                *(line for one in decision.theirs for line in describe(one)),
                *("ksched, first: " + line for line in describe(await _first(arena, pod))),
            ]
        )
    if not await _in_some_order(arena, pod, decision.ours, _is_best):
        nodes = [one.node for one in decision.ours]
        return f"in no order each of ksched's members is on a best node: {nodes}"
    return ""


async def _first(arena: Arena, pod: Json) -> Outcome:
    return (await arena.scores_in_turn(pod, []))[0]


def _is_same(member: Outcome, computed: Outcome) -> bool:
    theirs, ours = comparable(member, computed)
    return theirs.scores == ours.scores and _is_best(member, computed)


def _is_best(member: Outcome, computed: Outcome) -> bool:
    return member.node in computed.best


async def _in_some_order(
    arena: Arena,
    pod: Json,
    members: Sequence[Outcome],
    matches: Matches,
    before: Sequence[str] = (),
) -> bool:
    """Whether members match what is computed for them, each with those before it placed."""
    if not members:
        return True
    computed = (await arena.scores_in_turn(pod, before))[-1]
    tried = set()
    for number, one in enumerate(members):
        if one.node in tried or not matches(one, computed):
            continue
        tried.add(one.node)
        rest = [*members[:number], *members[number + 1 :]]
        if await _in_some_order(arena, pod, rest, matches, [*before, one.node]):
            return True
    return False
