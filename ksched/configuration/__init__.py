"""KubeSchedulerConfiguration, validated and completed with defaults.

The models are always *effective*: defaults are filled in and the default plugins are merged when a
model is built, so that no other package has defaults of its own. Reading order: ``model``,
``plugins``, ``plugin_args``, ``merging``, ``expansion``, ``loading``.

Does not belong here: building plugins, credentials, cluster state.
"""

from ksched.configuration.dumping import configz, dump_config
from ksched.configuration.expansion import (
    PluginWeight,
    expand_profile,
    ignore_extender_resources,
    plugin_args,
    queue_sort_problems,
)
from ksched.configuration.loading import load_config
from ksched.configuration.model import SchedulerConfiguration
from ksched.configuration.validation import validate

__all__ = [
    "PluginWeight",
    "SchedulerConfiguration",
    "configz",
    "dump_config",
    "expand_profile",
    "ignore_extender_resources",
    "load_config",
    "plugin_args",
    "queue_sort_problems",
    "validate",
]
