"""Broken files and the exact list of what is wrong with them.

Covers ``ksched.configuration.core_types`` and ``ksched.configuration.strict_model`` too.
"""

from __future__ import annotations

import logging

import pytest

from ksched.configuration import load_config
from ksched.errors import ConfigError

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def problems_of(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_config(text)
    return list(caught.value.problems)


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        pytest.param("", ["apiVersion: Required value", "kind: Required value"], id="empty"),
        pytest.param(
            "[]", ["the file must be a mapping with apiVersion and kind"], id="not a mapping"
        ),
        pytest.param(
            "apiVersion: v1\nkind: Pod\n",
            [
                'apiVersion: Unsupported value: "v1": supported values: '
                '"kubescheduler.config.k8s.io/v1", "kubescheduler.config.k8s.io/v1beta3", '
                '"kubescheduler.config.k8s.io/v1beta2", "kubescheduler.config.k8s.io/v1beta1"',
                'kind: Unsupported value: "Pod": supported values: "KubeSchedulerConfiguration"',
            ],
            id="something else",
        ),
        pytest.param(
            HEAD + "parallelism: 1\nparallelism: 2\n",
            ['line 4: key "parallelism" already set in map'],
            id="a key twice",
        ),
    ],
)
def test_a_file_that_is_no_configuration(text: str, problems: list[str]) -> None:
    assert problems_of(text) == problems


@pytest.mark.parametrize(
    ("body", "problems"),
    [
        pytest.param(
            "paralelism: 3\nprofiles: [{plugin: {}, plugins: {score: {enable: []}}}]",
            [
                'unknown field "profiles[0].plugins.score.enable"',
                'unknown field "profiles[0].plugin"',
                'unknown field "paralelism"',
            ],
            id="unknown fields at every depth",
        ),
        pytest.param(
            "pod_max_backoff_seconds: 3",
            ['unknown field "pod_max_backoff_seconds"'],
            id="Python's spelling is not the file's",
        ),
        pytest.param(
            "parallelism: '3'\nleaderElection: {leaseDuration: 15, leaderElect: 'true'}\n"
            "clientConnection: {qps: yes, burst: 1.5}\nprofiles: {}\n"
            "extenders: [{httpTimeout: 5 s, managedResources: [example.com/a]}]",
            [
                'parallelism: Invalid value: "3": must be an integer',
                'leaderElection.leaderElect: Invalid value: "true": must be a boolean',
                'leaderElection.leaseDuration: Invalid value: 15: must be a duration such as "15s"',
                "clientConnection.qps: Invalid value: true: must be a number",
                "clientConnection.burst: Invalid value: 1.5: must be an integer",
                "profiles: Invalid value: {}: must be a list",
                "extenders[0].httpTimeout: Invalid value: \"5 s\": invalid duration '5 s'",
                'extenders[0].managedResources[0]: Invalid value: "example.com/a": '
                "must be an object",
                "extenders[0].urlPrefix: Required value",
            ],
            id="types",
        ),
        pytest.param(
            "parallelism: 2147483648\npodMaxBackoffSeconds: 9223372036854775808",
            [
                "parallelism: Invalid value: 2147483648: must fit in int32",
                "podMaxBackoffSeconds: Invalid value: 9223372036854775808: must fit in int64",
            ],
            id="numbers that do not fit",
        ),
        pytest.param(
            "parallelism: x\nparallelsim: 1\npodInitialBackoffSeconds: 0\npodMaxBackoffSeconds: -1",
            [
                'parallelism: Invalid value: "x": must be an integer',
                'unknown field "parallelsim"',
                "podInitialBackoffSeconds: Invalid value: 0: must be greater than 0",
                "podMaxBackoffSeconds: Invalid value: -1: "
                "must be greater than or equal to PodInitialBackoffSeconds",
            ],
            id="what cannot be decoded does not hide the rest",
        ),
        pytest.param(
            "leaderElection: {leaseDuration: 3, renewDeadline: 20s}",
            ['leaderElection.leaseDuration: Invalid value: 3: must be a duration such as "15s"'],
            id="no guess about a field that cannot be decoded",
        ),
        pytest.param(
            "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: "
            "{type: 3, resource: []}}}, {name: NodeAffinity, args: {addedAffinity: {required: 1}}},"
            "{name: PodTopologySpread, args: {defaultingType: List, "
            "defaultConstraints: [{maxSkew: '1', key: a, topologyKey: b}]}},"
            "{name: VolumeBinding, args: {kind: NodeAffinityArgs}}, {name: DefaultPreemption, "
            "args: [1]}, {name: Mine, args: {any: thing}}]}]",
            [
                "profiles[0].pluginConfig[0].args.scoringStrategy.type: Invalid value: 3: "
                "must be a string",
                'unknown field "profiles[0].pluginConfig[0].args.scoringStrategy.resource"',
                'unknown field "profiles[0].pluginConfig[1].args.addedAffinity.required"',
                'unknown field "profiles[0].pluginConfig[2].args.defaultConstraints[0].key"',
                "profiles[0].pluginConfig[2].args.defaultConstraints[0].maxSkew: "
                'Invalid value: "1": must be an integer',
                "profiles[0].pluginConfig[3].args: args for plugin VolumeBinding were not of type "
                "VolumeBindingArgs.kubescheduler.config.k8s.io, got "
                "NodeAffinityArgs.kubescheduler.config.k8s.io",
                "profiles[0].pluginConfig[4].args: Invalid value: [1]: must be an object",
                "profiles[0].pluginConfig[2].args.defaultConstraints[0].whenUnsatisfiable: "
                "Required value: can not be empty",
            ],
            id="arguments",
        ),
        pytest.param(
            "profiles: [{pluginConfig: [{name: VolumeBinding, args: "
            "{apiVersion: kubescheduler.config.k8s.io/v1beta3}}]}]",
            [
                "profiles[0].pluginConfig[0].args: args for plugin VolumeBinding: apiVersion "
                "kubescheduler.config.k8s.io/v1beta3, wanted kubescheduler.config.k8s.io/v1"
            ],
            id="arguments of another version",
        ),
        pytest.param(
            "extenders: [{urlPrefix: 'http://x', tlsConfig: {caData: '%%%'}}]",
            ['extenders[0].tlsConfig.caData: Invalid value: "%%%": must be base64'],
            id="binary data",
        ),
    ],
)
def test_a_file_that_cannot_be_decoded_names_every_reason(body: str, problems: list[str]) -> None:
    assert problems_of(HEAD + body) == problems


