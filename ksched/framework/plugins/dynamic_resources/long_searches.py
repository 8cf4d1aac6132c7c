"""Searches for devices that take too long for the event loop: in one thread, one after the other.

An attempt waits briefly for the results. If one is missing for a node that passes the other
filters, the attempt is cut short, so that other pods are scheduled, and finds the result cached
when it is retried.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from ksched.clock import stopwatch
from ksched.devices.device_selectors import device_environment
from ksched.devices.effort import Effort
from ksched.framework.plugins.dynamic_resources.verdicts_by_view import (
    FAILED,
    TIMED_OUT,
    Answer,
    Question,
)
from ksched.thread_turns import SHORT_TURNS

log = logging.getLogger(__name__)

WAIT_SECONDS = 0.1
"""How long an attempt waits for its searches; other pods wait meanwhile."""
JOB_SECONDS = 10.0
"""After this time the searches of other pods are run."""
LONGEST_SEARCH_SECONDS = 600.0
"""For one node when ``filterTimeout`` is 0."""
MOST_WAITING = 16
"""Limit of the queue; a job that does not fit is queued by the next attempt."""


class LongSearches:
    """The thread of one profile, and the jobs that wait for it."""

    def __init__(self, filter_timeout_seconds: float) -> None:
        self._seconds = filter_timeout_seconds or LONGEST_SEARCH_SECONDS
        self._executor: ThreadPoolExecutor | None = None
        self._jobs: dict[object, asyncio.Future[None]] = {}
        """By the first question of each: its claims, and the pools of its node."""
        self._effort = Effort(self._seconds, is_in_thread=True)

    async def answer(self, questions: Sequence[Question]) -> None:
        """Have questions answered, and wait for it the first time, for a moment.

        Questions may stay open: whether their answers matter is known when the nodes are filtered.
        """
        first = questions[0]
        key = (id(first.verdicts), first.keys, first.pools[0])
        if key in self._jobs or len(self._jobs) >= MOST_WAITING:
            return
        job = self._start(key, questions)
        await asyncio.wait([job], timeout=WAIT_SECONDS)
        if job.done():
            job.result()

    def load_compiler(self) -> None:
        """Load the compiler of selectors before one is evaluated: it takes 20 ms."""
        if not device_environment.cache_info().currsize:
            self._thread().submit(device_environment, True)

    def _thread(self) -> ThreadPoolExecutor:
        if self._executor is None:
            self._effort = Effort(self._seconds, is_in_thread=True)
            self._executor = ThreadPoolExecutor(1, "device-search")
        return self._executor

    def _start(self, key: object, questions: Sequence[Question]) -> asyncio.Future[None]:
        executor, answers = self._thread(), list[Answer]()
        loop = asyncio.get_running_loop()
        # So that the event loop need not wait long for the interpreter while the thread computes.
        SHORT_TURNS.begin()
        job = loop.run_in_executor(executor, _search, self._effort, questions, answers)
        self._jobs[key] = job

        def finished(job: asyncio.Future[None]) -> None:
            if self._jobs.pop(key, None) is not None:
                SHORT_TURNS.end()
            for question, answer in zip(questions, answers, strict=False):
                question.keep(answer)

        job.add_done_callback(finished)
        return job

    def stop(self) -> None:
        """End the thread, within one evaluation of a selector."""
        self._effort.is_stopped = True
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None
        for _ in range(len(self._jobs)):
            self._jobs.popitem()
            SHORT_TURNS.end()


def _search(effort: Effort, questions: Sequence[Question], answers: list[Answer]) -> None:
    """In the thread: answer as many questions as there is time for."""
    began = stopwatch()
    for question in questions:
        effort.restart()
        try:
            answer = question.search(effort)
        except Exception as problem:
            # The attempt may be over by now: the next one finds the error in the cache.
            log.exception("search for devices failed", extra={"node": question.node_name})
            answer = Answer(
                FAILED, problem=f"searching devices on {question.node_name}: {problem!r}"
            )
        if effort.is_stopped:
            return
        answers.append(answer)
        if answer.code == TIMED_OUT or stopwatch() - began > JOB_SECONDS:
            return
