"""Our answer to a device selector beside upstream's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ksched.cel import CompileError, CostExceeded, EvaluationError
from ksched.cel.planner import Planner
from ksched.devices.device_selectors import (
    COST_LIMIT,
    DeviceSelector,
    DeviceView,
    compile_device_selector,
    device_environment,
)

MISCOUNTED = (".exists(", ".all(", "||", "&&")
"""Where costs differ: maps are walked in random order there, absorbed errors cost less here."""

WALKED = (".exists(", ".exists_one(", ".all(", ".map(", ".filter(")
"""Where one of several errors is reported: that of the entry that was met first."""


@dataclass(frozen=True)
class Attribute:
    """An attribute as the API writes it."""

    int_value: int | None
    bool_value: bool | None
    string_value: str | None
    version_value: str | None


@dataclass(frozen=True)
class Capacity:
    """A capacity as the API writes it."""

    value: str


@dataclass(frozen=True)
class Device:
    """A device as the API writes it."""

    attributes: Mapping[str, Attribute]
    capacity: Mapping[str, Capacity]
    allow_multiple_allocations: bool | None


def view(device: Mapping[str, Any]) -> DeviceView:
    """A device of ``lab.cel_expressions`` as selectors see it."""
    attributes = {
        name: Attribute(*(one.get(kind) for kind in ("int", "bool", "string", "version")))
        for name, one in device.get("attributes", {}).items()
    }
    capacity = {name: Capacity(one["value"]) for name, one in device.get("capacity", {}).items()}
    seen = Device(attributes, capacity, device.get("allowMultipleAllocations"))
    return DeviceView(device["driver"], seen)


def disagreement(
    expression: str, devices: Sequence[Mapping[str, Any]], upstream: Mapping[str, Any]
) -> str | None:
    """What differs between the two, or ``None``."""
    wanted = upstream.get("compileError")
    try:
        selector = compile_device_selector(expression)
    except CompileError as error:
        if wanted is None:
            return f"does not compile: {error}"
        return None if _same_problem(str(error), wanted) else f"said {error!s}, wanted {wanted}"
    if wanted is not None:
        return f"compiles, wanted {wanted}"
    for device, answer in zip(devices, upstream["results"], strict=True):
        problem = _compare(selector, view(device), answer)
        if problem is not None:
            return f"on {device['driver']}: {problem}"
    return None


def _same_problem(ours: str, upstream: str) -> bool:
    """Exactly the same, but for syntax errors: there the place of the first one counts."""
    if "Syntax error" not in upstream:
        return ours == upstream
    return ours.split("Syntax error")[0] == upstream.split("Syntax error")[0]


def _compare(selector: DeviceSelector, device: DeviceView, answer: Mapping[str, Any]) -> str | None:
    try:
        matches = selector.matches(device)
    except EvaluationError as error:
        wanted = answer.get("error")
        if wanted is None or (str(error) != wanted and not _walks(selector)):
            return f"error {error!s}, wanted {answer}"
        return None
    if "error" in answer or matches != answer.get("matches", False):
        return f"{matches}, wanted {answer}"
    if any(one in selector.expression for one in MISCOUNTED):
        return None
    cost = tracked_cost(selector, device)
    return None if cost == answer["cost"] else f"costs {cost}, wanted {answer['cost']}"


def _walks(selector: DeviceSelector) -> bool:
    return any(one in selector.expression for one in WALKED)


def tracked_cost(selector: DeviceSelector, device: DeviceView) -> int:
    """What an expression costs on a device, counted even where it need not be."""
    library = device_environment(True).library
    planner = Planner({"device": 1}, library.functions, library.costs, COST_LIMIT)
    run = planner.plan(selector.root).run
    frame: list[Any] = [0, device.variable, *([None] * (planner.size - 2))]
    try:
        run(frame)
    except (EvaluationError, CostExceeded):
        pass
    return int(frame[0])
