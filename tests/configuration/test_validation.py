"""Configurations that can be read but not used; each rule of kube-scheduler's validation.

Covers ``ksched.configuration.args_validation`` and ``ksched.configuration.field_errors`` too.
"""

from __future__ import annotations

import pytest

from ksched.configuration import SchedulerConfiguration, load_config, validate
from ksched.configuration.model import PluginConfig, Profile
from ksched.configuration.plugin_args import NodeResourcesFitArgs
from ksched.errors import ConfigError

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def problems_of(body: str) -> list[str]:
    try:
        load_config(HEAD + body, lambda warning: None)
    except ConfigError as error:
        return list(error.problems)
    return []


def args_problems(plugin: str, args: str) -> list[str]:
    body = f"profiles: [{{pluginConfig: [{{name: {plugin}, args: {{{args}}}}}]}}]"
    prefix = "profiles[0].pluginConfig[0].args."
    found = problems_of(body)
    assert all(problem.startswith(prefix) for problem in found)
    return [problem.removeprefix(prefix) for problem in found]


def test_the_defaults_are_valid() -> None:
    validate(SchedulerConfiguration())


@pytest.mark.parametrize(
    ("body", "problems"),
    [
        pytest.param(
            "clientConnection: {burst: -1}",
            ["clientConnection.burst: Invalid value: -1: must be non-negative"],
            id="burst",
        ),
        pytest.param(
            "leaderElection: {leaseDuration: -1s, renewDeadline: -2s, retryPeriod: -3s}",
            [
                'leaderElection.leaseDuration: Invalid value: "-1s": must be greater than zero',
                'leaderElection.renewDeadline: Invalid value: "-2s": must be greater than zero',
                'leaderElection.retryPeriod: Invalid value: "-3s": must be greater than zero',
            ],
            id="negative election timing",
        ),
        pytest.param(
            "leaderElection: {leaseDuration: 10s}",
            [
                'leaderElection.leaseDuration: Invalid value: "10s": '
                "must be greater than `RenewDeadline`"
            ],
            id="lease not longer than the deadline",
        ),
        pytest.param(
            "leaderElection: {retryPeriod: 9s}",
            [
                'leaderElection.renewDeadline: Invalid value: "10s": '
                "must be greater than retryPeriod*JitterFactor (1.2)"
            ],
            id="no second attempt within the deadline",
        ),
        pytest.param(
            "leaderElection: {resourceLock: etcd}",
            [
                'leaderElection.resourceLock: Unsupported value: "etcd": supported values: '
                '"leases", "endpoints", "configmaps", "endpointsleases", "configmapsleases"'
            ],
            id="unknown lock",
        ),
        pytest.param("leaderElection: {resourceLock: endpointsleases}", [], id="an old lock"),
        pytest.param(
            "leaderElection: {leaderElect: false, leaseDuration: 1s, resourceLock: etcd}",
            [],
            id="election is off",
        ),
        pytest.param(
            "percentageOfNodesToScore: -1\nprofiles: [{percentageOfNodesToScore: 101}]",
            [
                "profiles[0].percentageOfNodesToScore: Invalid value: 101: "
                "not in valid range [0-100]",
                "percentageOfNodesToScore: Invalid value: -1: not in valid range [0-100]",
            ],
            id="percentages",
        ),
        pytest.param(
            "profiles: [{schedulerName: a}, {}, {schedulerName: a}]",
            [
                "profiles[1].schedulerName: Required value",
                'profiles[2].schedulerName: Duplicate value: "a"',
            ],
            id="names of profiles",
        ),
        pytest.param(
            "profiles: [{pluginConfig: [{name: A}, {name: A}]}]",
            ['profiles[0].pluginConfig[1]: Duplicate value: "A"'],
            id="arguments twice",
        ),
        pytest.param(
            "profiles: [{plugins: {filter: {enabled: [{name: EBSLimits}, {name: CinderLimits}]}},"
            "pluginConfig: [{name: CinderLimits}]}]",
            [
                'profiles[0].plugins.filter.enabled[1]: Invalid value: "CinderLimits": was invalid '
                'in version "v1" (KubeSchedulerConfiguration is version '
                '"kubescheduler.config.k8s.io/v1")',
                'profiles[0].pluginConfig[0]: Invalid value: "CinderLimits": was invalid in '
                'version "v1" (KubeSchedulerConfiguration is version '
                '"kubescheduler.config.k8s.io/v1")',
            ],
            id="removed plugins",
        ),
        pytest.param(
            "profiles: [{schedulerName: a, plugins: {queueSort: {enabled: [{name: X}, {name: Z}]}},"
            "pluginConfig: [{name: X, args: {a: 1}}]}, {schedulerName: b, plugins: {queueSort: "
            "{enabled: [{name: X}]}}, pluginConfig: [{name: X, args: {a: 2}}]}]",
            [
                "profiles[0].plugins.queueSort.enabled: Invalid value: 2: "
                "only one queue sort plugin can be enabled",
                "profiles[1].plugins.queueSort: Invalid value: "
                '{"enabled":[{"name":"X","weight":0}]}: must be the same for all profiles',
                'profiles[1].pluginConfig[0].args: Invalid value: {"a":2}: '
                "queueSort must be the same for all profiles",
            ],
            id="queue sorts",
        ),
        pytest.param(
            "extenders: [{urlPrefix: a, prioritizeVerb: p, bindVerb: b, managedResources: "
            "[{name: example.com/a}, {name: cpu}, {name: kubernetes.io/x}, {name: a/b/c}]},"
            "{urlPrefix: b, bindVerb: b, managedResources: [{name: example.com/a}, {name: foo}]}]",
            [
                "extenders[0].weight: Invalid value: 0: must have a positive weight applied to it",
                'extenders[0].managedResources[1].name: Invalid value: "cpu": '
                "is an invalid extended resource name",
                'extenders[0].managedResources[2].name: Invalid value: "kubernetes.io/x": '
                "is an invalid extended resource name",
                'extenders[0].managedResources[3].name: Invalid value: "a/b/c": a qualified name '
                "must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
                "with an alphanumeric character with an optional DNS subdomain prefix and '/' "
                "(e.g. 'example.com/MyName')",
                'extenders[1].managedResources[0].name: Invalid value: "example.com/a": '
                "duplicate extender managed resource name",
                'extenders: Invalid value: "found 2 extenders implementing bind": '
                "only one extender can implement bind",
            ],
            id="extenders",
        ),
    ],
)
def test_rules_of_the_configuration(body: str, problems: list[str]) -> None:
    assert problems_of(body) == problems


