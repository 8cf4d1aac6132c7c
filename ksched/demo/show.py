"""Runs the demo: cluster, scheduler, script and view, until the user quits."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TextIO

import anyio
import anyio.abc
from msgspec import Struct
from rich.console import Console

from ksched.apiserver.controllers import Controllers
from ksched.apiserver.http_listener import listening, write_kubeconfig
from ksched.apiserver.in_process import InProcessTransport
from ksched.apiserver.kubelet import RUN_SECONDS_ANNOTATION
from ksched.clock import LoopClock
from ksched.daemon.observation import Observation
from ksched.demo import fleet
from ksched.demo.gang_permit import GangPermit
from ksched.demo.keyboard import keys
from ksched.demo.plain_lines import PlainLines
from ksched.demo.result import Outcome, outcome
from ksched.demo.scoreboard import Scoreboard
from ksched.demo.screen import Screen, View
from ksched.demo.story import Story
from ksched.errors import KschedError
from ksched.metrics import Metrics
from ksched.testing.harness import Cluster, cluster
from ksched.testing.virtual_time import VirtualClock, VirtualLoop
from ksched.web.web_server import WebServer

STAYS_UP: Final = "That was the story. The cluster stays up and takes whatever you give it."
SETTLING: Final = "That was the story. The last pods settle."

QUIET_SECONDS: Final = 2.0
"""Nothing may happen for so long before a cluster counts as settled."""

_LOOK_SECONDS: Final = 0.5


class Options(Struct, frozen=True):
    """The options of the demo."""

    nodes: int = 36
    pods: int = 300
    seed: int = 0
    speed: float = 1.0
    once: bool = False
    """End when the script has ended and everything has settled."""
    port: int | None = 0
    """Where the API server listens on loopback; ``None`` for nowhere."""


CONFIGURATION: Final = {
    "profiles": [
        {
            "schedulerName": "default-scheduler",
            "plugins": {"multiPoint": {"enabled": [{"name": "GangScheduling"}]}},
        }
    ]
}


async def show(
    options: Options, *, console: Console | None = None, lines: TextIO | None = None
) -> Outcome:
    """Run the demo and say how it ended.

    ``console`` gets the live view, ``lines`` plain text. Works on a virtual loop too, if neither a
    console nor a port is asked for.
    """
    is_virtual = isinstance(asyncio.get_running_loop(), VirtualLoop)
    board = Scoreboard(VirtualClock() if is_virtual else LoopClock())
    observation = Observation(Metrics())
    plugins = {GangPermit.name: GangPermit}
    async with (
        _notices(board),
        cluster(
            config=CONFIGURATION,
            plugins=plugins,
            seed=options.seed,
            kubelet=True,
            check_declarations=False,
            observer=board,
            metrics=observation.metrics,
        ) as running,
        _listening(running, options.port) as kubectl,
        _dashboard(running, observation, options.port) as url,
    ):
        # That the server has one version of PodGroup of three is no news for a spectator.
        board.warn("")
        hints = [hint for hint in (url, kubectl) if hint]
        performance = _Show(options, running, board)
        running.scheduler.decisions.observe(board.decided)
        if lines is not None:
            plain = PlainLines(board, lines, performance.stop)
            board.observe(plain.say, plain.warn)
            running.scheduler.decisions.observe(plain.decided)
            for hint in hints:
                plain.say(hint)
        await performance.run(console, hints)
        ended = outcome(running, board, options.seed)
        # Pods held at Permit would make the scheduler wait for them.
        for held in running.scheduler.waiting:
            held.reject(GangPermit.name, "the demo ends")
    return ended


class _Show:
    """The tasks around the cluster, and how they are stopped."""

    def __init__(self, options: Options, running: Cluster, board: Scoreboard) -> None:
        self._options, self._cluster, self._board = options, running, board
        self._story = Story(
            running, board.say, nodes=options.nodes, pods=options.pods, speed=options.speed
        )
        self._seen_enough = asyncio.Event()
        self._is_told = False

    async def run(self, console: Console | None, hints: Sequence[str]) -> None:
        running = self._cluster
        manager = InProcessTransport(running.server, "controllers")
        async with (
            running.claim_controller(),
            running.device_driver(fleet.ACCELERATOR, fleet.devices(), label=fleet.ACCELERATOR),
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(Controllers(manager, running.clock).run, name="controllers")
            tasks.start_soon(self._tell, name="story")
            if not isinstance(asyncio.get_running_loop(), VirtualLoop):
                tasks.start_soon(self._obey_signals, name="signals")
            if self._options.once:
                tasks.start_soon(self._until_settled, name="settled")
            if console is None:
                await self._seen_enough.wait()
            else:
                view = View(running.scheduler, self._board, self._story, running.clock, hints)
                tasks.start_soon(Screen(console, view, running.clock).run, name="screen")
                with keys(lambda key: self._on_key(key, tasks)):
                    await self._seen_enough.wait()
            tasks.cancel_scope.cancel()

    def stop(self) -> None:
        """End ``run``."""
        self._seen_enough.set()

    async def _tell(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._story.traffic, name="traffic")
            await self._story.tell()
            if self._options.once:
                tasks.cancel_scope.cancel()
            else:
                self._board.say(STAYS_UP)
        self._board.say(SETTLING)
        await self._story.attempt(self._story.low_tide)
        self._is_told = True

    def _on_key(self, key: str, tasks: anyio.abc.TaskGroup) -> None:
        if key == "q":
            self.stop()
        elif key == "p":
            self._story.pause()
        elif key == "n":
            tasks.start_soon(self._story.attempt, self._story.add_node, name="new node")
        elif key == "b":
            tasks.start_soon(self._story.attempt, self._story.burst, name="burst")

    async def _obey_signals(self) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            await anext(signals)
            self.stop()

    async def _until_settled(self) -> None:
        """End the show once nothing is under way and nothing has changed for a while."""
        quiet_since, seen = 0.0, -1
        while True:
            await self._cluster.clock.sleep(_LOOK_SECONDS)
            now, version = self._cluster.clock.now(), self._cluster.server.store.version
            if version != seen or not self._is_quiet():
                quiet_since, seen = now, version
            elif now - quiet_since >= QUIET_SECONDS:
                self.stop()
                return

    def _is_quiet(self) -> bool:
        queue = self._cluster.scheduler.queue.statistics()
        if not self._is_told or queue.active or queue.backoff or queue.in_flight:
            return False
        return not any(_is_under_way(pod) for pod in self._cluster.pods())


def _is_under_way(pod: dict[str, Any]) -> bool:
    """Whether a pod will change by itself: it starts, ends or is terminating."""
    metadata, phase = pod["metadata"], pod["status"]["phase"]
    ends = phase == "Running" and RUN_SECONDS_ANNOTATION in metadata.get("annotations", {})
    starts = phase == "Pending" and "nodeName" in pod["spec"]
    return starts or ends or "deletionTimestamp" in metadata


@asynccontextmanager
async def _listening(running: Cluster, port: int | None) -> AsyncIterator[str]:
    """Serve kubectl while the block runs, and print how to connect."""
    if port is None:
        yield ""
        return
    context = listening(running.server, port)
    try:
        url = await context.__aenter__()
    except OSError as error:
        problem = os.strerror(error.errno) if error.errno else str(error)
        raise KschedError(f"--port: cannot listen on 127.0.0.1:{port}: {problem}") from error
    try:
        with tempfile.NamedTemporaryFile(prefix="ksched-", suffix=".yaml") as file:
            write_kubeconfig(Path(file.name), url)
            yield f"KUBECONFIG={file.name} kubectl get pods -A"
    finally:
        await context.__aexit__(None, None, None)


@asynccontextmanager
async def _dashboard(
    running: Cluster, observation: Observation, port: int | None
) -> AsyncIterator[str]:
    """Serve the dashboard on loopback while the block runs; yields its address."""
    observation.attach(running.scheduler)
    if port is None:
        yield ""
        return
    server = WebServer(running.scheduler, observation.metrics, live={}, ready={}, access=None)
    async with (
        server.listening("127.0.0.1", 0) as url,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(observation.probe_event_loop, running.clock, name="probe")
        yield f"{url}/ui/"
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def _notices(board: Scoreboard) -> AsyncIterator[None]:
    """Show warnings of the scheduler in the view instead of across it."""
    logger = logging.getLogger("ksched")
    handler = _NoticeHandler(board)
    before = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = before


class _NoticeHandler(logging.Handler):
    def __init__(self, board: Scoreboard) -> None:
        super().__init__(logging.WARNING)
        self._board = board

    def emit(self, record: logging.LogRecord) -> None:
        details = [
            f"{key}={value}"
            for key in ("pod", "plugin", "reason", "err", "error")
            if (value := record.__dict__.get(key))
        ]
        self._board.warn(" ".join([record.getMessage(), *details]))
