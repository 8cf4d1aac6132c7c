"""Checks of a plugin's attributes when a profile is built, before there is a pod to fail.

Every problem names the attribute and, if one is misspelt, the nearest right one.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from ksched.configuration.extension_points import (
    LIFECYCLE,
    MAY_BE_ASYNC,
    NEEDED_BESIDE,
    ExtensionPoint,
)
from ksched.framework.depends_on import CACHED_SCOPES, FilterDependsOn, Scope, ScoreDependsOn
from ksched.framework.runtime.guard import DEFAULT_PERMIT_CONCURRENCY, DEFAULT_TIMEOUT_SECONDS
from ksched.framework.untrusted_values import safe_repr

DECLARATIONS: Final[Mapping[str, type[FilterDependsOn | ScoreDependsOn]]] = {
    "filter_depends_on": FilterDependsOn,
    "score_depends_on": ScoreDependsOn,
}

SECONDS: Final = ("timeout_seconds", "permit_wait_seconds")

SETTINGS: Final = frozenset((*DECLARATIONS, *SECONDS, "permit_concurrency", "args_model"))

NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "filter_depends_on": ("filter_nodes",),
    "score_depends_on": ("score_nodes",),
    **NEEDED_BESIDE,
}
"""Attributes that have no effect unless the plugin has one of these too."""

RESERVED_PREFIXES: Final = ("filter_", "score_")

UPSTREAM_NAMES: Final = {"normalize_score": "normalize", "less": "sort_key"}
"""kube-scheduler's names of methods that have another name here."""

_METHOD_LIKENESS, _SETTING_LIKENESS = 0.8, 0.85


def _nothing() -> None:
    """Placeholder for a method that a plugin does not have."""


def implementation(plugin: Any, point: ExtensionPoint) -> Callable[..., Any] | None:
    for name in point.methods:
        method: Callable[..., Any] | None = getattr(plugin, name, None)
        if method is not None:
            return method
    return None


def find_problems(name: str, plugin: Any) -> Iterator[str]:
    """Yield what would make a plugin fail, or be silently ignored, from the first pod on."""
    own = getattr(plugin, "name", None)
    if not (isinstance(own, str) and own == name):
        yield f"its name must be the one it is registered under, got {safe_repr(own)}"
    for method in sorted((*MAY_BE_ASYNC, *LIFECYCLE)):
        found = getattr(plugin, method, _nothing)
        if not callable(found):
            yield f"{method} must be a method, got {safe_repr(found)}"
        elif not MAY_BE_ASYNC.get(method, True) and _is_async(found):
            yield f"{method} must not be async"
    if hasattr(plugin, "reserve") and not hasattr(plugin, "unreserve"):
        yield "reserve needs an unreserve that undoes it"
    for attribute, others in NEEDED.items():
        if hasattr(plugin, attribute) and not any(hasattr(plugin, other) for other in others):
            yield f"{attribute} has no effect without {' or '.join(sorted(others))}"
    for attribute, kind in DECLARATIONS.items():
        if hasattr(plugin, attribute):
            yield from _problems_of_declaration(attribute, getattr(plugin, attribute), kind)
    for attribute in SECONDS:
        seconds = getattr(plugin, attribute, DEFAULT_TIMEOUT_SECONDS)
        if not (isinstance(seconds, int | float) and seconds > 0):
            yield f"{attribute} must be a positive number, got {seconds!r}"
    bound = getattr(plugin, "permit_concurrency", DEFAULT_PERMIT_CONCURRENCY)
    if not (isinstance(bound, int) and bound > 0):
        yield f"permit_concurrency must be a positive whole number, got {bound!r}"
    yield from _misspelt(plugin)


# -- declared dependencies ----------------------------------------------------------------------


