"""Every available plugin: origin, extension points, profiles that enable it, problems."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, Final

from msgspec import Struct

from ksched import __version__
from ksched.cache.listers import Listers
from ksched.client.http_transport import ClientConfig, HttpTransport
from ksched.clock import LoopClock
from ksched.configuration.extension_points import EXTENSION_POINTS
from ksched.configuration.model import Profile, SchedulerConfiguration
from ksched.configuration.plugins import Plugin, PluginSet
from ksched.errors import ConfigError
from ksched.framework.handle import Handle, PluginFactory
from ksched.framework.plugins.in_tree import IN_TREE
from ksched.framework.runtime.framework import build_plugin
from ksched.framework.runtime.installed_plugins import InstalledPlugin, Offer, offers
from ksched.framework.runtime.plugin_contract import implementation
from ksched.framework.runtime.registry import Registry
from ksched.scheduling.scheduler import Scheduler

IN_TREE_PACKAGE: Final = "ksched"
_NO_POINT: Final = "implements no extension point; see ksched/framework/interface.py"
_PROBE: Final = "HandleProbe"


class PluginEntry(Struct, frozen=True, rename="camel"):
    """One available plugin, in-tree or from an installed package."""

    name: str
    """"" if the package's entry points cannot be read."""
    package: str
    version: str
    target: str
    """Entry point of its factory, "" for in-tree plugins."""
    extension_points: list[str]
    profiles: list[str]
    """The profiles that enable it."""
    problems: list[str]


def inventory(configuration: SchedulerConfiguration) -> list[PluginEntry]:
    """List all plugins, those of packages first; requires a running event loop.

    Each is imported and built as a profile would, with the arguments from the configuration.
    """
    lister = _Lister(configuration)
    found = offers()
    installed = [lister.entry(offer, InstalledPlugin((offer,)), found) for offer in found]
    in_tree = [
        lister.entry(Offer(name, IN_TREE_PACKAGE, __version__, ""), factory)
        for name, factory in IN_TREE.items()
    ]
    return installed + in_tree


class _Lister:
    def __init__(self, configuration: SchedulerConfiguration) -> None:
        self._profiles = configuration.profiles
        self._handle = _handle()
        self._unusable = _problems_of(configuration)
        """Problems that prevent the configured profiles from being built."""

    def entry(
        self, offer: Offer, factory: PluginFactory, others: Sequence[Offer] = ()
    ) -> PluginEntry:
        name = offer.name
        enabling = [profile for profile in self._profiles if name and _enables(profile, name)]
        points, problems = [], [offer.problem] if offer.problem else []
        if name:
            profile = (enabling or self._profiles)[0]
            try:
                points = _points(build_plugin(name, factory, profile, self._handle))
            except ConfigError as error:
                problems += error.problems
            else:
                problems += [] if points else [_NO_POINT]
            problems += _clashes(offer, others)
            problems += [text for text in self._unusable if f'"{name}"' in text]
        return PluginEntry(
            name,
            offer.package,
            offer.version,
            offer.target,
            points,
            [profile.scheduler_name for profile in enabling],
            _without_repetitions(problems),
        )


def _points(plugin: Any) -> list[str]:
    return [point.key for point in EXTENSION_POINTS if implementation(plugin, point) is not None]


def _enables(profile: Profile, name: str) -> bool:
    return any(
        plugin.name == name for _, points in profile.plugins.items() for plugin in points.enabled
    )


def _clashes(offer: Offer, offers: Sequence[Offer]) -> Iterator[str]:
    if not offer.target:
        return
    if offer.name in IN_TREE:
        yield "has the name of an in-tree plugin, which is used instead"
        return
    others = [str(other) for other in offers if other.name == offer.name and other != offer]
    if others:
        yield f"also offered by {', '.join(others)}: a profile that enables it cannot be built"


def _without_repetitions(problems: Sequence[str]) -> list[str]:
    """Drop profile problems that only repeat, with the profile's name, a problem of the plugin."""
    return [
        text
        for text in dict.fromkeys(problems)
        if not any(text != other and text.endswith(other) for other in problems)
    ]


def _problems_of(configuration: SchedulerConfiguration) -> Sequence[str]:
    try:
        try_to_build(configuration)
    except ConfigError as error:
        return error.problems
    return ()


def _handle() -> Handle:
    """A handle as a scheduler would pass to its plugins."""
    handles: list[Handle] = []

    def probe(args: Any, handle: Handle) -> Any:
        handles.append(handle)
        return SimpleNamespace(name=_PROBE)

    plain = SchedulerConfiguration()
    multi_point = plain.profiles[0].plugins.multi_point
    enabled = PluginSet(enabled=(*multi_point.enabled, Plugin(name=_PROBE)))
    plugins = plain.profiles[0].plugins.model_copy(update={"multi_point": enabled})
    profile = plain.profiles[0].model_copy(update={"plugins": plugins})
    try_to_build(plain.model_copy(update={"profiles": (profile,)}), {_PROBE: probe})
    # Kinds can be required only while a scheduler is built, and that one is.
    handles[0].listers = Listers()
    return handles[0]


def try_to_build(configuration: SchedulerConfiguration, registry: Registry | None = None) -> None:
    """Build a scheduler that never connects: constructors of plugins check their arguments."""
    clock = LoopClock()
    transport = HttpTransport(ClientConfig("http://127.0.0.1"), clock)
    Scheduler(transport, configuration, clock=clock, registry=registry)
