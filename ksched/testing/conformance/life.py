"""A plugin in a running scheduler: pods come and go, nodes change, time passes.

Every attempt recomputes what is cached (``declaration_checks``). What the plugin breaks is found in
the decisions and in the log, as in a cluster.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ksched.configuration.extension_points import EXTENSION_POINTS, OF_NO_POINT, OPTIONAL
from ksched.framework.runtime.declaration_checks import FalseDeclaration
from ksched.framework.runtime.guard import activity_of
from ksched.scheduling.decisions import Decision, Result
from ksched.testing.builders import PodBuilder
from ksched.testing.conformance import declarations
from ksched.testing.conformance.report import CheckResult
from ksched.testing.conformance.subject import Subject
from ksched.testing.conformance.trial import run
from ksched.testing.harness import Cluster, cluster

NAME: Final = "life"
MAX_NODES: Final = 20
PENDING: Final = 40
SECONDS: Final = 60.0
MAX_ATTEMPTS: Final = 24
"""With the default backoff a pod is tried at most a dozen times in a minute, unless every event
wakes it."""
MAX_STOP_SECONDS: Final = 5.0

CONTRACT_ADVICE: Final = (
    "The pod's attempt ended with this error and is repeated after a pause, for ever if the plugin "
    "does it again. ksched/framework/interface.py says what each method may answer."
)
HOT_ADVICE: Final = (
    "Reject with unschedulable(), not with pending(), unless an event that events_to_register "
    "names will come; do not activate pods that are rejected again; give wait() a time."
)
STOP_ADVICE: Final = "Let asyncio.CancelledError pass, and do not wait in a finally."


def check(subject: Subject) -> CheckResult:
    about = f"{PENDING} pods in a running scheduler, {SECONDS:g} s of virtual time"
    result = CheckResult(NAME, about)
    with _log_records() as records:
        decisions = run(_live(subject, result))
    _judge(subject, result, decisions, records)
    return result


async def _live(subject: Subject, result: CheckResult) -> list[Decision]:
    content = subject.cluster(min(subject.nodes, MAX_NODES), PENDING)
    rng, decisions = random.Random(subject.seed), list[Decision]()
    loop = asyncio.get_running_loop()
    stopping = loop.time()
    try:
        async with cluster(
            content.nodes,
            config=subject.target.config(),
            plugins=subject.target.plugins,
            seed=subject.seed,
        ) as c:
            c.scheduler.decisions.observe(decisions.append)
            await c.create(*content.priority_classes, *content.running)
            waves = [content.pending[::2], content.pending[1::2]]
            for wave in waves:
                await _wave(c, wave, rng)
                await _change_nodes(c, subject, rng)
            await c.advance(SECONDS)
            stopping = loop.time()
    except FalseDeclaration as found:
        result.add(declarations.finding(NAME, found))
        stopping = loop.time()
        decisions = [one for one in decisions if " is not true in " not in one.message]
    result.cases = len(decisions)
    took = loop.time() - stopping
    if took > MAX_STOP_SECONDS:
        text = f"The scheduler took {took:g} s to stop, because calls of the plugin went on."
        result.add(subject.finding(NAME, "slow to stop", "permit", text, advice=STOP_ADVICE))
    return decisions


async def _wave(c: Cluster, pods: list[PodBuilder], rng: random.Random) -> None:
    """Create pods, and delete some of them at whatever they are doing by then."""
    created = await c.create(*pods)
    for one in rng.sample(created, len(created) // 4):
        await c.advance(rng.choice((0.0, 0.01, 0.3, 1.5)))
        await c.delete(one["metadata"]["name"], grace_seconds=0)
    await c.advance(3)


async def _change_nodes(c: Cluster, subject: Subject, rng: random.Random) -> None:
    """Labels of the plugin's own, a cordon, a node that goes."""
    names = [node["metadata"]["name"] for node in c.nodes()]
    words = subject.words
    for name in rng.sample(names, len(names) // 3):
        labels = {key: rng.choice((None, *words.values)) for key in words.keys[:4]}
        await c.patch_node(name, {"metadata": {"labels": {**labels, "touched": "yes"}}})
    await c.patch_node(rng.choice(names), {"spec": {"unschedulable": True}})
    if len(names) > 2:
        await c.delete_node(rng.choice(names))
    await c.advance(2)


# -- what went wrong ----------------------------------------------------------------------------


def _judge(
    subject: Subject,
    result: CheckResult,
    decisions: list[Decision],
    records: list[logging.LogRecord],
) -> None:
    own = [one for one in records if getattr(one, "plugin", None) == subject.plugin]
    unreachable = {str(getattr(one, "err", "")) for one in own if _is_unreachable(one)}
    for text in sorted(unreachable):
        result.notes.append(f"{text}: nothing answers here; start it, or pass a fake of it")
    for decision in decisions:
        is_own = decision.result is Result.ERROR and f'"{subject.plugin}"' in decision.message
        if not is_own or any(text in decision.message for text in unreachable):
            continue
        found = subject.finding(
            NAME,
            "broken contract",
            _method_of(decision.message, subject.plugin),
            decision.message,
            pod=decision.pod,
            node=decision.node_name,
            advice=CONTRACT_ADVICE,
        )
        result.add(found)
    for record in own:
        _judge_record(subject, result, record, unreachable)
    attempts = Counter(decision.pod for decision in decisions)
    for pod, count in attempts.most_common(1):
        if count > MAX_ATTEMPTS:
            last = next(one.message for one in reversed(decisions) if one.pod == pod)
            text = f"The pod was tried {count} times in about a minute; in the end: {last}"
            found = subject.finding(NAME, "hot loop", "attempts", text, pod=pod, advice=HOT_ADVICE)
            result.add(found)


def _judge_record(
    subject: Subject, result: CheckResult, record: logging.LogRecord, unreachable: set[str]
) -> None:
    text, activity = str(getattr(record, "err", "")), str(getattr(record, "activity", ""))
    if record.levelno < logging.ERROR or text in unreachable:
        return
    is_swallowed = "after its call was cancelled" in text
    fault = "swallowed cancellation" if is_swallowed else "broken contract"
    found = subject.finding(
        NAME,
        fault,
        _method_of(activity, subject.plugin),
        f"{activity or record.getMessage()}: {text}",
        advice=STOP_ADVICE if is_swallowed else CONTRACT_ADVICE,
    )
    result.add(found)


def _is_unreachable(record: logging.LogRecord) -> bool:
    problem = record.exc_info[1] if record.exc_info else None
    return isinstance(problem, OSError | TimeoutError)


def _method_of(message: str, plugin: str) -> str:
    """The method that an error of an attempt is about, by the words of its beginning."""
    labels = {label: method for method, (_, label) in OPTIONAL.items()}
    labels |= {method.label: method.name for method in OF_NO_POINT}
    labels |= {point.label: point.methods[-1] for point in EXTENSION_POINTS if point.methods}
    for label, method in labels.items():
        if message.startswith(activity_of(label, plugin).removesuffix(" failed with")):
            return method
    return "attempt"


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@contextmanager
def _log_records() -> Iterator[list[logging.LogRecord]]:
    collector, logger = _Collector(), logging.getLogger("ksched")
    logger.addHandler(collector)
    try:
        yield collector.records
    finally:
        logger.removeHandler(collector)
