"""Configurations that the live scheduler may have instead, one difference each.

If decisions differ and one of these would have made them, that is what differs. Each is a profile
of its own beside the compared one, in the same copy of the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from ksched.configuration.defaults import DEFAULT_MULTI_POINT
from ksched.configuration.expansion import plugin_args
from ksched.configuration.model import PluginConfig, Profile, SchedulerConfiguration
from ksched.configuration.plugin_args import (
    InterPodAffinityArgs,
    NodeResourcesFitArgs,
    PluginArgs,
    PodTopologySpreadArgs,
    ScoringStrategy,
)
from ksched.configuration.plugins import Plugin, PluginSet

LIVE: Final = "the given configuration of the live scheduler"
DEFAULTS: Final = "the default configuration"
_HEAVIER: Final = 10
# What every scheduler needs, and what does not choose nodes.
_NEVER_OFF: Final = frozenset(
    ("SchedulingGates", "PrioritySort", "NodeName", "DefaultPreemption", "DefaultBinder")
)
_WEIGHTS: Final = {name: weight for name, weight in DEFAULT_MULTI_POINT if weight}


class Variant(Struct, frozen=True):
    """Another configuration of a profile, under a name of its own."""

    label: str
    plugin: str
    """The plugin that it concerns; empty if several."""
    profile: Profile


def with_variants(
    configuration: SchedulerConfiguration, live: SchedulerConfiguration | None
) -> tuple[SchedulerConfiguration, dict[str, list[Variant]]]:
    """Add the variants of every profile; they are returned by the profile's name too.

    If the live configuration is given there is nothing to guess.
    """
    variants: dict[str, list[Variant]] = {}
    for profile in configuration.profiles:
        name = profile.scheduler_name
        found = list(_guesses(profile) if live is None else _given(name, live))
        variants[name] = [
            Variant(one.label, one.plugin, _renamed(one.profile, f"{name} {number}"))
            for number, one in enumerate(found)
        ]
    profiles = (*configuration.profiles, *(v.profile for some in variants.values() for v in some))
    return configuration.model_copy(update={"profiles": profiles}), variants


def _renamed(profile: Profile, name: str) -> Profile:
    return profile.model_copy(update={"scheduler_name": name})


def _given(name: str, live: SchedulerConfiguration) -> Iterator[Variant]:
    for profile in live.profiles:
        if profile.scheduler_name == name:
            yield Variant(LIVE, "", profile)


def _guesses(profile: Profile) -> Iterator[Variant]:
    enabled = {one.name for _, points in profile.plugins.items() for one in points.enabled}
    default = Profile(scheduler_name=profile.scheduler_name)
    if (default.plugins, default.plugin_config) != (profile.plugins, profile.plugin_config):
        yield Variant(DEFAULTS, "", default)
    for name, weight in DEFAULT_MULTI_POINT:
        if name in _NEVER_OFF:
            continue
        if name not in enabled:
            yield Variant(f"{name} enabled", name, _with(profile, Plugin(name=name, weight=weight)))
            continue
        yield Variant(f"{name} disabled", name, _without(profile, name))
        if name in _WEIGHTS:
            yield Variant(f"{name} not scoring", name, _weighing(profile, name, 0))
            heavier = _HEAVIER * _WEIGHTS[name]
            label = f"{name} with a much higher weight"
            yield Variant(label, name, _weighing(profile, name, heavier))
    yield from _other_arguments(profile, enabled)


def _other_arguments(profile: Profile, enabled: set[str]) -> Iterator[Variant]:
    fit = plugin_args(profile, "NodeResourcesFit")
    if isinstance(fit, NodeResourcesFitArgs) and "NodeResourcesFit" in enabled:
        for kind in ("LeastAllocated", "MostAllocated"):
            if fit.scoring_strategy.type != kind:
                resources = fit.scoring_strategy.resources
                strategy = ScoringStrategy(type=kind, resources=resources)
                args = fit.model_copy(update={"scoring_strategy": strategy})
                label = f"NodeResourcesFit with scoringStrategy {kind}"
                name = "NodeResourcesFit"
                yield Variant(label, name, _configured(profile, name, args))
    spread = plugin_args(profile, "PodTopologySpread")
    if isinstance(spread, PodTopologySpreadArgs) and "PodTopologySpread" in enabled:
        kind = "List" if spread.defaulting_type == "System" else "System"
        none = {"defaulting_type": kind, "default_constraints": ()}
        label = f"PodTopologySpread with defaultingType {kind}"
        args_of_spread = spread.model_copy(update=none)
        name = "PodTopologySpread"
        yield Variant(label, name, _configured(profile, name, args_of_spread))
    affinity = plugin_args(profile, "InterPodAffinity")
    if isinstance(affinity, InterPodAffinityArgs) and "InterPodAffinity" in enabled:
        is_off = affinity.ignore_preferred_terms_of_existing_pods
        other = {"ignore_preferred_terms_of_existing_pods": not is_off}
        name, value = "InterPodAffinity", str(not is_off).lower()
        label = f"{name} with ignorePreferredTermsOfExistingPods {value}"
        yield Variant(label, name, _configured(profile, name, affinity.model_copy(update=other)))


# -- edits of a profile -------------------------------------------------------------------------


def _edited(profile: Profile, sets: dict[str, PluginSet]) -> Profile:
    return profile.model_copy(update={"plugins": profile.plugins.model_copy(update=sets)})


def _without(profile: Profile, name: str) -> Profile:
    sets = {}
    for point, points in profile.plugins.items():
        if any(one.name == name for one in points.enabled):
            kept = tuple(one for one in points.enabled if one.name != name)
            sets[_field(point)] = points.model_copy(update={"enabled": kept})
    return _edited(profile, sets)


def _with(profile: Profile, plugin: Plugin) -> Profile:
    points = profile.plugins.multi_point
    enabled = (*points.enabled, plugin)
    return _edited(profile, {"multi_point": points.model_copy(update={"enabled": enabled})})


def _weighing(profile: Profile, name: str, weight: int) -> Profile:
    """The profile with another weight of a plugin's scores; without them if it is 0."""
    points = profile.plugins.score
    others = tuple(one for one in points.enabled if one.name != name)
    if weight:
        update = {"enabled": (*others, Plugin(name=name, weight=weight))}
    else:
        update = {"enabled": others, "disabled": (*points.disabled, Plugin(name=name))}
    return _edited(profile, {"score": points.model_copy(update=update)})


def _configured(profile: Profile, name: str, args: PluginArgs) -> Profile:
    others = tuple(one for one in profile.plugin_config if one.name != name)
    configs = (*others, PluginConfig(name=name, args=args))
    return profile.model_copy(update={"plugin_config": configs})


def _field(point: str) -> str:
    """``preFilter`` to ``pre_filter``."""
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in point)
