"""What of a configuration cannot change while the scheduler runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ksched.configuration import model
from ksched.configuration.expansion import plugin_args
from ksched.configuration.extension_points import QUEUE_SORT
from ksched.configuration.model import SchedulerConfiguration
from ksched.framework.plugins import names
from ksched.framework.runtime.framework import enabled_plugins
from ksched.framework.runtime.profiles import Profile

FIXED_FIELDS: Final = (
    "leaderElection",
    "clientConnection",
    "extenders",
    "parallelism",
    "delayCacheUntilActive",
)
"""Connections, and what was decided with them, depend on these."""
FIXED_PLUGINS: Final = (
    names.GANG_SCHEDULING,
    names.COSCHEDULING,
    names.VOLCANO,
    names.DYNAMIC_RESOURCES,
)
"""Pod groups and claims in use are state that all profiles share, made by these plugins."""
RESTART: Final = "cannot change while the scheduler runs, restart it"


def needs_restart(now: SchedulerConfiguration, wanted: SchedulerConfiguration) -> list[str]:
    """What prevents a configuration from taking the place of the present one, as sentences."""
    old, new = now.model_dump(mode="json"), wanted.model_dump(mode="json")
    problems = [f"{path} {RESTART}" for field in FIXED_FIELDS for path in _changed(field, old, new)]
    here = [one.scheduler_name for one in now.profiles]
    there = [one.scheduler_name for one in wanted.profiles]
    if here != there:
        text = f"got {', '.join(there)}, wanted {', '.join(here)}"
        return [*problems, f"profiles: their names and their order {RESTART}: {text}"]
    for position, (before, after) in enumerate(zip(now.profiles, wanted.profiles, strict=True)):
        problems += [
            f'profiles[{position}]: plugin "{name}", its arguments included, {RESTART}'
            for name in FIXED_PLUGINS
            if _of_plugin(before, name) != _of_plugin(after, name)
        ]
    return problems


def other_queue_sort(now: Mapping[str, Profile], wanted: Mapping[str, Profile]) -> list[str]:
    """The queue is in an order that only a restart changes."""
    return [
        f'profile "{name}": queueSort {RESTART}'
        for name, profile in wanted.items()
        if _queue_sort(profile) != _queue_sort(now[name])
    ]


def _queue_sort(profile: Profile) -> tuple[str, object]:
    plugin = profile.framework.hooks[QUEUE_SORT][0].plugin
    return plugin, plugin_args(profile.framework.configuration, plugin)


def _of_plugin(profile: model.Profile, name: str) -> tuple[bool, object]:
    is_enabled = name in enabled_plugins(profile)
    return is_enabled, plugin_args(profile, name) if is_enabled else None


def _changed(field: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Paths of what differs, without values: some are secret."""
    before, after = old[field], new[field]
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for name in before.keys() | after.keys():
            if before.get(name) != after.get(name):
                yield f"{field}.{name}"
    else:
        yield field
