"""The configuration file of a running process: loaded again when it changes, or on demand.

What asks for it is the file itself, whose content is read every ``POLL_SECONDS`` (a mounted
ConfigMap changes by a link that is replaced, which no watch of a file sees), SIGHUP, and
``POST /reload``. One task does all of it, one after the other. A file that cannot be used changes
nothing: the log, the metrics and the answer to the request say why.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import anyio
from msgspec import Struct, to_builtins

from ksched.clock import Clock, rfc3339
from ksched.configuration.dumping import configuration_hash
from ksched.configuration.flags import ConfigFile
from ksched.configuration.model import SchedulerConfiguration
from ksched.daemon.observation import gauge
from ksched.errors import ConfigError
from ksched.framework.runtime.framework import enabled_plugins
from ksched.framework.runtime.registry import import_plugins
from ksched.metrics import Metrics
from ksched.redaction import redact_text
from ksched.scheduling.reload_comparison import Comparison
from ksched.scheduling.reloading import Reload
from ksched.scheduling.scheduler import Scheduler

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

log = logging.getLogger(__name__)

POLL_SECONDS: Final = 2.0
"""The file must have the same new content twice: it may be in the middle of being written."""

APPLIED: Final = "applied"
UNCHANGED: Final = "unchanged"
REFUSED: Final = "refused"
FILE_CHANGED: Final = "file changed"
SIGNAL: Final = "SIGHUP"
REQUEST: Final = "request"
MAX_LOGGED: Final = 20


class Outcome(Struct, frozen=True, rename="camel"):
    """What became of a file; ``problems`` are the reasons to refuse it."""

    result: str
    trigger: str
    at: str
    file: str
    configuration_hash: str
    """Of the configuration that decides now."""
    problems: list[str] = []
    comparison: Comparison | None = None
    """What the new configuration means for the pods that were pending."""
    rebuilt_plugins: list[str] = []


class ConfigReloads:
    """Loads ``file`` for the scheduler of the process, which may be replaced by another one."""

    def __init__(
        self,
        file: ConfigFile | None,
        configuration: SchedulerConfiguration,
        scheduler: Callable[[], Scheduler],
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self.configuration = configuration
        """For the next scheduler of this process."""
        self._file, self._scheduler = file, scheduler
        self._clock, self._metrics = clock, metrics
        self._seen = file.text if file else ""
        """The content that was loaded last, or refused."""
        self._candidate: str | None = None
        """Another content, seen once."""
        self._wanted = asyncio.Event()
        self._trigger = ""
        self._requests: list[asyncio.Future[Outcome]] = []
        self._loaded_at = clock.wall()
        self._last: Outcome | None = None
        self._hashed: tuple[SchedulerConfiguration, str] | None = None
        metrics.add_gauges(self.gauges)

    @property
    def has_file(self) -> bool:
        return self._file is not None

    def want(self, trigger: str) -> None:
        """Load the file again soon."""
        self._trigger = trigger
        self._wanted.set()

    async def requested(self) -> dict[str, Any]:
        """Load the file again; returns what became of it, as plain data."""
        done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._requests.append(done)
        self.want(REQUEST)
        view: dict[str, Any] = to_builtins(await done)
        return view

    def view(self) -> dict[str, Any]:
        """Which configuration decides, since when, and what became of the last file."""
        return {
            "configurationHash": self._hash(),
            "loadedAt": rfc3339(self._loaded_at),
            "lastReload": None if self._last is None else to_builtins(self._last),
        }

    async def run(self) -> None:
        """Watch the file and obey, until cancelled."""
        assert self._file is not None
        while True:
            with anyio.move_on_after(POLL_SECONDS):
                await self._wanted.wait()
            if self._wanted.is_set():
                self._wanted.clear()
                requests, self._requests = self._requests, []
                outcome = await self._reload(self._file, self._trigger)
                for one in requests:
                    if not one.done():
                        one.set_result(outcome)
            else:
                await self._poll(self._file)

    async def _poll(self, file: ConfigFile) -> None:
        try:
            text = await asyncio.to_thread(file.read)
        except (ConfigError, OSError, RuntimeError, MemoryError) as problem:
            # Compared like a content, so that it is told once.
            text = f"\0{problem}"
        before, self._candidate = self._candidate, text
        if text not in (self._seen, before):
            return
        if text != self._seen:
            await self._reload(file, FILE_CHANGED)

    async def _reload(self, file: ConfigFile, trigger: str) -> Outcome:
        problems: list[str] = []
        done = Reload(is_applied=False)
        try:
            done = await self._load(file)
        except ConfigError as problem:
            problems += map(redact_text, problem.problems)
        except Exception as problem:
            log.exception("configuration cannot be loaded")
            problems.append(redact_text(f"{type(problem).__name__}: {problem}"))
        result = REFUSED if problems else APPLIED if done.is_applied else UNCHANGED
        if done.is_applied:
            self._loaded_at = self._clock.wall()
        outcome = Outcome(
            result=result,
            trigger=trigger,
            at=rfc3339(self._clock.wall()),
            file=file.path,
            configuration_hash=self._hash(),
            problems=problems,
            comparison=done.comparison,
            rebuilt_plugins=list(done.rebuilt),
        )
        self._metrics.config_reloads.increment(result)
        self._last = outcome
        _tell(outcome)
        return outcome

    async def _load(self, file: ConfigFile) -> Reload:
        try:
            text = await asyncio.to_thread(file.read)
        except ConfigError as problem:
            self._seen = f"\0{problem}"
            raise
        self._seen = text
        notes: list[str] = []
        configuration = await asyncio.to_thread(file.load, text, notes)
        for note in notes:
            log.warning("note on the configuration", extra={"note": note})
        scheduler = None
        while scheduler is not self._scheduler():
            # Another one took its place meanwhile, with the configuration before.
            scheduler = self._scheduler()
            names = {name for one in configuration.profiles for name in enabled_plugins(one)}
            await asyncio.to_thread(import_plugins, scheduler.registry, names)
            done = await scheduler.reload(configuration)
            self.configuration = configuration
        return done

    def _hash(self) -> str:
        configuration = self._scheduler().configuration
        if self._hashed is None or self._hashed[0] is not configuration:
            self._hashed = configuration, configuration_hash(configuration)
        return self._hashed[1]

    def gauges(self) -> Iterator[Metric]:
        yield gauge(
            "ksched_config_last_reload_successful",
            "Whether the configuration file, as it was loaded last, is the one that decides.",
            (),
            {(): int(self._last is None or self._last.result != REFUSED)},
        )
        yield gauge(
            "ksched_config_last_reload_success_timestamp_seconds",
            "When the configuration that decides was loaded.",
            (),
            {(): self._loaded_at},
        )
        yield gauge(
            "ksched_config_info",
            "The hash of the configuration that decides, as /configz shows it.",
            ("hash",),
            {(self._hash(),): 1},
        )


def _tell(outcome: Outcome) -> None:
    about = {"trigger": outcome.trigger, "file": outcome.file, "hash": outcome.configuration_hash}
    if outcome.result == REFUSED:
        for problem in outcome.problems[:MAX_LOGGED]:
            log.error("configuration refused, nothing changed", extra={**about, "err": problem})
        return
    if outcome.result == UNCHANGED:
        log.info("configuration is the same", extra=about)
        return
    compared = outcome.comparison or Comparison()
    log.info(
        "configuration reloaded",
        extra={
            **about,
            "rebuilt_plugins": " ".join(outcome.rebuilt_plugins),
            "pending_pods": compared.pending,
            "compared": compared.compared,
            "fit_now": compared.fit_now,
            "fit_no_longer": compared.fit_no_longer,
            "other_node": compared.other_node,
            "other_reason": compared.other_reason,
        },
    )
    for example in compared.examples:
        log.info("decided otherwise from now on", extra={"pod": example})
