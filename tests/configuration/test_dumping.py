from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ksched.api.objects import (
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    TopologySpreadConstraint,
)
from ksched.configuration import SchedulerConfiguration, configz, dump_config, load_config
from ksched.configuration.dumping import write_config
from ksched.configuration.extenders import Extender, ExtenderManagedResource, ExtenderTLSConfig
from ksched.configuration.model import ClientConnection, LeaderElection, PluginConfig, Profile
from ksched.configuration.plugin_args import (
    DefaultPreemptionArgs,
    DynamicResourcesArgs,
    InterPodAffinityArgs,
    NodeAffinityArgs,
    NodeResourcesFitArgs,
    PodTopologySpreadArgs,
    RequestedToCapacityRatioParam,
    ResourceSpec,
    ScoringStrategy,
    UtilizationShapePoint,
    VolumeBindingArgs,
)
from ksched.configuration.plugins import Plugin, Plugins, PluginSet
from ksched.configuration.validation import find_problems
from ksched.errors import ConfigError


def test_every_default_is_written_out_with_sorted_keys() -> None:
    written = yaml.safe_load(dump_config(SchedulerConfiguration()))
    assert list(written) == sorted(written)
    assert set(written) == {
        "apiVersion",
        "clientConnection",
        "delayCacheUntilActive",
        "enableContentionProfiling",
        "enableProfiling",
        "kind",
        "leaderElection",
        "parallelism",
        "percentageOfNodesToScore",
        "podInitialBackoffSeconds",
        "podMaxBackoffSeconds",
        "profiles",
    }
    (profile,) = written["profiles"]
    assert profile["plugins"]["bind"] == {}
    assert {"name": "NodeName", "weight": 0} in profile["plugins"]["multiPoint"]["enabled"]
    assert [one["name"] for one in profile["pluginConfig"]] == [
        "DefaultPreemption",
        "DynamicResources",
        "InterPodAffinity",
        "NodeAffinity",
        "NodeResourcesBalancedAllocation",
        "NodeResourcesFit",
        "PodTopologySpread",
        "VolumeBinding",
    ]
    assert profile["pluginConfig"][1]["args"] == {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "bindingTimeout": "10m0s",
        "filterTimeout": "10s",
        "kind": "DynamicResourcesArgs",
    }


@pytest.mark.parametrize("name", ["y", "on", "0x10", "1e3", "null", "12:30:00", "ü", "a: b", " "])
def test_names_that_look_like_something_else_are_quoted(name: str) -> None:
    config = SchedulerConfiguration(profiles=(Profile(scheduler_name=name),))
    assert load_config(dump_config(config)) == config


def test_a_key_is_written_to_the_file_but_not_shown_to_whoever_asks() -> None:
    tls = ExtenderTLSConfig(key_data="c2VjcmV0", cert_data="cHVibGlj")
    config = SchedulerConfiguration(extenders=(Extender(url_prefix="https://x", tls_config=tls),))
    assert load_config(dump_config(config)) == config
    shown = configz(config)["extenders"][0]["tlsConfig"]
    assert (shown["certData"], shown["keyData"]) == ("cHVibGlj", "--- REDACTED ---")


def test_what_is_shown_holds_no_secret_of_extenders_or_plugins() -> None:
    extender = Extender(
        url_prefix="https://me:hunter2@x:8443/api?token=hunter2", filter_verb="filter?key=hunter2"
    )
    args = {
        "apiToken": "hunter2",
        "backend": "redis://:hunter2@cache:6379/0",
        "env": [{"name": "DB_PASSWORD", "value": "hunter2"}],
        "topologyKey": "zone",
    }
    plugin = PluginConfig(name="OutOfTree", args=args)
    config = SchedulerConfiguration(
        extenders=(extender,), profiles=(Profile(plugin_config=(plugin,)),)
    )
    shown = configz(config)

    assert "hunter2" not in str(shown)
    assert shown["extenders"][0]["urlPrefix"].endswith("@x:8443/api?--- REDACTED ---")
    (own,) = (one for one in shown["profiles"][0]["pluginConfig"] if one["name"] == "OutOfTree")
    assert own["args"]["topologyKey"] == "zone"
    assert load_config(dump_config(config)) == config, "the file is for a scheduler to read"


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    target = tmp_path / "config.yaml"
    write_config(SchedulerConfiguration(), str(target))
    assert load_config(target.read_text()) == SchedulerConfiguration()
    assert target.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ConfigError, match=r"--write-config-to: cannot write .*: Is a directory"):
        write_config(SchedulerConfiguration(), str(tmp_path))


# -- random valid configurations ----------------------------------------------------------------

