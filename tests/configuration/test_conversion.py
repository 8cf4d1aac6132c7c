from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ksched.configuration import SchedulerConfiguration, load_config, plugin_args
from ksched.configuration.model import Profile
from ksched.configuration.plugin_args import (
    NodeResourcesFitArgs,
    PodTopologySpreadArgs,
    RequestedToCapacityRatioParam,
    ResourceSpec,
    ScoringStrategy,
    UtilizationShapePoint,
)
from ksched.configuration.plugins import Plugin, PluginSet
from ksched.errors import ConfigError


def load(version: str, body: str) -> tuple[SchedulerConfiguration, list[str]]:
    warnings: list[str] = []
    head = f"apiVersion: kubescheduler.config.k8s.io/{version}\nkind: KubeSchedulerConfiguration\n"
    return load_config(head + body, warnings.append), warnings


def profile(version: str, body: str) -> tuple[Profile, list[str]]:
    """The profile of a file whose only profile is ``body`` (flow style)."""
    config, warnings = load(version, f"profiles: [{{{body}}}]")
    return config.profiles[0], warnings


# Enhancement proposal 1819 as published.
KEP_1819 = """
extenders:
- urlPrefix: "http://127.0.0.1:12345/api/scheduler"
  filterVerb: "filter"
  preemptVerb: "preempt"
  prioritizeVerb: "prioritize"
  bindVerb: "bind"
  enableHttps: false
  nodeCacheCapable: false
  managedResources:
  - name: opaqueFooResource
    ignoredByScheduler: true
  ignorable: false
"""


def test_the_sample_of_the_extender_proposal_loads_as_it_stands() -> None:
    config, warnings = load("v1beta1", KEP_1819)
    (extender,) = config.extenders
    assert extender.url_prefix == "http://127.0.0.1:12345/api/scheduler"
    assert (extender.prioritize_verb, extender.weight) == ("prioritize", 1)
    assert extender.managed_resources[0].ignored_by_scheduler
    assert warnings == [
        "extenders[0].weight: not set, using 1",
        "extenders[0].managedResources[0].name: 'opaqueFooResource' has no domain, "
        "extended resources are named like example.com/foo",
    ]


def test_v1beta3_says_the_same_as_v1() -> None:
    body = "profiles: [{pluginConfig: [{name: VolumeBinding, args: {bindTimeoutSeconds: 5}}]}]"
    assert load("v1beta3", body) == load("v1", body)


def test_arguments_may_carry_the_old_version() -> None:
    args = "apiVersion: kubescheduler.config.k8s.io/v1beta3, kind: InterPodAffinityArgs"
    body = f"pluginConfig: [{{name: InterPodAffinity, args: {{{args}, hardPodAffinityWeight: 7}}}}]"
    found, warnings = profile("v1beta3", body)
    assert plugin_args(found, "InterPodAffinity").hard_pod_affinity_weight == 7  # type: ignore[union-attr]
    assert warnings == []


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_old_files_keep_the_default_weights_of_their_version(version: str) -> None:
    config, _ = load(version, "")
    weights = {p.name: p.weight for p in config.profiles[0].plugins.multi_point.enabled}
    default = SchedulerConfiguration().profiles[0].plugins.multi_point.enabled
    changed = {"TaintToleration": 1, "NodeAffinity": 1, "InterPodAffinity": 1}
    assert weights == {**{p.name: p.weight for p in default}, **changed}
    assert list(weights) == [p.name for p in default]


@pytest.mark.parametrize("field", ["healthzBindAddress", "metricsBindAddress"])
def test_addresses_in_the_file_have_no_effect_any_more(field: str) -> None:
    config, warnings = load("v1beta2", f"{field}: 0.0.0.0:10251\nparallelism: 3")
    assert config.parallelism == 3
    assert warnings == [f"{field}: has no effect, use --bind-address and --secure-port"]


