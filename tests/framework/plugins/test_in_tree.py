"""The in-tree registry.

Covers ``ksched.framework.plugins.dynamic_resources`` too.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from ksched.api.devices import DeviceClass
from ksched.api.objects import ObjectMeta
from ksched.api.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from ksched.cache.listers import Listers
from ksched.clock import LoopClock
from ksched.configuration.plugin_args import ARGS
from ksched.framework import Action, ClusterEvent, Handle, PodInfo, QueueingHint, Resource
from ksched.framework.plugins.group_membership import GroupMembership
from ksched.framework.plugins.in_tree import IN_TREE
from ksched.testing.builders import make_node, make_pod
from ksched.testing.plugin_runner import PluginBench

HANDLE = cast(Handle, SimpleNamespace(listers=Listers(), clock=LoopClock(), profile_name="p"))
PLUGINS = {name: factory(None, HANDLE) for name, factory in IN_TREE.items()}
OF_GROUPS = {name for name, plugin in PLUGINS.items() if isinstance(plugin, GroupMembership)}


@pytest.mark.parametrize("name", IN_TREE)
def test_a_plugin_is_registered_under_its_own_name(name: str) -> None:
    assert PLUGINS[name].name == name


@pytest.mark.parametrize("name", sorted(IN_TREE.keys() & ARGS.keys()))
def test_default_arguments_are_accepted(name: str) -> None:
    assert IN_TREE[name](ARGS[name](), HANDLE).name == name


@pytest.mark.parametrize("name", IN_TREE)
def test_a_plugin_that_rejects_says_what_may_change_its_mind(name: str) -> None:
    plugin = PLUGINS[name]
    rejects = any(hasattr(plugin, point) for point in ("pre_enqueue", "pre_filter", "filter_nodes"))

    assert hasattr(plugin, "events_to_register") is rejects


@pytest.mark.parametrize("name", IN_TREE)
def test_a_hint_shared_by_a_template_looks_at_nothing_else_of_the_pod(name: str) -> None:
    """What is asked once for ten thousand pods must not depend on which of them is asked."""
    pod = make_pod("p").host_port(80).req(cpu="1").pvc("c")
    waiting = PluginBench(nodes=[]).pod_info(pod.obj())
    only_template = cast(PodInfo, SimpleNamespace(template=waiting.template))
    node = make_node("n").obj()
    claim = PersistentVolumeClaim(metadata=ObjectMeta(name="c", namespace="default"))
    volume = PersistentVolume(metadata=ObjectMeta(name="v"))
    storage_class = StorageClass(metadata=ObjectMeta(name="s"))
    csi_node = CSINode(metadata=ObjectMeta(name="n"))
    driver = CSIDriver(metadata=ObjectMeta(name="d"))
    capacity = CSIStorageCapacity(metadata=ObjectMeta(name="c", namespace="default"))
    device_class = DeviceClass(metadata=ObjectMeta(name="c"))
    attachment = VolumeAttachment(metadata=ObjectMeta(name="a"))
    changes = {
        Resource.PERSISTENT_VOLUME_CLAIM: ((None, claim), (claim, claim)),
        Resource.PERSISTENT_VOLUME: ((None, volume), (volume, volume)),
        Resource.STORAGE_CLASS: ((None, storage_class),),
        Resource.CSI_NODE: ((csi_node, csi_node),),
        Resource.CSI_DRIVER: ((driver, driver),),
        Resource.CSI_STORAGE_CAPACITY: ((None, capacity), (capacity, capacity)),
        Resource.VOLUME_ATTACHMENT: ((attachment, None),),
        Resource.DEVICE_CLASS: ((None, device_class), (device_class, device_class)),
        Resource.NODE: ((None, node), (make_node("n").capacity(cpu="1").obj(), node)),
        Resource.POD: ((make_pod("gone").node("n").host_port(80).obj(), None),),
        Resource.ASSIGNED_POD: ((make_pod("x").node("n").obj(), make_pod("y").node("n").obj()),),
    }
    for registered in getattr(PLUGINS[name], "events_to_register", tuple)():
        if registered.hint is not None and not registered.per_pod:
            for old, new in changes[registered.event.resource]:
                assert registered.hint(only_template, old, new) in QueueingHint


@pytest.mark.parametrize("name", sorted(IN_TREE.keys() - {"DefaultPreemption"} - OF_GROUPS))
def test_changes_of_nodes_and_running_pods_are_judged_once_for_a_template(name: str) -> None:
    """They are frequent; DefaultPreemption names the pods, and groups wait together."""
    events = [
        ClusterEvent(resource, action)
        for resource in (Resource.NODE, Resource.ASSIGNED_POD)
        for action in Action
        if action not in (Action.ALL, Action.UPDATE)
    ]
    for registered in getattr(PLUGINS[name], "events_to_register", tuple)():
        if registered.hint is not None and registered.per_pod:
            assert not [one.label for one in events if registered.event.matches(one)]


def test_plugins_implement_the_extension_points_of_upstream() -> None:
    """Configurations name plugins point by point; each name must be good there (section 1.3)."""
    points = {
        "pre_enqueue": {"SchedulingGates"},
        "sort_key": {"PrioritySort"},
        "pre_filter": {
            "NodeAffinity",
            "NodePorts",
            "NodeResourcesFit",
            "PodTopologySpread",
            "InterPodAffinity",
            "NodeDeclaredFeatures",
            "VolumeRestrictions",
            "NodeVolumeLimits",
            "VolumeBinding",
            "VolumeZone",
            "DynamicResources",
        },
        "filter_nodes": {
            "NodeUnschedulable",
            "NodeName",
            "TaintToleration",
            "NodeAffinity",
            "NodePorts",
            "NodeResourcesFit",
            "PodTopologySpread",
            "InterPodAffinity",
            "NodeDeclaredFeatures",
            "VolumeRestrictions",
            "NodeVolumeLimits",
            "VolumeBinding",
            "VolumeZone",
        },
        "add_pod": {"PodTopologySpread", "InterPodAffinity", "VolumeRestrictions"},
        "remove_pod": {"PodTopologySpread", "InterPodAffinity", "VolumeRestrictions"},
        "pre_score": {
            "TaintToleration",
            "NodeAffinity",
            "NodeResourcesFit",
            "NodeResourcesBalancedAllocation",
            "PodTopologySpread",
            "InterPodAffinity",
            "SelectorSpread",
            "VolumeBinding",
        },
        "score_nodes": {
            "TaintToleration",
            "NodeAffinity",
            "NodeResourcesFit",
            "NodeResourcesBalancedAllocation",
            "ImageLocality",
            "PodTopologySpread",
            "InterPodAffinity",
            "SelectorSpread",
            "VolumeBinding",
        },
        "reserve": {"VolumeBinding"},
        "pre_bind": {"VolumeBinding"},
        "bind": {"DefaultBinder"},
    }
    for point, wanted in points.items():
        implemented = {name for name, plugin in PLUGINS.items() if hasattr(plugin, point)}
        assert wanted <= implemented, point