NAMES = st.from_regex(r"[a-z]([a-z0-9]{0,5})", fullmatch=True)
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=8)
PERCENT = st.integers(0, 100)
NANOSECONDS = st.integers(1, 10**12)
SECONDS = NANOSECONDS.map(lambda nanoseconds: nanoseconds / 10**9)
POINTS = st.builds(UtilizationShapePoint, utilization=PERCENT, score=st.integers(0, 10))
SHAPES = st.lists(POINTS, min_size=1, max_size=4, unique_by=lambda point: point.utilization).map(
    lambda points: tuple(sorted(points, key=lambda point: point.utilization))
)
RESOURCES = st.lists(
    st.builds(ResourceSpec, name=NAMES, weight=st.integers(1, 100)), max_size=3
).map(tuple)
STRATEGIES = st.one_of(
    st.builds(
        ScoringStrategy,
        type=st.sampled_from(["LeastAllocated", "MostAllocated"]),
        resources=RESOURCES,
    ),
    st.builds(
        ScoringStrategy,
        type=st.just("RequestedToCapacityRatio"),
        resources=RESOURCES,
        requested_to_capacity_ratio=st.builds(RequestedToCapacityRatioParam, shape=SHAPES),
    ),
)
REQUIREMENTS = st.builds(
    NodeSelectorRequirement,
    key=NAMES,
    operator=st.sampled_from(["In", "NotIn"]),
    values=st.lists(NAMES, min_size=1, max_size=2),
)
AFFINITIES = st.builds(
    NodeAffinity,
    required=st.builds(
        NodeSelector,
        node_selector_terms=st.lists(
            st.builds(
                NodeSelectorTerm, match_expressions=st.lists(REQUIREMENTS, min_size=1, max_size=2)
            ),
            min_size=1,
            max_size=2,
        ),
    ),
)
SPREADS = st.lists(
    st.builds(
        TopologySpreadConstraint,
        max_skew=st.integers(1, 5),
        topology_key=NAMES,
        when_unsatisfiable=st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]),
        min_domains=st.none() | st.integers(1, 3),
    ),
    max_size=2,
    unique_by=lambda constraint: constraint.topology_key,
).map(tuple)
ARGS: dict[str, st.SearchStrategy[Any]] = {
    "DefaultPreemption": st.builds(
        DefaultPreemptionArgs,
        min_candidate_nodes_percentage=PERCENT,
        min_candidate_nodes_absolute=st.integers(1, 9),
    ),
    "DynamicResources": st.builds(
        DynamicResourcesArgs,
        filter_timeout_seconds=SECONDS,
        # Added as integers: a sum of floats need not be the float nearest to any nanosecond.
        binding_timeout_seconds=NANOSECONDS.map(lambda ns: (10**9 + ns) / 10**9),
    ),
    "InterPodAffinity": st.builds(InterPodAffinityArgs, hard_pod_affinity_weight=PERCENT),
    "NodeAffinity": st.builds(NodeAffinityArgs, added_affinity=st.none() | AFFINITIES),
    "NodeResourcesFit": st.builds(NodeResourcesFitArgs, scoring_strategy=STRATEGIES),
    "PodTopologySpread": st.builds(
        PodTopologySpreadArgs, default_constraints=SPREADS, defaulting_type=st.just("List")
    ),
    "VolumeBinding": st.builds(VolumeBindingArgs, bind_timeout_seconds=st.integers(0, 10**6)),
    "OutOfTree": st.dictionaries(TEXTS, TEXTS | st.integers() | st.booleans() | st.none()),
}
PLUGIN_SETS = st.builds(
    PluginSet,
    enabled=st.lists(
        st.builds(Plugin, name=NAMES, weight=st.integers(0, 2**31 - 1)), max_size=3
    ).map(tuple),
    disabled=st.lists(
        st.builds(Plugin, name=st.sampled_from(["*", "NodeName", "NodeResourcesFit"])), max_size=2
    ).map(tuple),
)


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    configured = draw(st.lists(st.sampled_from(sorted(ARGS)), unique=True))
    return Profile(
        scheduler_name=draw(TEXTS.filter(bool)),
        percentage_of_nodes_to_score=draw(st.none() | PERCENT),
        plugins=draw(
            st.builds(Plugins, multi_point=PLUGIN_SETS, score=PLUGIN_SETS, filter=PLUGIN_SETS)
        ),
        plugin_config=tuple(PluginConfig(name=name, args=draw(ARGS[name])) for name in configured),
    )


EXTENDERS = st.builds(
    Extender,
    url_prefix=TEXTS.filter(bool),
    filter_verb=TEXTS,
    prioritize_verb=TEXTS,
    weight=st.integers(1, 2**63 - 1),
    enable_https=st.booleans(),
    tls_config=st.none() | st.builds(ExtenderTLSConfig, insecure=st.booleans(), ca_file=TEXTS),
    http_timeout_seconds=SECONDS,
    managed_resources=st.lists(
        st.builds(ExtenderManagedResource, name=NAMES.map(lambda name: f"example.com/{name}")),
        max_size=1,
    ).map(tuple),
    ignorable=st.booleans(),
)
CONFIGURATIONS = st.builds(
    SchedulerConfiguration,
    parallelism=st.integers(1, 2**31 - 1),
    leader_election=st.builds(
        LeaderElection,
        leader_elect=st.just(False),
        lease_duration_seconds=SECONDS,
        resource_name=TEXTS,
    ),
    client_connection=st.builds(
        ClientConnection,
        kubeconfig=TEXTS,
        qps=st.floats(allow_nan=False, allow_infinity=False),
        burst=st.integers(0, 2**31 - 1),
    ),
    enable_profiling=st.booleans(),
    percentage_of_nodes_to_score=PERCENT,
    pod_initial_backoff_seconds=st.integers(1, 5),
    pod_max_backoff_seconds=st.integers(5, 2**63 - 1),
    profiles=st.lists(
        profiles(), min_size=1, max_size=2, unique_by=lambda profile: profile.scheduler_name
    ).map(tuple),
    extenders=st.lists(EXTENDERS, max_size=1).map(tuple),
    delay_cache_until_active=st.booleans(),
)


@settings(max_examples=40, deadline=None)
@given(CONFIGURATIONS)
def test_what_is_written_is_read_back_as_it_was(config: SchedulerConfiguration) -> None:
    assert find_problems(config) == []
    text = dump_config(config)
    read = load_config(text)
    assert read == config
    assert dump_config(read) == text
