"""Feature gates that add a plugin."""

from __future__ import annotations

import pytest

from ksched.configuration import SchedulerConfiguration, load_config
from ksched.configuration.gated_plugins import enable_gated_plugins
from ksched.configuration.plugin_args import DynamicResourcesArgs
from ksched.errors import ConfigError

BOTH = {"GenericWorkload": True, "GangScheduling": True}
FILE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint:
      {list}:
      - name: {name}
"""


def enabled(configuration: SchedulerConfiguration) -> list[str]:
    [profile] = enable_gated_plugins(configuration, BOTH).profiles
    return [plugin.name for plugin in profile.plugins.multi_point.enabled]


def test_both_gates_append_the_plugin() -> None:
    assert enabled(SchedulerConfiguration())[-1] == "GangScheduling"


def test_without_the_gate_nothing_changes() -> None:
    configuration = SchedulerConfiguration()
    assert enable_gated_plugins(configuration, {"GenericWorkload": True}) == configuration


def test_one_gate_needs_the_other() -> None:
    with pytest.raises(ConfigError, match="GangScheduling needs GenericWorkload=true"):
        enable_gated_plugins(SchedulerConfiguration(), {"GangScheduling": True})


@pytest.mark.parametrize("name", ["GangScheduling", '"*"'])
def test_a_profile_that_disables_it_goes_without(name: str) -> None:
    configuration = load_config(FILE.format(list="disabled", name=name))
    assert "GangScheduling" not in enabled(configuration)


def test_a_profile_that_names_it_has_it_once() -> None:
    configuration = load_config(FILE.format(list="enabled", name="GangScheduling"))
    assert enabled(configuration).count("GangScheduling") == 1


def test_the_gate_of_taint_rules_sets_an_argument_in_every_profile() -> None:
    file = FILE.format(list="disabled", name="GangScheduling") + "- schedulerName: other\n"
    configuration = load_config(file.replace("- plugins", "- schedulerName: one\n  plugins"))
    gated = enable_gated_plugins(configuration, {"DRADeviceTaintRules": True})
    for before, after in zip(configuration.profiles, gated.profiles, strict=True):
        [old] = [one.args for one in before.plugin_config if one.name == "DynamicResources"]
        [new] = [one.args for one in after.plugin_config if one.name == "DynamicResources"]
        assert isinstance(old, DynamicResourcesArgs)
        assert isinstance(new, DynamicResourcesArgs)
        assert (old.device_taint_rules, new.device_taint_rules) == (None, True)
