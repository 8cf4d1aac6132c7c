"""``ksched run``: one scheduler as a process, with its signals, its web server and its end.

::

    start ── listen ── watch ─────────────────────────────────────────────┐
                         └─ synced ── lead ── schedule ── SIGTERM ── drain ┴─ flush events ── 0

Every replica watches; only the leader schedules. SIGTERM and SIGINT end the work in good order, a
second one at once. SIGUSR2 writes the queue to the log and compares the cache with the API server.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import anyio
from anyio.abc import TaskGroup

from ksched import __version__
from ksched.client.http_transport import HttpTransport
from ksched.client.kubeconfig import load_client_config
from ksched.client.observed_transport import ObservedTransport
from ksched.clock import Clock, LoopClock
from ksched.configuration.flags import RunOptions
from ksched.errors import ConfigError, KschedError
from ksched.inspection import compare_with_api_server, log_queue
from ksched.metrics import Metrics
from ksched.observation import Observation
from ksched.scheduler import DRAIN_SECONDS, Scheduler
from ksched.transport import Transport
from ksched.web.health import Check
from ksched.web.server import WebServer

log = logging.getLogger(__name__)

FLUSH_SECONDS: Final = 2.0
FIRST_SYNC_SECONDS: Final = 60.0
GC_THRESHOLDS: Final = (50_000, 20, 50)
USER_AGENT: Final = f"ksched/{__version__} scheduler"


class PortTaken(KschedError):
    """The web server cannot listen where it was told to."""


async def run(options: RunOptions) -> None:
    """Run a scheduler until a signal ends it.

    Raises ``ConfigError`` for what the user must correct, and whatever else made going on
    impossible.
    """
    clock = LoopClock()
    connection = options.configuration.client_connection
    config = load_client_config(clock, kubeconfig=connection.kubeconfig, master=options.master)
    log.info(
        "starting ksched",
        extra={"version": __version__, "server": config.server, "pid": os.getpid()},
    )
    for note in options.notes:
        log.warning("note on the configuration", extra={"note": note})
    metrics = Metrics()
    http = HttpTransport(config, clock, user_agent=USER_AGENT)
    transport = ObservedTransport(http, config.server, metrics)
    try:
        await Daemon(options, transport, clock, metrics).run()
    finally:
        await transport.aclose()
    log.info("stopped")


class Daemon:
    """A scheduler and everything a process needs around it."""

    def __init__(
        self, options: RunOptions, transport: Transport, clock: Clock, metrics: Metrics
    ) -> None:
        self._options = options
        self._clock = clock
        self._observation = Observation(metrics)
        self.scheduler = Scheduler(
            transport,
            options.configuration,
            clock=clock,
            seed=options.seed,
            pod_max_in_unschedulable_seconds=options.pod_max_in_unschedulable_pods_seconds,
            observer=self._observation,
            metrics=metrics,
        )
        self._observation.attach(self.scheduler)
        self._leading = anyio.CancelScope()
        self._is_stopping = False

    async def run(self) -> None:
        """Watch, lead and serve until ``stop``."""
        async with self._web_server(), anyio.create_task_group() as tasks:
            tasks.start_soon(self._obey_signals, tasks, name="signals")
            tasks.start_soon(self.scheduler.watch, name="watch")
            tasks.start_soon(self._observation.probe_event_loop, self._clock, name="probe")
            tasks.start_soon(self._spare_garbage_collection, name="garbage collection")
            with self._leading:
                await self._lead()
            unwritten = await self.scheduler.recorder.flush(timeout=FLUSH_SECONDS)
            if unwritten:
                log.warning("events were not written", extra={"events": unwritten})
            tasks.cancel_scope.cancel()

    def stop(self) -> None:
        """Let running bindings finish, then end ``run``."""
        self._is_stopping = True
        self.scheduler.drain(DRAIN_SECONDS)
        if not self.scheduler.is_synced:
            # Nothing was begun, and what scheduling waits for may never come.
            self._leading.cancel()

    async def _lead(self) -> None:
        """Do the leader's work. The election goes here: everything else runs on every replica."""
        if self._options.configuration.leader_election.leader_elect:
            log.warning("there is no leader election, run one replica only")
        await self.scheduler.wait_synced()
        sizes = self.scheduler.cache.statistics()
        log.info("scheduling", extra={"nodes": sizes.nodes, "assigned_pods": sizes.pods})
        await self.scheduler.schedule()

    # -- signals --------------------------------------------------------------------------------

    async def _obey_signals(self, tasks: TaskGroup) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGUSR2) as signals:
            async for number in signals:
                name = signal.Signals(number).name
                if number == signal.SIGUSR2:
                    log_queue(self.scheduler)
                    tasks.start_soon(compare_with_api_server, self.scheduler, name="comparison")
                elif self._is_stopping:
                    log.warning("second signal, exiting at once", extra={"signal": name})
                    os._exit(1)
                else:
                    log.info(
                        "stopping, running bindings may finish",
                        extra={"signal": name, "deadline_seconds": DRAIN_SECONDS},
                    )
                    self.stop()

    # -- memory ---------------------------------------------------------------------------------

    async def _spare_garbage_collection(self) -> None:
        """Keep the collector away from a growing cache, and later from a big one.

        During the first sync every object is there to stay, and looking for garbage among them
        doubles the time. Afterwards they are taken out of the collector's sight.
        """
        gc.disable()
        with anyio.move_on_after(FIRST_SYNC_SECONDS):
            await self.scheduler.wait_synced()
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        gc.enable()

    # -- web server -----------------------------------------------------------------------------

    @asynccontextmanager
    async def _web_server(self) -> AsyncIterator[None]:
        options = self._options
        if not options.secure_port:
            yield
            return
        server = WebServer(
            self.scheduler,
            self._observation.metrics,
            live={"leaderElection": _healthy},
            ready=self._readiness(),
        )
        address = f"{options.bind_address}:{options.secure_port}"
        listening = server.listening(options.bind_address, options.secure_port, _tls(options))
        try:
            url = await listening.__aenter__()
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            problem = f"--secure-port: cannot listen on {address}: {reason}"
            raise PortTaken(problem) from error
        try:
            log.info("serving health and metrics", extra={"url": url})
            yield
        finally:
            await listening.__aexit__(None, None, None)

    def _readiness(self) -> Mapping[str, Check]:
        scheduler = self.scheduler

        def informer_sync() -> str:
            return "" if scheduler.is_synced else "not all objects are listed yet"

        def handler_sync() -> str:
            handled = scheduler.pods.is_synced and scheduler.nodes.is_synced
            return "" if handled else "not all objects are in the cache yet"

        def shutdown() -> str:
            return "process is shutting down" if self._is_stopping else ""

        return {
            "informer-sync": informer_sync,
            "sched-handler-sync": handler_sync,
            "shutdown": shutdown,
        }


def _healthy() -> str:
    return ""


def _tls(options: RunOptions) -> ssl.SSLContext | None:
    if not options.tls_cert_file:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(options.tls_cert_file, options.tls_private_key_file)
    except OSError as error:
        files = f"{options.tls_cert_file} and {options.tls_private_key_file}"
        raise ConfigError([f"--tls-cert-file: cannot use {files}: {error}"]) from error
    return context
