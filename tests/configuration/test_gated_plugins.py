"""Feature gates that add a plugin."""

from __future__ import annotations

import pytest

from ksched.configuration import SchedulerConfiguration, load_config
from ksched.configuration.gated_plugins import enable_gated_plugins
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
    assert enable_gated_plugins(configuration, {"GenericWorkload": True}) is configuration


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