def test_bin_packing_of_v1beta1_becomes_a_strategy_with_its_weight() -> None:
    found, warnings = profile(
        "v1beta1",
        "plugins: {score: {disabled: [{name: NodeResourcesLeastAllocated}],"
        " enabled: [{name: NodeResourcesMostAllocated, weight: 5}]}},"
        "pluginConfig: [{name: NodeResourcesMostAllocated, args:"
        " {resources: [{name: example.com/gpu, weight: 3}]}},"
        " {name: NodeResourcesFit, args: {ignoredResources: [example.com/x]}}]",
    )
    assert found.plugins.score == PluginSet(enabled=(Plugin(name="NodeResourcesFit", weight=5),))
    assert plugin_args(found, "NodeResourcesFit") == NodeResourcesFitArgs(
        ignored_resources=("example.com/x",),
        scoring_strategy=ScoringStrategy(
            type="MostAllocated", resources=(ResourceSpec(name="example.com/gpu", weight=3),)
        ),
    )
    assert warnings == []


def test_a_second_strategy_replaces_the_default_one_with_a_warning() -> None:
    found, warnings = profile(
        "v1beta1", "plugins: {score: {enabled: [{name: NodeResourcesMostAllocated}]}}"
    )
    args = plugin_args(found, "NodeResourcesFit")
    assert isinstance(args, NodeResourcesFitArgs)
    assert args.scoring_strategy.type == "MostAllocated"
    assert warnings == [
        "profiles[0].plugins.score.enabled: NodeResourcesMostAllocated replaces the default "
        "NodeResourcesLeastAllocated"
    ]


def test_a_shape_of_v1beta1_becomes_a_strategy() -> None:
    found, warnings = profile(
        "v1beta1",
        "plugins: {score: {disabled: [{name: '*'}], enabled: [{name: RequestedToCapacityRatio}]}},"
        "pluginConfig: [{name: RequestedToCapacityRatio, args:"
        " {shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]}}]",
    )
    assert warnings == []
    assert found.plugins.score.enabled == (Plugin(name="NodeResourcesFit"),)
    args = plugin_args(found, "NodeResourcesFit")
    assert isinstance(args, NodeResourcesFitArgs)
    assert args.scoring_strategy == ScoringStrategy(
        type="RequestedToCapacityRatio",
        requested_to_capacity_ratio=RequestedToCapacityRatioParam(
            shape=(
                UtilizationShapePoint(utilization=0, score=0),
                UtilizationShapePoint(utilization=100, score=10),
            )
        ),
    )


def test_disabling_the_default_strategy_disables_the_score() -> None:
    found, _ = profile(
        "v1beta1", "plugins: {score: {disabled: [{name: NodeResourcesLeastAllocated}]}}"
    )
    assert found.plugins.score == PluginSet(disabled=(Plugin(name="NodeResourcesFit"),))


def test_arguments_of_the_default_strategy_are_kept() -> None:
    found, _ = profile(
        "v1beta1",
        "pluginConfig: [{name: NodeResourcesLeastAllocated, args:"
        " {resources: [{name: cpu, weight: 2}]}}]",
    )
    args = plugin_args(found, "NodeResourcesFit")
    assert isinstance(args, NodeResourcesFitArgs)
    assert args.scoring_strategy.type == "LeastAllocated"
    assert args.scoring_strategy.resources == (ResourceSpec(name="cpu", weight=2),)


def test_an_annotation_plugin_is_dropped_with_a_warning() -> None:
    found, warnings = profile(
        "v1beta1", "plugins: {score: {enabled: [{name: NodePreferAvoidPods, weight: 10000}]}}"
    )
    assert found.plugins.score == PluginSet()
    assert warnings == [
        "profiles[0].plugins.score.enabled[0]: NodePreferAvoidPods is ignored: "
        "nodes are no longer annotated with the pods they avoid; use taints"
    ]


def test_preemption_of_v1beta1_can_be_disabled() -> None:
    config, _ = load("v1beta1", "disablePreemption: true")
    disabled = config.profiles[0].plugins.post_filter.disabled
    assert disabled == (Plugin(name="DefaultPreemption"),)


def test_spread_constraints_of_v1beta1_imply_the_list_type() -> None:
    args = (
        "defaultConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]"
    )
    body = f"pluginConfig: [{{name: PodTopologySpread, args: {{{args}}}}}]"
    found, _ = profile("v1beta1", body)
    converted = plugin_args(found, "PodTopologySpread")
    assert isinstance(converted, PodTopologySpreadArgs)
    assert converted.defaulting_type == "List"


def test_timeouts_of_the_policy_api_are_nanoseconds() -> None:
    config, _ = load("v1beta1", "extenders: [{urlPrefix: 'http://x', httpTimeout: 2000000000}]")
    assert config.extenders[0].http_timeout_seconds == 2