def _problems_of_declaration(
    attribute: str, declared: object, kind: type[FilterDependsOn | ScoreDependsOn]
) -> Iterator[str]:
    if not isinstance(declared, kind):
        yield f"{attribute} must be a {kind.__name__}, got {safe_repr(declared)}"
        return
    fields = {field: getattr(declared, field) for field in declared.__struct_fields__}
    scope = fields.pop("scope")
    reads = {name: fields.pop(name) for name in ("reads_inter_pod_fields", "reads_claim_names")}
    if not isinstance(scope, Scope):
        yield f"{attribute}: scope must be a Scope, got {safe_repr(scope)}"
        return
    for name, value in reads.items():
        if not isinstance(value, bool):
            yield f"{attribute}: {name} must be a bool, got {safe_repr(value)}"
    for field, method in fields.items():
        if method is not None and not callable(method):
            yield f"{attribute}: {field} must be a method, got {safe_repr(method)}"
        elif _is_async(method):
            yield f"{attribute}: {field} must not be async"
    for contradiction in _contradictions(declared):
        yield f"{attribute}: {contradiction}"


def _contradictions(declared: FilterDependsOn | ScoreDependsOn) -> Iterator[str]:
    scope = f"scope={declared.scope}"
    if isinstance(declared, ScoreDependsOn):
        if declared.epoch is not None and declared.scope not in CACHED_SCOPES:
            allowed = ", ".join(map(str, CACHED_SCOPES))
            yield f"epoch contradicts {scope}, whose scores are not cached; it goes with {allowed}"
        return
    for field in ("epoch", "changes"):
        if getattr(declared, field) is not None and declared.scope is not Scope.CLUSTER:
            yield f"{field} contradicts {scope}; it goes with {Scope.CLUSTER}"
    if declared.epoch is not None and declared.changes is not None:
        yield "epoch contradicts changes, which says more; leave epoch out"
    if declared.group is not None and declared.changes is None:
        yield "group has no effect without changes"
    if declared.group is not None and not declared.reads_inter_pod_fields:
        yield "group contradicts reads_inter_pod_fields=False: it tells pods apart by these fields"


def _is_async(method: object) -> bool:
    return inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)


# -- misspelt attributes ------------------------------------------------------------------------


def _misspelt(plugin: Any) -> Iterator[str]:
    """Yield public attributes without a meaning that resemble one with a meaning."""
    for attribute in dir(plugin):
        if attribute.startswith("_") or attribute in MAY_BE_ASYNC or attribute in SETTINGS:
            continue
        nearest = _nearest(attribute, plugin)
        if attribute.startswith(RESERVED_PREFIXES):
            prefix = attribute.partition("_")[0]
            known = sorted(one for one in MAY_BE_ASYNC.keys() | SETTINGS if one.startswith(prefix))
            hint = f"did you mean {nearest}?" if nearest else f"there are {', '.join(known)}"
            yield f"unknown attribute {attribute}, {hint}"
        elif nearest:
            yield f"unknown attribute {attribute}, did you mean {nearest}?"


def _nearest(attribute: str, plugin: Any) -> str:
    """Return what an unknown attribute was probably intended to be; empty if none is close."""
    # Static lookup: a property might not be ready to be evaluated.
    static = inspect.getattr_static(plugin, attribute, None)
    return _meant(attribute, callable(static) or isinstance(static, classmethod | staticmethod))


@lru_cache(maxsize=1024)
def _meant(attribute: str, is_method: bool) -> str:
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", attribute).lower()
    if words in ("reads_inter_pod_fields", "reads_claim_names"):
        return "a field of filter_depends_on or score_depends_on"
    found = difflib.get_close_matches(words, sorted(SETTINGS), 1, _SETTING_LIKENESS)
    if not found and is_method:
        if words in UPSTREAM_NAMES:
            return UPSTREAM_NAMES[words]
        found = difflib.get_close_matches(words, sorted(MAY_BE_ASYNC), 1, _METHOD_LIKENESS)
    return found[0] if found else ""
