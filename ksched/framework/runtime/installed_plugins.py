"""Plugins that installed packages provide under the entry-point group ``ksched.plugins``.

Installed is not enabled: nothing of a package is imported before a profile names its plugin, and
problems of a package are reported only then, or by ``ksched plugins``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import lru_cache
from importlib.metadata import Distribution, EntryPoint, PackageNotFoundError, distributions
from typing import Any, Final, NamedTuple

from ksched.errors import ConfigError
from ksched.framework.handle import Handle, PluginFactory
from ksched.framework.untrusted_values import is_interrupt, safe_error_text

ENTRY_POINT_GROUP: Final = "ksched.plugins"
_FILE: Final = "entry_points.txt"


class Offer(NamedTuple):
    """One entry point of a package; ``name`` is "" if they cannot be read."""

    name: str
    package: str
    version: str
    target: str
    """The factory, as ``module:attribute``."""
    problem: str = ""
    """Why the package's entry points cannot be read."""

    def __str__(self) -> str:
        return f"{self.package} {self.version}".rstrip()


class InstalledPlugin:
    """The factory of a plugin that one or several packages provide; loaded when called."""

    def __init__(self, offers: tuple[Offer, ...]) -> None:
        self.offers = offers

    def __call__(self, args: Any, handle: Handle) -> Any:
        return self.load()(args, handle)

    def load(self) -> PluginFactory:
        """Import the package; ``ConfigError`` if that fails or several packages provide it."""
        first, *others = self.offers
        if others:
            packages = ", ".join(str(offer) for offer in self.offers)
            raise ConfigError([f"offered by several packages: {packages}"])
        try:
            factory: PluginFactory = EntryPoint("", first.target, ENTRY_POINT_GROUP).load()
        except BaseException as problem:
            if is_interrupt(problem):
                raise
            text = f"{first.target} of {first} cannot be imported: {safe_error_text(problem)}"
            raise ConfigError([text]) from problem
        return factory


def offers() -> list[Offer]:
    """List what every installed package provides, in path order.

    ``importlib.metadata.entry_points`` would raise for all packages if one is broken. What was read
    is valid until a folder of the path changes.
    """
    return list(_offers_on(tuple((folder, _changed_at(folder)) for folder in sys.path)))


def _changed_at(folder: str) -> int:
    try:
        return os.stat(folder or ".").st_mtime_ns
    except OSError:
        return 0


@lru_cache(maxsize=1)
def _offers_on(path: tuple[tuple[str, int], ...]) -> list[Offer]:
    found: list[Offer] = []
    packages: set[str] = set()
    for distribution in distributions():
        try:
            text = distribution.read_text(_FILE) or ""
        except (OSError, ValueError):
            continue
        if ENTRY_POINT_GROUP not in text:
            continue
        package = _name(distribution)
        # The same package further down the path is not the one that would be imported.
        if package not in packages and _is_first(package, text):
            packages.add(package)
            found += _offers(distribution, package)
    return found


def _offers(distribution: Distribution, package: str) -> Iterator[Offer]:
    try:
        version = str(distribution.metadata["Version"] or "")
        points = distribution.entry_points.select(group=ENTRY_POINT_GROUP)
        yield from (Offer(point.name, package, version, point.value) for point in points)
    except Exception as problem:  # noqa: BLE001 - reported
        yield Offer("", package, "", "", f"{_FILE} cannot be read: {safe_error_text(problem)}")


def _name(distribution: Distribution) -> str:
    try:
        return str(distribution.metadata["Name"] or "(no name)")
    except Exception:  # noqa: BLE001 - a package without readable metadata is one without a name
        return "(no name)"


def _is_first(package: str, text: str) -> bool:
    try:
        return Distribution.from_name(package).read_text(_FILE) == text
    except (PackageNotFoundError, OSError, ValueError):
        return True
