"""A configuration file to a checked ``SchedulerConfiguration``, or all of its problems at once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
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
from ksched.configuration.model import SchedulerConfiguration
from ksched.configuration.strict_model import API_VERSION, decode
from ksched.configuration.validation import find_problems, find_warnings
from ksched.configuration.yaml_reading import read_yaml
from ksched.errors import ConfigError

log = logging.getLogger(__name__)

KIND: Final = "KubeSchedulerConfiguration"


def _log_warning(warning: str) -> None:
    log.warning("configuration warning", extra={"warning": warning})


def load_config(text: str, warn: Callable[[str], None] = _log_warning) -> SchedulerConfiguration:
    """Read a configuration file of any version; raise ``ConfigError`` with all problems.

    ``warn`` is told what works but was probably not meant, and what an old version's file lost in
    conversion.
    """
    data = read_yaml(text)
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise ConfigError(["the file must be a mapping with apiVersion and kind"])
    problems = _wrong_kind(data)
    if problems:
        raise ConfigError(problems)
    content = {k: v for k, v in data.items() if k not in ("apiVersion", "kind")}
    if data["apiVersion"] != API_VERSION:
        converted = convert(data["apiVersion"], content)
        content, problems = converted.content, converted.problems
        for warning in converted.warnings:
            warn(warning)
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


def _decode(content: dict[str, Any], problems: list[str]) -> SchedulerConfiguration:
    """Decode and validate; fields that cannot be decoded do not hide what is wrong with others."""
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
    # Removed fields have their defaults now, about which the user said nothing.
    guessed = tuple(path_of(location) + end for location in removed for end in ".[:")
    problems += [p for p in find_problems(rest) if not p.startswith(guessed)]
    raise ConfigError(problems)


def _without(content: dict[str, Any], locations: list[Location]) -> dict[str, Any]:
    """A copy lacking the fields at these locations.

    A list stays whole or goes altogether, so that the indices of what is left stay true.
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
                break  # went with an enclosing field
        else:
            if steps and isinstance(parent, dict):
                parent.pop(steps[-1], None)
    return rest