def test_legacy_plugins_may_be_enabled() -> None:
    found, warnings = profile(
        "v1beta2", "plugins: {score: {enabled: [{name: SelectorSpread, weight: 1}]}}"
    )
    assert found.plugins.score.enabled == (Plugin(name="SelectorSpread", weight=1),)
    assert warnings == []


@pytest.mark.parametrize(
    ("body", "problems"),
    [
        pytest.param(
            "profiles: [{plugins: {filter: {enabled: [{name: NodeLabel}]}, score: {enabled: "
            "[{name: NodeResourcesLeastAllocated}, {name: NodeResourcesMostAllocated}]}}}]",
            [
                'profiles[0].plugins.filter.enabled[0]: Invalid value: "NodeLabel": '
                "was removed in v1beta2, use addedAffinity of NodeAffinity",
                "profiles[0].plugins.score.enabled: NodeResourcesFit has one scoring strategy, "
                "got NodeResourcesLeastAllocated and NodeResourcesMostAllocated",
            ],
            id="what cannot be converted",
        ),
        pytest.param(
            "profiles: [{plugins: {filter: {enabled: [{name: ServiceAffinity}]}}}]\nparallelism: 0",
            [
                'profiles[0].plugins.filter.enabled[0]: Invalid value: "ServiceAffinity": '
                "was removed in v1beta2, use inter-pod affinity",
                "parallelism: Invalid value: 0: should be an integer value greater than zero",
            ],
            id="with the problems of the rest",
        ),
        pytest.param(
            "profiles: [{plugins: [], pluginConfig: 3}, 7]\nextenders: no\nalgorithmSource: {}",
            [
                "profiles[0].plugins: Invalid value: []: must be an object",
                "profiles[0].pluginConfig: Invalid value: 3: must be a list",
                "profiles[1]: Invalid value: 7: must be an object",
                "extenders: Invalid value: false: must be a list",
                'unknown field "algorithmSource"',
            ],
            id="the wrong shape",
        ),
        pytest.param(
            "profiles: [{plugins: 4}]",
            ["profiles[0].plugins: Invalid value: 4: must be an object"],
            id="plugins that are none",
        ),
    ],
)
def test_old_files_with_problems(body: str, problems: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load("v1beta1", body)
    assert list(caught.value.problems) == problems


SCALARS: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        True,
        0,
        "x",
        "*",
        "NodeResourcesFit",
        "NodeResourcesLeastAllocated",
        "NodeResourcesMostAllocated",
        "RequestedToCapacityRatio",
        "NodeLabel",
        "NodePreferAvoidPods",
        "PodTopologySpread",
    ]
)
KEYS = st.sampled_from(
    [
        "profiles",
        "plugins",
        "score",
        "filter",
        "postFilter",
        "multiPoint",
        "enabled",
        "disabled",
        "unreserve",
        "name",
        "weight",
        "pluginConfig",
        "args",
        "shape",
        "resources",
        "extenders",
        "httpTimeout",
        "enableHttps",
        "disablePreemption",
        "apiVersion",
        "kind",
        "defaultConstraints",
        "scoringStrategy",
    ]
)
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3)
)
NAMED = st.fixed_dictionaries({"name": SCALARS}, optional={"args": ANYTHING, "weight": ANYTHING})
POINT = st.fixed_dictionaries(
    {}, optional={"enabled": st.lists(NAMED | SCALARS, max_size=2), "disabled": ANYTHING}
)
PROFILE = st.fixed_dictionaries(
    {},
    optional={
        "plugins": st.dictionaries(KEYS, POINT | ANYTHING, max_size=3),
        "pluginConfig": st.lists(NAMED | SCALARS, max_size=3),
    },
)
FILES = st.fixed_dictionaries(
    {}, optional={"profiles": st.lists(PROFILE, max_size=2), "disablePreemption": SCALARS}
) | st.dictionaries(KEYS, ANYTHING, max_size=4)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(["v1", "v1beta1", "v1beta2", "v1beta3"]), FILES)
def test_any_file_is_converted_or_refused_with_reasons(version: str, content: Any) -> None:
    try:
        load(version, yaml.safe_dump(content) if content else "")
    except ConfigError as error:
        problems = error.problems
    else:
        return
    assert problems
    assert all(problems)
