"""When another configuration is named, and which are tried. Covers ``ksched.shadow.variants``."""

from __future__ import annotations

from ksched.configuration import load_config
from ksched.configuration.model import SchedulerConfiguration
from ksched.framework.runtime.registry import available
from ksched.shadow.suspicion import LEAST_EXPLAINED, MAX_TRIED, Suspicion
from ksched.shadow.variants import DEFAULTS, LIVE, with_variants

PACKING = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {multiPoint: {disabled: [{name: ImageLocality}]}}
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
"""


def labels(configuration, live=None):
    _, variants = with_variants(configuration, live)
    return [one.label for one in variants["default-scheduler"]]


def test_every_plugin_that_chooses_nodes_may_be_missing():
    found = labels(SchedulerConfiguration())
    assert "TaintToleration disabled" in found
    assert "PodTopologySpread not scoring" in found
    assert "NodeResourcesFit with scoringStrategy MostAllocated" in found
    assert "PodTopologySpread with defaultingType List" in found
    assert "InterPodAffinity with ignorePreferredTermsOfExistingPods true" in found
    assert "DefaultBinder disabled" not in found
    assert DEFAULTS not in found


def test_the_defaults_are_tried_beside_another_candidate():
    found = labels(load_config(PACKING))
    assert found[0] == DEFAULTS
    assert "ImageLocality enabled" in found
    assert "NodeResourcesFit with scoringStrategy LeastAllocated" in found


def test_a_configuration_that_is_given_is_not_guessed():
    assert labels(load_config(PACKING), SchedulerConfiguration()) == [LIVE]


def test_variants_have_names_of_their_own_and_differ_from_the_profile():
    configuration, variants = with_variants(SchedulerConfiguration(), None)
    names = [one.scheduler_name for one in configuration.profiles]
    assert len(set(names)) == len(names)
    (base, *others) = configuration.profiles
    for one in others:
        assert (one.plugins, one.plugin_config) != (base.plugins, base.plugin_config)
    assert set(variants) == {"default-scheduler"}
    assert "NodeResourcesFit" in available()


NODES = 50


def test_a_variant_that_makes_every_decision_is_named():
    suspicion = Suspicion(["a", "b"])
    for number in range(LEAST_EXPLAINED):
        assert not suspicion.named
        suspicion.differ({0: 2, 1: 2} if number else {0: 2}, NODES, is_lag=False)
        assert suspicion.wants_control
        suspicion.agree()
        suspicion.control({0: 1, 1: 1}, 1, NODES)
    assert suspicion.labels == ["a"]


def test_a_variant_that_is_wrong_where_nothing_differs_is_not_named():
    suspicion = Suspicion(["a"])
    suspicion.agree(200)
    for _ in range(2 * LEAST_EXPLAINED):
        suspicion.differ({0: 1}, NODES, is_lag=True)
        suspicion.control({}, 1, NODES)
    assert not suspicion.named


def test_a_variant_that_hardly_distinguishes_nodes_is_not_named_for_what_lag_explains():
    """Without scores of resources, many nodes are best: each explains every choice."""
    suspicion = Suspicion(["not scoring"])
    for _ in range(30):
        suspicion.agree(18)
        suspicion.differ({0: 40}, NODES, is_lag=True)
        suspicion.control({0: 40}, 3, NODES)
    assert not suspicion.named


def test_variants_that_cannot_be_told_apart_are_named_together():
    suspicion = Suspicion(["a", "b", "c"])
    for _ in range(LEAST_EXPLAINED):
        suspicion.differ({0: 1, 1: 20, 2: 1}, NODES, is_lag=False)
    assert suspicion.labels == ["a", "c"]


def test_work_is_bounded():
    suspicion = Suspicion(["a"])
    for _ in range(MAX_TRIED):
        assert suspicion.wants_more
        suspicion.differ({}, NODES, is_lag=True)
        suspicion.control({}, 1, NODES)
    assert not suspicion.wants_more
    assert not suspicion.wants_control