NOT_A_NAME = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character"
)
RATIO = "scoringStrategy: {type: RequestedToCapacityRatio"


@pytest.mark.parametrize(
    ("plugin", "args", "problems"),
    [
        (
            "DefaultPreemption",
            "minCandidateNodesPercentage: 101, minCandidateNodesAbsolute: -1",
            [
                "minCandidateNodesPercentage: Invalid value: 101: not in valid range [0, 100]",
                "minCandidateNodesAbsolute: Invalid value: -1: not in valid range [0, inf)",
            ],
        ),
        (
            "DefaultPreemption",
            "minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 0",
            [
                "minCandidateNodesPercentage: Invalid value: 0: "
                "cannot be zero at the same time as minCandidateNodesAbsolute",
                "minCandidateNodesAbsolute: Invalid value: 0: "
                "cannot be zero at the same time as minCandidateNodesPercentage",
            ],
        ),
        (
            "GangScheduling",
            "protectAfterSeconds: -1, maxProtectedPercentage: 101",
            [
                "protectAfterSeconds: Invalid value: -1: not in valid range [0, inf)",
                "maxProtectedPercentage: Invalid value: 101: not in valid range [0, 100]",
            ],
        ),
        (
            "Coscheduling",
            "podGroupBackoffSeconds: -2, protectAfterSeconds: -1",
            [
                "podGroupBackoffSeconds: Invalid value: -2: not in valid range [0, inf)",
                "protectAfterSeconds: Invalid value: -1: not in valid range [0, inf)",
            ],
        ),
        (
            "InterPodAffinity",
            "hardPodAffinityWeight: 101",
            ["hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]"],
        ),
        (
            "NodeAffinity",
            "addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "
            "[{matchExpressions: [{key: a, operator: Like}]}]}, "
            "preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: "
            "{matchFields: [{key: metadata.name, operator: Exists}]}}]}",
            [
                "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]"
                '.matchExpressions[0].operator: Unsupported value: "Like": supported values: '
                '"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"',
                "addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference"
                '.matchFields[0].operator: Unsupported value: "Exists": supported values: '
                '"In", "NotIn"',
            ],
        ),
        (
            "NodeResourcesFit",
            "ignoredResources: ['-'], ignoredResourceGroups: [a/b], scoringStrategy: {type: Best, "
            "resources: [{name: cpu, weight: 101}], requestedToCapacityRatio: {}}",
            [
                f'ignoredResources[0]: Invalid value: "-": {NOT_A_NAME}',
                'ignoredResourceGroups[0]: Invalid value: "a/b": '
                "resource group name can't contain '/'",
                'scoringStrategy.type: Unsupported value: "Best": supported values: '
                '"LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"',
                "scoringStrategy.resources[0].weight: Invalid value: 101: "
                "resource weight of cpu not in valid range (0, 100]",
                "scoringStrategy.requestedToCapacityRatio: Forbidden: "
                "must be nil when type is not RequestedToCapacityRatio",
            ],
        ),
        (
            "NodeResourcesFit",
            f"{RATIO}}}",
            [
                "scoringStrategy.requestedToCapacityRatio: Required value: "
                "must be specified when type is RequestedToCapacityRatio"
            ],
        ),
        (
            "NodeResourcesFit",
            f"{RATIO}, requestedToCapacityRatio: {{shape: []}}}}",
            [
                "scoringStrategy.requestedToCapacityRatio.shape: Required value: "
                "at least one point must be specified"
            ],
        ),
        (
            "NodeResourcesFit",
            f"{RATIO}, requestedToCapacityRatio: {{shape: [{{utilization: 50, score: 11}}, "
            "{utilization: 50, score: 1}, {utilization: -1, score: 0}]}}",
            [
                "scoringStrategy.requestedToCapacityRatio.shape[1].utilization: Invalid value: 50: "
                "values must be sorted in increasing order",
                "scoringStrategy.requestedToCapacityRatio.shape[0].score: Invalid value: 11: "
                "not in valid range [0, 10]",
                "scoringStrategy.requestedToCapacityRatio.shape[2].utilization: Invalid value: -1: "
                "not in valid range [0, 100]",
            ],
        ),
        (
            "NodeResourcesBalancedAllocation",
            "resources: [{name: cpu, weight: 2}, {name: cpu}]",
            [
                "resources[0].weight: Invalid value: 2: must be 1",
                'resources[1].name: Duplicate value: "cpu"',
            ],
        ),
        (
            "PodTopologySpread",
            "defaultConstraints: [{maxSkew: 0, labelSelector: {}}, "
            "{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: Maybe}, "
            "{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: Maybe}]",
            [
                'defaultingType: Invalid value: "System": when .defaultConstraints are not empty',
                "defaultConstraints[0].maxSkew: Invalid value: 0: not in valid range (0, inf)",
                "defaultConstraints[0].topologyKey: Required value: can not be empty",
                "defaultConstraints[0].whenUnsatisfiable: Required value: can not be empty",
                "defaultConstraints[0].labelSelector: Forbidden: "
                "constraint must not define a selector, as they deduced for each pod",
                'defaultConstraints[1].whenUnsatisfiable: Unsupported value: "Maybe": '
                'supported values: "DoNotSchedule", "ScheduleAnyway"',
                'defaultConstraints[2].whenUnsatisfiable: Unsupported value: "Maybe": '
                'supported values: "DoNotSchedule", "ScheduleAnyway"',
                'defaultConstraints[2]: Duplicate value: "{zone, Maybe}"',
            ],
        ),
        (
            "PodTopologySpread",
            "defaultingType: Random",
            ['defaultingType: Unsupported value: "Random": supported values: "System", "List"'],
        ),
        (
            "VolumeBinding",
            "bindTimeoutSeconds: -1, shape: [{utilization: 0, score: 10}]",
            [
                "bindTimeoutSeconds: Invalid value: -1: "
                "invalid BindTimeoutSeconds, should not be a negative value",
                'shape: Invalid value: [{"utilization":0,"score":10}]: unexpected field `shape`, '
                "remove it or turn on the feature gate StorageCapacityScoring",
            ],
        ),
        (
            "DynamicResources",
            "filterTimeout: -1s, bindingTimeout: 500ms",
            [
                'filterTimeout: Invalid value: "-1s": must be zero or positive',
                'bindingTimeout: Invalid value: "500ms": must be at least 1 second',
            ],
        ),
    ],
)
def test_rules_of_plugin_arguments(plugin: str, args: str, problems: list[str]) -> None:
    assert args_problems(plugin, args) == problems


def test_arguments_built_in_python_must_be_of_the_plugins_own_type() -> None:
    config = PluginConfig(name="VolumeBinding", args=NodeResourcesFitArgs())
    profile = Profile(scheduler_name="a", plugin_config=(config,))
    with pytest.raises(ConfigError, match=r"profiles\[0\].pluginConfig\[0\].args: .* has to match"):
        validate(SchedulerConfiguration(profiles=(profile,)))
