"""What plugins do beside the attempts: ``start``, ``stop``, and their tasks between the two.

A plugin's tasks are its own: one that fails is logged with the plugin's name and ends alone. They
are owned here rather than by a task group of anyio or asyncio, because such a group waits without
limit for a task that swallows its cancellation. Here it is let go after ``CANCEL_SECONDS``, and
logged.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any, Final, Protocol

import anyio

from ksched.framework.handle import Handle
from ksched.framework.runtime.guard import Hook
from ksched.framework.runtime.waiting_pods import CANCEL_SECONDS
from ksched.framework.untrusted_values import is_interrupt, safe_error_text
from ksched.redaction import redact_text

STOP_SECONDS: Final = 2.0
"""What ``stop`` may take: another replica may be waiting for the lease."""
MAX_TASKS: Final = 1000
"""How many tasks a plugin may have at once."""


class GivesHandles(Protocol):
    """What makes the handle of one plugin from that of its profile."""

    def with_tasks(self, tasks: PluginTasks) -> Handle: ...


class PluginTasks:
    """The tasks of one plugin (``ksched.framework.handle.PluginTasks``)."""

    def __init__(self, plugin: Any) -> None:
        self.plugin: str = plugin.name
        self._hook = Hook(plugin, self.start_soon, "Task")
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def start_soon(
        self, function: Callable[..., Awaitable[Any]], *args: Any, name: str = ""
    ) -> None:
        if self._is_closed:
            raise RuntimeError(f'plugin "{self.plugin}" has stopped and can start no task')
        if len(self._tasks) >= MAX_TASKS:
            raise RuntimeError(f'plugin "{self.plugin}" has {MAX_TASKS} tasks, at most that many')
        name = name or getattr(function, "__qualname__", type(function).__name__)
        loop = asyncio.get_running_loop()
        work = self._run(function, args, name)
        task = loop.create_task(work, name=f"{self.plugin}: {name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def __len__(self) -> int:
        return len(self._tasks)

    async def _run(self, function: Callable[..., Awaitable[Any]], args: Any, name: str) -> None:
        try:
            await function(*args)
        except BaseException as problem:
            if is_interrupt(problem) or isinstance(problem, GeneratorExit):
                raise
            task = asyncio.current_task()
            if isinstance(problem, asyncio.CancelledError) and task and task.cancelling():
                raise
            self._hook.log_once(f"task {name}: {redact_text(safe_error_text(problem))}", problem)

    def cancel(self) -> Collection[asyncio.Task[None]]:
        """Start no task any more and cancel those that run; returns them."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        return tuple(self._tasks)

    def log_stragglers(self) -> None:
        for task in self._tasks:
            text = f"task {task.get_name()} went on for {CANCEL_SECONDS:g}s after it was cancelled"
            self._hook.log_once(text)


