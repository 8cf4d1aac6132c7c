from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from ksched.configuration import SchedulerConfiguration, load_config, plugin_args
from ksched.configuration.model import (
    ClientConnection,
    LeaderElection,
    PluginConfig,
    Profile,
)
from ksched.configuration.plugin_args import (
    ARGS,
    NodeAffinityArgs,
    NodeResourcesFitArgs,
    PodTopologySpreadArgs,
    ResourceSpec,
    ScoringStrategy,
)

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def test_the_default_configuration_is_kube_schedulers() -> None:
    config = SchedulerConfiguration()
    assert (config.parallelism, config.percentage_of_nodes_to_score) == (16, 0)
    assert (config.pod_initial_backoff_seconds, config.pod_max_backoff_seconds) == (1, 10)
    assert config.leader_election == LeaderElection(
        leader_elect=True,
        lease_duration_seconds=15,
        renew_deadline_seconds=10,
        retry_period_seconds=2,
        resource_lock="leases",
        resource_name="kube-scheduler",
        resource_namespace="kube-system",
    )
    assert (config.client_connection.qps, config.client_connection.burst) == (50, 100)
    assert config.enable_profiling
    assert config.enable_contention_profiling
    assert config.extenders == ()
    assert [profile.scheduler_name for profile in config.profiles] == ["default-scheduler"]
    names = [one.name for one in config.profiles[0].plugin_config]
    assert names == sorted(ARGS.keys() - {"Coscheduling", "GangScheduling"})


def test_a_bare_file_is_the_default_configuration() -> None:
    assert load_config(HEAD) == SchedulerConfiguration()


@pytest.mark.parametrize(
    ("text", "attribute", "value"),
    [
        ("leaderElection: {leaseDuration: 0s}", "leader_election", LeaderElection()),
        ("leaderElection: {resourceName: ''}", "leader_election", LeaderElection()),
        ("leaderElection: null", "leader_election", LeaderElection()),
        ("clientConnection: {qps: 0, burst: 0}", "client_connection", ClientConnection()),
        ("clientConnection: {qps: 0.5}", "client_connection", ClientConnection(qps=0.5)),
        ("parallelism: null", "parallelism", 16),
        ("profiles: []", "profiles", SchedulerConfiguration().profiles),
        ("enableProfiling: false", "enable_contention_profiling", False),
    ],
)
def test_zero_and_null_mean_the_default_where_go_cannot_tell(
    text: str, attribute: str, value: Any
) -> None:
    assert getattr(load_config(HEAD + text), attribute) == value


def test_the_only_profile_gets_the_default_name() -> None:
    config = SchedulerConfiguration(profiles=(Profile(percentage_of_nodes_to_score=5),))
    assert config.profiles[0].scheduler_name == "default-scheduler"
    assert config.profiles[0].percentage_of_nodes_to_score == 5


def test_a_configuration_cannot_be_changed() -> None:
    config = SchedulerConfiguration()
    with pytest.raises(ValidationError, match="frozen"):
        config.parallelism = 1


def test_python_uses_attribute_names_and_seconds() -> None:
    election = LeaderElection(lease_duration_seconds=1.5, leader_elect=False)
    assert election.lease_duration_seconds == 1.5
    with pytest.raises(ValidationError, match="nonsense"):
        LeaderElection(nonsense=1)  # type: ignore[call-arg]


def test_arguments_of_unknown_plugins_stay_raw() -> None:
    text = HEAD + "profiles: [{pluginConfig: [{name: Mine, args: {depth: {x: null}, n: 1.5}}]}]"
    profile = load_config(text).profiles[0]
    assert plugin_args(profile, "Mine") == {"depth": {"x": None}, "n": 1.5}
    assert plugin_args(profile, "Other") is None


def test_arguments_not_given_are_the_defaults_even_of_a_plugin_that_is_off() -> None:
    text = HEAD + "profiles: [{plugins: {multiPoint: {disabled: [{name: '*'}]}}}]"
    profile = load_config(text).profiles[0]
    assert profile.plugin_config == ()
    assert plugin_args(profile, "NodeResourcesFit") == NodeResourcesFitArgs()


def test_a_config_entry_without_args_is_the_default() -> None:
    assert PluginConfig(name="NodeResourcesFit").args == NodeResourcesFitArgs()
    assert PluginConfig(name="Mine").args is None


def test_resources_without_weight_or_name_list_are_completed() -> None:
    strategy = ScoringStrategy(type="MostAllocated")
    assert [(one.name, one.weight) for one in strategy.resources] == [("cpu", 1), ("memory", 1)]
    assert ResourceSpec(name="cpu", weight=0).weight == 1
    assert PodTopologySpreadArgs(defaulting_type="").defaulting_type == "System"


def test_core_types_in_arguments_are_the_structs_that_plugins_compute_with() -> None:
    text = HEAD + (
        "profiles: [{pluginConfig: [{name: NodeAffinity, args: {addedAffinity: "
        "{requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "
        "[{matchExpressions: [{key: a, operator: In, values: [b]}]}]}}}}]}]"
    )
    args = plugin_args(load_config(text).profiles[0], "NodeAffinity")
    assert isinstance(args, NodeAffinityArgs)
    assert args.added_affinity is not None
    assert args.added_affinity.required is not None
    (term,) = args.added_affinity.required.node_selector_terms
    assert term.match_expressions[0].values == ["b"]
