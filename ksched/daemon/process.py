"""``ksched run``: one scheduler as a process: signals, web server, shutdown.

::

    start ── listen ── watch ── synced ── elected ── schedule ── SIGTERM ── drain ── release ── 0
                         ▲                              └─ lease lost ── 1
                         └────────── a new scheduler ──────────┘ with --on-lease-lost=standby

Every replica watches; only the leader schedules. SIGTERM and SIGINT shut down gracefully, a second
one exits at once. SIGHUP loads the configuration file again (``reloads``). SIGUSR2 writes the queue
to the log and compares the cache with the API server.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio.abc import TaskGroup

from ksched import __version__
from ksched.api.resources import NODES, PODS
from ksched.client.exec_credentials import ExecCredentials
from ksched.client.exec_metrics import ExecMetrics
from ksched.client.http_transport import ClientConfig, HttpTransport
from ksched.client.kubeconfig import load_client_config
from ksched.client.observed_transport import ObservedTransport
from ksched.client.rest import ApiClient
from ksched.clock import Clock, LoopClock
from ksched.configuration.feature_gates import COMPONENT_FLAGZ, COMPONENT_STATUSZ, is_enabled
from ksched.configuration.flags import RunOptions
from ksched.daemon.build_metrics import build_gauges
from ksched.daemon.garbage_collection import spare_first_objects
from ksched.daemon.inspection import compare_with_api_server, log_queue
from ksched.daemon.logs import set_verbosity
from ksched.daemon.observation import Observation
from ksched.daemon.reloads import SIGNAL, ConfigReloads
from ksched.daemon.watchdog import Watchdog, quarantine_by
from ksched.election import Callbacks, Elector, WriteFence, make_identity, make_lock
from ksched.errors import KschedError, LeaseLost
from ksched.metrics import Metrics
from ksched.scheduling.scheduler import DRAIN_SECONDS, Scheduler
from ksched.transport import Transport
from ksched.web.access_reviews import MAX_REVIEWS
from ksched.web.health import Check
from ksched.web.listener import raise_descriptor_limit
from ksched.web.secure_serving import SecureServing

if TYPE_CHECKING:
    from ksched.journal.writing import Journal
    from ksched.web.web_server import WebServer

log = logging.getLogger(__name__)

FLUSH_SECONDS: Final = 5.0
SETTLE_SECONDS: Final = 0.05
"""Time for a binding whose response has arrived to finish."""
USER_AGENT: Final = f"ksched/{__version__} scheduler"
LEASE_USER_AGENT: Final = f"ksched/{__version__} leader-election"
ACCESS_USER_AGENT: Final = f"ksched/{__version__} access-reviews"


class PortTaken(KschedError):
    """The web server cannot listen on the configured address."""


async def run(options: RunOptions) -> None:
    """Run a scheduler until a signal ends it.

    Raises ``ConfigError`` for what the user must correct, and any other fatal error.
    """
    raise_descriptor_limit()
    clock = LoopClock()
    connection = options.configuration.client_connection
    # First: an ignored flag may be the reason why no cluster is found.
    for note in options.notes:
        log.warning("note on the configuration", extra={"note": note})
    config = load_client_config(clock, kubeconfig=connection.kubeconfig, master=options.master)
    log.info(
        "starting ksched",
        extra={"version": __version__, "server": config.server, "pid": os.getpid()},
    )
    metrics = Metrics()
    metrics.add_gauges(build_gauges(options.feature_gates))
    runs = ExecMetrics(metrics, clock)
    _count_runs(config, runs)
    http = HttpTransport(config, clock, user_agent=USER_AGENT)
    transport = ObservedTransport(http, config.server, metrics)
    lease_http = HttpTransport(config, clock, user_agent=LEASE_USER_AGENT)
    lease_transport = ObservedTransport(lease_http, config.server, metrics, logs_outages=False)
    try:
        async with _secure_serving(options, config, clock, runs) as serving:
            daemon = Daemon(options, transport, lease_transport, clock, metrics, config, serving)
            await daemon.run()
    finally:
        await transport.aclose()
        await lease_transport.aclose()
    log.info("stopped")


def _count_runs(config: ClientConfig, metrics: ExecMetrics) -> None:
    if isinstance(config.credentials, ExecCredentials):
        config.credentials.metrics = metrics


@asynccontextmanager
async def _secure_serving(
    options: RunOptions, config: ClientConfig, clock: Clock, runs: ExecMetrics
) -> AsyncIterator[SecureServing | None]:
    """Prepare HTTPS and access; None where nothing is served or --insecure-loopback is given.

    Reviews have connections of their own: readers must not delay a bind.
    """
    serving = options.serving
    if not serving.secure_port or serving.insecure_loopback:
        yield None
        return

    def transport(kubeconfig: str) -> HttpTransport:
        chosen = load_client_config(clock, kubeconfig=kubeconfig) if kubeconfig else config
        _count_runs(chosen, runs)
        return HttpTransport(
            chosen, clock, user_agent=ACCESS_USER_AGENT, max_connections=MAX_REVIEWS
        )

    authentication = transport(serving.authentication_kubeconfig)
    authorization = transport(serving.authorization_kubeconfig)
    try:
        secure = SecureServing(serving, authentication, authorization, clock)
        await secure.start()
        yield secure
    finally:
        await authentication.aclose()
        await authorization.aclose()


class Daemon:
    """A scheduler and everything a process needs around it.

    ``lease_transport`` is for the election alone: a renewal must not queue behind binds. With
    ``config`` a watchdog ends the process when the event loop hangs. Without ``serving`` there is
    no port, or an insecure one on loopback.
    """

    def __init__(
        self,
        options: RunOptions,
        transport: Transport,
        lease_transport: Transport,
        clock: Clock,
        metrics: Metrics,
        config: ClientConfig | None = None,
        serving: SecureServing | None = None,
    ) -> None:
        self._options = options
        self._serving = serving
        self._transport = transport
        self._clock = clock
        self._observation = Observation(metrics)
        self._elector = self._make_elector(lease_transport)
        self._fence = WriteFence(self._elector.remaining) if self._elector else WriteFence()
        self._watchdog = self._make_watchdog(config) if config else None
        self._journal = self._make_journal() if options.journal else None
        self._reloads = ConfigReloads(
            options.config_file, options.configuration, lambda: self.scheduler, clock, metrics
        )
        self.scheduler = self._make_scheduler()
        self._web = self._make_web() if options.serving.secure_port else None
        self._waiting = anyio.CancelScope()
        self._is_scheduling = False
        self._stop = anyio.Event()

    def _make_watchdog(self, config: ClientConfig) -> Watchdog:
        """Build the watchdog that ends a process that hung too long to still hold the lease."""
        deadline_seconds = self._options.configuration.leader_election.renew_deadline_seconds
        return Watchdog(deadline_seconds, self._fence.remaining, quarantine_by(config))

    def _make_elector(self, transport: Transport) -> Elector | None:
        configuration = self._options.configuration
        election = configuration.leader_election
        if not election.leader_elect:
            return None
        identity = make_identity(socket.gethostname())
        component = configuration.profiles[0].scheduler_name
        client = ApiClient(transport, self._clock)
        lock = make_lock(election, client, self._clock, identity, component)
        fields = {"lease": lock.describe(), "identity": identity}
        name, slow_path = election.resource_name, self._observation.metrics.leader_election_slowpath

        def new_leader(leader: str) -> None:
            if leader != identity:
                log.info("another replica leads", extra={**fields, "leader": leader})

        elector = Elector(
            lock,
            election,
            self._clock,
            callbacks=Callbacks(
                started_leading=lambda: log.info("became leader", extra=fields),
                stopped_leading=lambda: log.info("stopped leading", extra=fields),
                new_leader=new_leader,
                history_lost=self._history_was_lost,
                slow_path=lambda: slow_path.increment(name),
            ),
            rng=random.Random(self._options.seed),
        )
        self._observation.attach_election(elector, name)
        return elector

    def _election_view(self) -> dict[str, Any]:
        assert self._elector is not None
        return {
            "isLeading": self._elector.is_leading,
            "leader": self._elector.leader,
            "leaseSeconds": round(self._elector.remaining(), 3),
        }

    def _history_was_lost(self) -> None:
        self.scheduler.watches.relist()

    def _make_scheduler(self) -> Scheduler:
        options = self._options
        scheduler = Scheduler(
            self._transport,
            self._reloads.configuration,
            clock=self._clock,
            seed=options.seed,
            pod_max_in_unschedulable_seconds=options.pod_max_in_unschedulable_pods_seconds,
            observer=self._observation,
            metrics=self._observation.metrics,
            fence=self._fence,
        )
        self._observation.attach(scheduler)
        if self._journal is not None:
            self._journal.attach(scheduler)
        return scheduler

    def _make_web(self) -> WebServer:
        # A scheduler without a port need not load an HTTP server.
        from ksched.web.web_server import WebServer

        gates, serving = self._options.feature_gates, self._serving
        return WebServer(
            self.scheduler,
            self._observation.metrics,
            live={"leaderElection": self._elector.problem if self._elector else _healthy},
            ready=self._readiness(),
            access=serving.access if serving else None,
            flags=self._options.flags if is_enabled(gates, COMPONENT_FLAGZ) else None,
            has_statusz=is_enabled(gates, COMPONENT_STATUSZ),
            is_leading=lambda: self._is_scheduling,
            election=self._election_view if self._elector else None,
            reloads=self._reloads if self._reloads.has_file else None,
            set_verbosity=_change_verbosity,
        )

    def _make_journal(self) -> Journal:
        # Nor need one without a journal load what writes it.
        from ksched.journal.writing import Journal

        folder, limit_bytes = Path(self._options.journal), self._options.journal_bytes
        metrics = self._observation.metrics
        return Journal(folder, limit_bytes, self._clock, metrics, __version__)

    async def run(self) -> None:
        """Watch, lead and serve until ``stop``; raises ``LeaseLost`` if that ends the process."""
        async with self._web_server(), anyio.create_task_group() as tasks:
            tasks.start_soon(self._obey_signals, tasks, name="signals")
            if self._reloads.has_file:
                tasks.start_soon(self._reloads.run, name="configuration file")
            tasks.start_soon(self._observation.probe_event_loop, self._clock, name="probe")
            if self._serving is not None:
                tasks.start_soon(self._serving.keep_current, name="certificates")
            if self._watchdog is not None:
                tasks.start_soon(self._watchdog.feed, self._clock, name="feed watchdog")
            while (lost := await self._live()) is not None and not self._stop.is_set():
                log.error("leader election lost", extra={"lease": lost.lock, "reason": lost.reason})
                if self._options.on_lease_lost == "exit":
                    break
                # The old one's state and plans may be outdated; a new one starts clean.
                self.scheduler = self._make_scheduler()
                if self._web is not None:
                    self._web.scheduler = self.scheduler
            tasks.cancel_scope.cancel()
        if lost is not None and not self._stop.is_set():
            raise lost

    def stop(self) -> None:
        """Wait for bindings in flight, release the lease, then end ``run``."""
        self._stop.set()
        if not self._is_scheduling:
            # Nothing was begun, and what is awaited may never come.
            self._waiting.cancel()

    # -- one scheduler's life -------------------------------------------------------------------

    async def _live(self) -> LeaseLost | None:
        """Run one scheduler to its end; returns how the lease was lost, if so."""
        lost = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                spare_first_objects, self.scheduler.wait_synced, name="garbage collection"
            )
            with anyio.CancelScope() as self._waiting:
                if self._stop.is_set():
                    self._waiting.cancel()
                if not self._delays_cache:
                    tasks.start_soon(self.scheduler.watch, name="watch")
                    await self.scheduler.wait_synced()
                try:
                    await self._lead_when_elected(tasks)
                except LeaseLost as problem:
                    lost = problem
            unwritten = await self.scheduler.recorder.flush(timeout=FLUSH_SECONDS)
            if unwritten:
                log.warning("events were not written", extra={"events": unwritten})
            tasks.cancel_scope.cancel()
        return lost

    @property
    def _delays_cache(self) -> bool:
        return self._elector is not None and self._options.configuration.delay_cache_until_active

    async def _lead_when_elected(self, tasks: TaskGroup) -> None:
        async def lead() -> None:
            if self._delays_cache:
                tasks.start_soon(self.scheduler.watch, name="watch")
                await self.scheduler.wait_synced()
            elif self._elector is not None:
                await self._catch_up()
            await self._lead()

        if self._elector is None:
            await lead()
        else:
            await self._elector.run(lead)

    async def _catch_up(self) -> None:
        """See what the leader before has bound, also if a watch died in silence."""
        if not await self.scheduler.watches.catch_up((NODES, PODS)):
            log.warning("pods and nodes may be out of date, scheduling all the same")

    async def _lead(self) -> None:
        """Schedule until ``stop``, or until cancelled because the lease was lost."""
        sizes = self.scheduler.cache.statistics()
        log.info("scheduling", extra={"nodes": sizes.nodes, "assigned_pods": sizes.pods})
        self._is_scheduling = True
        try:
            async with anyio.create_task_group() as tasks:
                if self._journal is not None:
                    tasks.start_soon(self._journal.run, name="journal")
                with anyio.CancelScope() as work:
                    tasks.start_soon(self._drain, work, name="drain")
                    await self.scheduler.schedule()
                tasks.cancel_scope.cancel()
        finally:
            self._is_scheduling = False

    async def _drain(self, work: anyio.CancelScope) -> None:
        """After ``stop``: wait for bind calls in flight, and only for those.

        Pods that are queued, held at Permit or waiting for volumes are left to the next leader,
        which can start the sooner. Nothing of theirs has been written yet.
        """
        await self._stop.wait()
        self.scheduler.drain(DRAIN_SECONDS)
        self._fence.close()
        with anyio.move_on_after(DRAIN_SECONDS):
            await self._fence.wait_quiet()
        await self._clock.sleep(SETTLE_SECONDS)
        work.cancel()

    # -- signals --------------------------------------------------------------------------------

    async def _obey_signals(self, tasks: TaskGroup) -> None:
        """kube-scheduler: ListenForSignal."""
        obeyed = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR2]
        if self._reloads.has_file:
            obeyed.append(signal.SIGHUP)
        with anyio.open_signal_receiver(*obeyed) as signals:
            async for number in signals:
                name = signal.Signals(number).name
                if number == signal.SIGUSR2:
                    log_queue(self.scheduler)
                    tasks.start_soon(compare_with_api_server, self.scheduler, name="comparison")
                elif number == signal.SIGHUP:
                    self._reloads.want(SIGNAL)
                elif self._stop.is_set():
                    log.warning("second signal, exiting at once", extra={"signal": name})
                    os._exit(1)
                else:
                    log.info(
                        "stopping, bindings that were sent may finish",
                        extra={"signal": name, "deadline_seconds": DRAIN_SECONDS},
                    )
                    self.stop()

    # -- web server -----------------------------------------------------------------------------

    @asynccontextmanager
    async def _web_server(self) -> AsyncIterator[None]:
        options, serving = self._options.serving, self._serving
        if self._web is None:
            yield
            return
        if serving is None and not options.insecure_loopback:
            raise ValueError("a port without --insecure-loopback needs SecureServing")
        host, port = options.bind_address, options.secure_port
        address = f"{host}:{port}"
        listening = self._web.listening(host, port, serving.tls.context if serving else None)
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
        def informer_sync() -> str:
            is_synced = self.scheduler.is_synced or self._is_idle
            return "" if is_synced else "not all objects are listed yet"

        def handler_sync() -> str:
            scheduler = self.scheduler
            is_handled = scheduler.pods.is_synced and scheduler.nodes.is_synced
            return "" if is_handled or self._is_idle else "not all objects are in the cache yet"

        def watches() -> str:
            return self.scheduler.watches.health.problem()

        def shutdown() -> str:
            return "process is shutting down" if self._stop.is_set() else ""

        return {
            "informer-sync": informer_sync,
            "sched-handler-sync": handler_sync,
            "watches": watches,
            "shutdown": shutdown,
        }

    @property
    def _is_idle(self) -> bool:
        """Whether this replica watches nothing until it leads, as configured."""
        return self._delays_cache and self._elector is not None and not self._elector.is_leading


def _change_verbosity(verbosity: int) -> None:
    log.info("verbosity changed", extra={"verbosity": verbosity})
    set_verbosity(verbosity)


def _healthy() -> str:
    return ""
