"""What feature gates change in a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ksched.configuration.model import Profile, SchedulerConfiguration
from ksched.configuration.plugin_args import DynamicResourcesArgs
from ksched.configuration.plugins import ALL, Plugin, PluginSet
from ksched.errors import ConfigError

GENERIC_WORKLOAD: Final = "GenericWorkload"
GANG_SCHEDULING: Final = "GangScheduling"
"""A gate and a plugin."""
DEVICE_TAINT_RULES: Final = "DRADeviceTaintRules"


def enable_gated_plugins(
    configuration: SchedulerConfiguration, gates: Mapping[str, bool]
) -> SchedulerConfiguration:
    """Append GangScheduling to the plugins of every profile that does not disable it.

    Raises ``ConfigError`` if its gate is on without the one that it depends on. With
    DRADeviceTaintRules, DynamicResources reads DeviceTaintRules in every profile.
    """
    profiles = configuration.profiles
    if gates.get(GANG_SCHEDULING):
        if not gates.get(GENERIC_WORKLOAD):
            text = f"feature gate {GANG_SCHEDULING} needs {GENERIC_WORKLOAD}=true as well"
            raise ConfigError([f"--feature-gates: {text}"])
        profiles = tuple(map(_with_gang_scheduling, profiles))
    if gates.get(DEVICE_TAINT_RULES):
        changes = {"device_taint_rules": True}
        profiles = tuple(profile.with_args(DynamicResourcesArgs, changes) for profile in profiles)
    return configuration.model_copy(update={"profiles": profiles})


def _with_gang_scheduling(profile: Profile) -> Profile:
    multi_point = profile.plugins.multi_point
    mentioned = {plugin.name for plugin in (*multi_point.enabled, *multi_point.disabled)}
    if mentioned & {GANG_SCHEDULING, ALL}:
        return profile
    enabled = (*multi_point.enabled, Plugin(name=GANG_SCHEDULING))
    changed = PluginSet(enabled=enabled, disabled=multi_point.disabled)
    plugins = profile.plugins.model_copy(update={"multi_point": changed})
    return profile.model_copy(update={"plugins": plugins})
