"""Loads a configuration file to a valid ``SchedulerConfiguration``, or reports all problems."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from copy import deepcopy
from typing import Any, Final

from pydantic import ValidationError

from ksched.configuration.conversion import OLD_VERSIONS, convert
from ksched.configuration.field_errors import (
    Location,
    describe,
    path_of,
    required,
    unsupported,
)
from ksched.configuration.merging import is_missing
from ksched.configuration.model import SchedulerConfiguration
from ksched.configuration.strict_model import API_VERSION, decode
from ksched.configuration.validation import REMOVED_PLUGINS, find_problems, find_warnings
from ksched.configuration.yaml_reading import read_yaml
from ksched.errors import ConfigError

log = logging.getLogger(__name__)

KIND: Final = "KubeSchedulerConfiguration"


def _log_warning(warning: str) -> None:
    log.warning("configuration warning", extra={"warning": warning})


def load_config(
    text: str,
    warn: Callable[[str], None] = _log_warning,
    available: Collection[str] | None = None,
) -> SchedulerConfiguration:
    """Load a configuration file of any version; raises ``ConfigError`` with all problems.

    ``warn`` is called with what is valid but probably unintended, and what the conversion of an old
    version dropped. ``available`` are the names of existing plugins, if known already.
    """
    data, duplicates = read_yaml(text)
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise ConfigError(["the file must be a mapping with apiVersion and kind"])
    if problems := _wrong_kind(data):
        raise ConfigError([*duplicates, *problems])
    problems = [*duplicates]
    content = {k: v for k, v in data.items() if k not in ("apiVersion", "kind")}
    if data["apiVersion"] != API_VERSION:
        converted = convert(data["apiVersion"], content)
        content = converted.content
        problems += converted.problems
        for warning in converted.warnings:
            warn(warning)
    if available is not None:
        problems += [
            f'{path_of(location)}: plugin "{name}" does not exist'
            for location, name in _enabled_plugins(content)
            if is_missing(str(location[3]), name, available) and name not in REMOVED_PLUGINS
        ]
    configuration = _decode(content, problems)
    for warning in find_warnings(configuration):
        warn(warning)
    return configuration


def _wrong_kind(data: Mapping[str, Any]) -> list[str]:
    problems = []
    for field, supported in (("apiVersion", (API_VERSION, *OLD_VERSIONS)), ("kind", (KIND,))):
        value = data.get(field)
        if not value:
            problems.append(required(field))
        elif value not in supported:
            problems.append(unsupported(field, value, supported))
    return problems


def _enabled_plugins(content: Any) -> Iterator[tuple[Location, str]]:
    """Yield every enabled plugin of a file that may not be a valid configuration.

    Merging the defaults moves the plugins of ``multiPoint``; problems refer to their position in
    the file.
    """
    for i, profile in _items(content, "profiles"):
        plugins = profile.get("plugins") if isinstance(profile, dict) else None
        for point, plugin_set in plugins.items() if isinstance(plugins, dict) else ():
            for j, plugin in _items(plugin_set, "enabled"):
                name = plugin.get("name") if isinstance(plugin, dict) else None
                if isinstance(name, str) and name:
                    yield ("profiles", i, "plugins", point, "enabled", j, "name"), name


def _items(parent: Any, field: str) -> Iterator[tuple[int, Any]]:
    value = parent.get(field) if isinstance(parent, dict) else None
    return enumerate(value if isinstance(value, list) else ())


def _decode(content: dict[str, Any], problems: list[str]) -> SchedulerConfiguration:
    """Decode and validate; undecodable fields do not hide problems of others."""
    try:
        configuration = decode(SchedulerConfiguration, content)
    except ValidationError as error:
        undecodable = describe(error)
    else:
        if found := [*problems, *find_problems(configuration)]:
            raise ConfigError(found)
        return configuration
    problems = [*problems, *(problem for _, problem in undecodable)]
    removed = [location for location, _ in undecodable]
    try:
        rest = decode(SchedulerConfiguration, _without(content, removed))
    except ValidationError as error:
        raise ConfigError([*problems, *(problem for _, problem in describe(error))]) from None
    # Removed fields have defaults now, which the user did not write.
    guessed = tuple(path_of(location) + end for location in removed for end in ".[:")
    problems += [p for p in find_problems(rest) if not p.startswith(guessed)]
    raise ConfigError(problems)


def _without(content: dict[str, Any], locations: list[Location]) -> dict[str, Any]:
    """Return a copy without the fields at these locations.

    A list stays whole or is removed altogether, so that indices stay valid.
    """
    rest = deepcopy(content)
    for location in locations:
        steps = list(location)
        while steps and isinstance(steps[-1], int):
            steps.pop()
        parent: Any = rest
        for step in steps[:-1]:
            try:
                parent = parent[step]
            except (KeyError, IndexError, TypeError):
                break  # removed with an enclosing field
        else:
            if steps and isinstance(parent, dict):
                parent.pop(steps[-1], None)
    return rest