class PluginLives:
    """Starts and stops the plugins of a scheduler, as often as it begins and ceases to schedule.

    ``plugins`` come with the handle of their profile; one that several profiles share starts once.
    """

    def __init__(self, plugins: Iterable[tuple[Any, GivesHandles]]) -> None:
        self._plugins = _once(plugins)
        self._begun: list[tuple[Any, PluginTasks]] = []
        self._is_live = False
        self._more: _MoreStarts | None = None
        self.is_starting = False

    async def start(self) -> None:
        """Call ``start`` of one after the other; raises ``PluginFailure`` if one cannot."""
        self._is_live = self.is_starting = True
        try:
            await self._start(self._plugins)
        finally:
            self.is_starting = False

    async def stop(self) -> None:
        """Call ``stop`` of all that were started, then cancel their tasks.

        Takes ``STOP_SECONDS`` and twice ``CANCEL_SECONDS`` at most; longer if ``start_more`` is
        interrupted, which stops what it began first.
        """
        self._is_live = False
        if (more := self._more) is not None:
            more.scope.cancel()
            await more.ended.wait()
        begun, self._begun = self._begun[::-1], []
        await _stop(begun)

    # -- other plugins while scheduling goes on -------------------------------------------------

    def unstarted(self, plugins: Iterable[tuple[Any, GivesHandles]]) -> bool:
        """Whether some of these must be started before they are called."""
        return self.is_starting or (self._is_live and bool(self._missing(plugins)))

    async def start_more(self, plugins: Iterable[tuple[Any, GivesHandles]]) -> None:
        """Start those that run not yet, if the others run; all or none.

        None with ``PluginFailure``, and if everything is stopped meanwhile.
        """
        missing = self._missing(plugins) if self._is_live else ()
        with anyio.CancelScope() as scope:
            self._more = more = _MoreStarts(scope)
            try:
                await self._start(missing)
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await self._stop_only([plugin for plugin, _ in missing])
                raise
            finally:
                self._more = None
                more.ended.set()

    def replace(self, plugins: Iterable[tuple[Any, GivesHandles]]) -> None:
        """These are started from now on; those that run stay until ``stop_others``."""
        self._plugins = _once(plugins)

    async def stop_others(self, used: Iterable[Any]) -> None:
        """Stop what runs and is neither among the plugins now nor among the used ones."""
        kept = {id(plugin) for plugin, _ in self._plugins} | {id(plugin) for plugin in used}
        await self._stop_only([plugin for plugin, _ in self._begun if id(plugin) not in kept])

    def sizes(self) -> dict[str, int]:
        """By plugin that was started, how many tasks it has."""
        return {tasks.plugin: len(tasks) for _, tasks in self._begun}

    def _missing(
        self, plugins: Iterable[tuple[Any, GivesHandles]]
    ) -> tuple[tuple[Any, GivesHandles], ...]:
        begun = {id(plugin) for plugin, _ in self._begun}
        return tuple(one for one in _once(plugins) if id(one[0]) not in begun)

    async def _start(self, plugins: Iterable[tuple[Any, GivesHandles]]) -> None:
        for plugin, handle in plugins:
            tasks = PluginTasks(plugin)
            self._begun.append((plugin, tasks))
            if hasattr(plugin, "start"):
                await _call(Hook(plugin, plugin.start, "Start"), handle.with_tasks(tasks))

    async def _stop_only(self, plugins: Iterable[Any]) -> None:
        ending = {id(plugin) for plugin in plugins}
        begun = [one for one in self._begun if id(one[0]) in ending]
        self._begun = [one for one in self._begun if id(one[0]) not in ending]
        await _stop(begun[::-1])


class _MoreStarts:
    """Plugins that are being started while others run."""

    def __init__(self, scope: anyio.CancelScope) -> None:
        self.scope, self.ended = scope, anyio.Event()


def _once(
    plugins: Iterable[tuple[Any, GivesHandles]],
) -> tuple[tuple[Any, GivesHandles], ...]:
    """Those that have a ``start`` or a ``stop``, each once."""
    once: dict[int, tuple[Any, GivesHandles]] = {}
    for plugin, handle in plugins:
        if hasattr(plugin, "start") or hasattr(plugin, "stop"):
            once.setdefault(id(plugin), (plugin, handle))
    return tuple(once.values())


async def _stop(begun: Iterable[tuple[Any, PluginTasks]]) -> None:
    begun = list(begun)
    stops = []
    for plugin, _ in begun:
        if hasattr(plugin, "stop"):
            hook = Hook(plugin, plugin.stop, "Stop")
            hook.timeout_seconds = min(hook.timeout_seconds, STOP_SECONDS)
            stops.append(_call(hook))
    # Logged by the hooks: the others must get their turn all the same.
    await asyncio.gather(*stops, return_exceptions=True)
    cancelled = [task for _, tasks in begun for task in tasks.cancel()]
    if cancelled:
        await asyncio.wait(cancelled, timeout=CANCEL_SECONDS)
        for _, tasks in begun:
            tasks.log_stragglers()


async def _call(hook: Hook, *args: Any) -> None:
    """Call ``start`` or ``stop`` within its deadline, also one that swallows its cancellation."""
    result = hook.call(*args)
    if not inspect.isawaitable(result):
        return

    async def guarded() -> None:
        with hook:
            await result

    task = asyncio.get_running_loop().create_task(guarded(), name=hook.activity)
    task.add_done_callback(_forget)
    try:
        await asyncio.wait([task], timeout=hook.timeout_seconds)
    finally:
        is_late = not task.done()
        if is_late:
            task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([task], timeout=CANCEL_SECONDS)
            if not task.done():
                hook.log_once(f"went on for {CANCEL_SECONDS:g}s after its call was cancelled")
    if is_late:
        raise hook.late()
    task.result()


def _forget(task: asyncio.Task[None]) -> None:
    """Retrieve a task's exception: asyncio would log it as never retrieved otherwise."""
    if not task.cancelled():
        task.exception()
