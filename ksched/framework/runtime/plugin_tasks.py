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
        once: dict[int, tuple[Any, GivesHandles]] = {}
        for plugin, handle in plugins:
            if hasattr(plugin, "start") or hasattr(plugin, "stop"):
                once.setdefault(id(plugin), (plugin, handle))
        self._plugins = tuple(once.values())
        self._begun: list[tuple[Any, PluginTasks]] = []

    async def start(self) -> None:
        """Call ``start`` of one after the other; raises ``PluginFailure`` if one cannot."""
        for plugin, handle in self._plugins:
            tasks = PluginTasks(plugin)
            self._begun.append((plugin, tasks))
            if hasattr(plugin, "start"):
                await _call(Hook(plugin, plugin.start, "Start"), handle.with_tasks(tasks))

    async def stop(self) -> None:
        """Call ``stop`` of all that were started, then cancel their tasks.

        Takes ``STOP_SECONDS`` and twice ``CANCEL_SECONDS`` at most.
        """
        begun, self._begun = self._begun[::-1], []
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

    def sizes(self) -> dict[str, int]:
        """By plugin that was started, how many tasks it has."""
        return {tasks.plugin: len(tasks) for _, tasks in self._begun}


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