def test_a_duplicate_key_hides_nothing_else() -> None:
    body = "parallelism: 1\nparallelism: 0\npodInitialBackoffSeconds: x\nprofiles: [{nam: a}]"
    assert problems_of(HEAD + body) == [
        'line 4: key "parallelism" already set in map',
        'podInitialBackoffSeconds: Invalid value: "x": must be an integer',
        'unknown field "profiles[0].nam"',
        "parallelism: Invalid value: 0: should be an integer value greater than zero",
    ]


def test_a_duplicate_key_in_another_kind_of_file_is_told_too() -> None:
    problems = problems_of("kind: Pod\nkind: Node\n")
    assert [problem.split(":")[0] for problem in problems] == ["line 2", "apiVersion", "kind"]


UNKNOWN_PLUGINS = """
profiles:
- plugins:
    multiPoint: {enabled: [{name: Mine}, {name: Typo}, {name: DynamicResources}]}
- plugins:
    filter: {enabled: [{name: NodeName}, {name: Nope}], disabled: [{name: WhoCares}]}
    score: {enabled: [{name: CinderLimits}, {}, 7]}
    bind: 3
- nonsense
"""


def test_plugins_that_do_not_exist_are_named_by_their_place_in_the_file() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(HEAD + UNKNOWN_PLUGINS, available={"NodeName", "Mine"})
    missing = [problem for problem in caught.value.problems if "exist" in problem]
    assert missing == [
        'profiles[0].plugins.multiPoint.enabled[1].name: plugin "Typo" does not exist',
        'profiles[1].plugins.filter.enabled[1].name: plugin "Nope" does not exist',
    ]
    assert len(caught.value.problems) > len(missing)
    assert not any("exist" in problem for problem in problems_of(HEAD + UNKNOWN_PLUGINS))


def test_the_error_says_one_problem_per_line() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(HEAD + "parallelism: 0\npercentageOfNodesToScore: 101")
    assert str(caught.value) == (
        "parallelism: Invalid value: 0: should be an integer value greater than zero\n"
        "percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]"
    )


def test_warnings_go_to_the_log_unless_somebody_listens(caplog: pytest.LogCaptureFixture) -> None:
    text = HEAD + "extenders: [{urlPrefix: 'http://x', managedResources: [{name: foo}]}]"
    heard: list[str] = []
    with caplog.at_level(logging.WARNING):
        load_config(text, heard.append)
        assert not caplog.records
        load_config(text)
    assert [record.message for record in caplog.records] == ["configuration warning"]
    assert len(heard) == 1
