"""Covers ``ksched.configuration.expansion``."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ksched.configuration import (
    SchedulerConfiguration,
    expand_profile,
    ignore_extender_resources,
    plugin_args,
    queue_sort_problems,
)
from ksched.configuration.defaults import DEFAULT_MULTI_POINT, DEFAULT_PLUGINS
from ksched.configuration.extenders import Extender, ExtenderManagedResource
from ksched.configuration.extension_points import ExtensionPoint
from ksched.configuration.merging import merge_plugins
from ksched.configuration.model import Profile
from ksched.configuration.plugin_args import NodeResourcesFitArgs
from ksched.configuration.plugins import Plugin, Plugins, PluginSet
from ksched.errors import ConfigError

# Which default plugin implements what in v1.36, and three plugins of somebody else.
POINTS: dict[str, str] = {
    "SchedulingGates": "preEnqueue",
    "PrioritySort": "queueSort",
    "NodeUnschedulable": "filter",
    "NodeName": "filter",
    "TaintToleration": "filter preScore score",
    "NodeAffinity": "preFilter filter preScore score",
    "NodePorts": "preFilter filter",
    "NodeResourcesFit": "preFilter filter preScore score placementScore",
    "VolumeRestrictions": "preFilter filter",
    "NodeVolumeLimits": "preFilter filter",
    "VolumeBinding": "preFilter filter preScore score reserve preBind",
    "VolumeZone": "preFilter filter",
    "PodTopologySpread": "preFilter filter preScore score",
    "InterPodAffinity": "preFilter filter preScore score",
    "DynamicResources": "preEnqueue preFilter filter postFilter score reserve preBind",
    "DefaultPreemption": "postFilter preEnqueue",
    "NodeResourcesBalancedAllocation": "preScore score",
    "ImageLocality": "score",
    "DefaultBinder": "bind",
    "NodeDeclaredFeatures": "preFilter filter",
    "Mine": "filter score",
    "Yours": "filter score bind",
    "OtherSort": "queueSort",
    "Generator1": "placementGenerate",
    "Generator2": "placementGenerate",
}


def implements(name: str, point: ExtensionPoint) -> bool:
    return point.key in POINTS[name].split()


def plugin_set(enabled: str = "", disabled: str = "") -> PluginSet:
    """``A B=5``: A, and B with weight 5."""
    on = (item.partition("=") for item in enabled.split())
    return PluginSet(
        enabled=tuple(Plugin(name=name, weight=int(weight or 0)) for name, _, weight in on),
        disabled=tuple(Plugin(name=name) for name in disabled.split()),
    )


def expand(available: Any = POINTS, **points: Any) -> dict[str, str]:
    """Expand a profile and write each point as ``A B=5``."""
    profile = Profile(scheduler_name="s", plugins=Plugins(**points))
    return {
        point: " ".join(f"{name}={weight}" if weight else name for name, weight in plugins)
        for point, plugins in expand_profile(profile, available, implements).items()
    }


def test_the_default_profile_has_upstreams_plugins_in_upstreams_order() -> None:
    assert expand() == {
        "queueSort": "PrioritySort",
        "preEnqueue": "SchedulingGates DynamicResources DefaultPreemption",
        "preFilter": "NodeAffinity NodePorts NodeResourcesFit VolumeRestrictions NodeVolumeLimits "
        "VolumeBinding VolumeZone PodTopologySpread InterPodAffinity DynamicResources "
        "NodeDeclaredFeatures",
        "filter": "NodeUnschedulable NodeName TaintToleration NodeAffinity NodePorts "
        "NodeResourcesFit VolumeRestrictions NodeVolumeLimits VolumeBinding VolumeZone "
        "PodTopologySpread InterPodAffinity DynamicResources NodeDeclaredFeatures",
        "postFilter": "DynamicResources DefaultPreemption",
        "preScore": "TaintToleration NodeAffinity NodeResourcesFit VolumeBinding "
        "PodTopologySpread InterPodAffinity NodeResourcesBalancedAllocation",
        "score": "TaintToleration=3 NodeAffinity=2 NodeResourcesFit=1 VolumeBinding=1 "
        "PodTopologySpread=2 InterPodAffinity=2 DynamicResources=2 "
        "NodeResourcesBalancedAllocation=1 ImageLocality=1",
        "reserve": "VolumeBinding DynamicResources",
        "permit": "",
        "preBind": "VolumeBinding DynamicResources",
        "bind": "DefaultBinder",
        "postBind": "",
        "placementGenerate": "",
        "placementScore": "NodeResourcesFit=1",
    }


NO_DEFAULTS = plugin_set("NodeName NodeAffinity=2 ImageLocality PrioritySort DefaultBinder", "*")


@pytest.mark.parametrize(
    ("points", "point", "plugins"),
    [
        pytest.param(
            {"multi_point": plugin_set("Mine=4")},
            "score",
            "TaintToleration=3 NodeAffinity=2 NodeResourcesFit=1 VolumeBinding=1 "
            "PodTopologySpread=2 InterPodAffinity=2 DynamicResources=2 "
            "NodeResourcesBalancedAllocation=1 ImageLocality=1 Mine=4",
            id="a new multiPoint plugin comes last",
        ),
        pytest.param(
            {"multi_point": plugin_set("TaintToleration=7")},
            "preScore",
            "TaintToleration NodeAffinity NodeResourcesFit VolumeBinding PodTopologySpread "
            "InterPodAffinity NodeResourcesBalancedAllocation",
            id="re-weighting a default keeps its place",
        ),
        pytest.param(
            {"multi_point": plugin_set(disabled="*")}, "filter", "", id="star drops all defaults"
        ),
        pytest.param(
            {"multi_point": NO_DEFAULTS}, "filter", "NodeName NodeAffinity", id="only what is named"
        ),
        pytest.param(
            {"multi_point": NO_DEFAULTS, "score": plugin_set(disabled="*")},
            "score",
            "",
            id="star at a point skips the expansion there",
        ),
        pytest.param(
            {"multi_point": NO_DEFAULTS, "filter": plugin_set(disabled="NodeName")},
            "filter",
            "NodeAffinity",
            id="disabled at one point only",
        ),
        pytest.param(
            {"multi_point": NO_DEFAULTS, "score": plugin_set("Mine=3 ImageLocality=9")},
            "score",
            "ImageLocality=9 NodeAffinity=2 Mine=3",
            id="overrides, then multiPoint, then the rest",
        ),
        pytest.param(
            {"multi_point": NO_DEFAULTS, "score": plugin_set("NodeAffinity")},
            "score",
            "NodeAffinity=1 ImageLocality=1",
            id="a point's own weight wins, and 0 is 1",
        ),
        pytest.param(
            {"multi_point": NO_DEFAULTS, "filter": plugin_set("Mine", "*")},
            "filter",
            "Mine",
            id="star keeps what the point itself enables",
        ),
        pytest.param(
            {"bind": plugin_set("Yours", "DefaultBinder")}, "bind", "Yours", id="another binder"
        ),
        pytest.param(
            {"multi_point": plugin_set("NodeName", "NodeName")},
            "filter",
            "NodeUnschedulable TaintToleration NodeAffinity NodePorts NodeResourcesFit "
            "VolumeRestrictions NodeVolumeLimits VolumeBinding VolumeZone PodTopologySpread "
            "InterPodAffinity DynamicResources NodeDeclaredFeatures NodeName",
            id="disabled and enabled moves to the end",
        ),
    ],
)
def test_plugins_of_a_point(points: dict[str, PluginSet], point: str, plugins: str) -> None:
    # A star may take the queue sort and the binder away, which is another test's business.
    needed = {"queue_sort": plugin_set("PrioritySort"), "bind": plugin_set("DefaultBinder")}
    assert expand(**{**needed, **points})[point] == plugins


def test_default_plugins_that_ksched_lacks_are_left_out() -> None:
    available = {name: None for name in POINTS if name != "DynamicResources"}
    assert expand(available)["postFilter"] == "DefaultPreemption"
    written_out = Plugins(multi_point=merge_plugins(Plugins()).multi_point)
    profile = Profile(plugins=written_out)
    expanded = expand_profile(profile, available, implements)
    assert [name for name, _ in expanded["postFilter"]] == ["DefaultPreemption"]


@pytest.mark.parametrize(
    ("points", "problems"),
    [
        pytest.param(
            {"multi_point": plugin_set("Nobody")},
            ['PreFilterPlugin "Nobody" does not exist'],
            id="unknown in multiPoint",
        ),
        pytest.param(
            {"score": plugin_set("Nobody=2"), "filter": plugin_set("NodeNames")},
            [
                'FilterPlugin "NodeNames" does not exist',
                'ScorePlugin "Nobody" does not exist',
            ],
            id="unknown at points, all of them",
        ),
        pytest.param(
            {"score": plugin_set("NodeName")},
            ['plugin "NodeName" does not extend ScorePlugin plugin'],
            id="does not implement the point",
        ),
        pytest.param(
            {"filter": plugin_set("Mine Mine")},
            ['plugin "Mine" already registered as "FilterPlugin"'],
            id="twice at a point",
        ),
        pytest.param(
            {"multi_point": plugin_set("Mine Mine")},
            [
                'plugin "Mine" already registered as "FilterPlugin"',
                'plugin "Mine" already registered as "ScorePlugin"',
            ],
            id="twice in multiPoint",
        ),
        pytest.param(
            {"queue_sort": plugin_set("OtherSort")},
            ['only one queue sort plugin required for profile with scheduler name "s", but got 2'],
            id="two queue sorts",
        ),
        pytest.param(
            {"multi_point": plugin_set(disabled="*")},
            [
                "only one queue sort plugin required for profile with scheduler name "
                '"s", but got 0',
                'at least one bind plugin is needed for profile with scheduler name "s"',
            ],
            id="nothing at all",
        ),
        pytest.param(
            {"multi_point": plugin_set("Generator1 Generator2")},
            [
                "at most one placement generate plugin is allowed for profile with scheduler "
                'name "s"'
            ],
            id="two placement generators",
        ),
    ],
)
def test_a_profile_that_cannot_be_built_names_every_reason(
    points: dict[str, PluginSet], problems: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        expand(**points)
    assert list(caught.value.problems) == problems


def test_weights_that_could_overflow_are_refused() -> None:
    heavy = Plugin.model_construct(name="Mine", weight=2**60)
    profile = Profile(scheduler_name="s").model_copy(
        update={
            "plugins": DEFAULT_PLUGINS.model_copy(update={"score": PluginSet(enabled=(heavy,))})
        }
    )
    with pytest.raises(ConfigError, match="total score of Score plugins could overflow"):
        expand_profile(profile, POINTS, implements)


def sorts(*names: str) -> tuple[SchedulerConfiguration, dict[str, Any]]:
    profiles = [
        Profile(
            scheduler_name=f"p{index}",
            plugins=Plugins(queue_sort=plugin_set(name, "PrioritySort")),
        )
        for index, name in enumerate(names)
    ]
    expanded = {p.scheduler_name: expand_profile(p, POINTS, implements) for p in profiles}
    return SchedulerConfiguration(profiles=tuple(profiles)), expanded


def test_profiles_must_sort_the_one_queue_alike() -> None:
    assert queue_sort_problems(*sorts("PrioritySort", "PrioritySort")) == []
    assert queue_sort_problems(*sorts("PrioritySort", "OtherSort")) == [
        'different queue sort plugins for profile "p1": "OtherSort", first: "PrioritySort"'
    ]


def test_resources_that_extenders_manage_replace_the_ignored_ones() -> None:
    resources = (
        ExtenderManagedResource(name="example.com/a", ignored_by_scheduler=True),
        ExtenderManagedResource(name="example.com/b"),
    )
    config = SchedulerConfiguration(extenders=(Extender(managed_resources=resources),))
    args = plugin_args(ignore_extender_resources(config).profiles[0], "NodeResourcesFit")
    assert args == NodeResourcesFitArgs(ignored_resources=("example.com/a",))
    assert plugin_args(config.profiles[0], "NodeResourcesFit") == NodeResourcesFitArgs()
    assert ignore_extender_resources(SchedulerConfiguration()) == SchedulerConfiguration()


NAMES = st.sampled_from([*(name for name, _ in DEFAULT_MULTI_POINT), "Mine", "*"])
SETS = st.builds(
    PluginSet,
    enabled=st.lists(
        st.builds(Plugin, name=NAMES.filter(lambda name: name != "*"), weight=st.integers(0, 9)),
        unique_by=lambda plugin: plugin.name,
        max_size=5,
    ).map(tuple),
    disabled=st.lists(st.builds(Plugin, name=NAMES), max_size=3).map(tuple),
)


@given(st.builds(Plugins, multi_point=SETS, score=SETS))
def test_merging_twice_is_merging_once(custom: Plugins) -> None:
    once = merge_plugins(custom)
    assert merge_plugins(once) == once
