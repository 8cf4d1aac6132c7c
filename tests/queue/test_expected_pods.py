"""Pods that others must leave room for: nominated, and at least as important."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from ksched.cache.dry_run_table import amounts_of
from ksched.cache.pod_info import PodInfo, TemplateRegistry
from ksched.cache.resource_axis import ResourceAxis
from ksched.queue import nominator
from ksched.queue.nominator import Nominator
from ksched.testing import make_pod

TEMPLATES = TemplateRegistry(ResourceAxis())
NODES = ("n1", "n2", "n3")


def pod(name: str, priority: int, cpu: str = "1") -> PodInfo:
    return TEMPLATES.pod_info(make_pod(name).priority(priority).req(cpu=cpu).obj())


def names(expected: object) -> dict[str, list[str]]:
    assert isinstance(expected, Mapping)
    return {node: sorted(pod.name for pod in pods.pods) for node, pods in expected.items()}


def test_those_at_least_as_important_are_expected() -> None:
    nominated = Nominator()
    for name, priority, node in (("a", 5, "n1"), ("b", 10, "n1"), ("c", 1, "n2")):
        nominated.add(pod(name, priority), node)

    assert names(nominated.expected_with(pod("x", 5))) == {"n1": ["a", "b"]}
    assert names(nominated.expected_with(pod("x", 0))) == {"n1": ["a", "b"], "n2": ["c"]}
    assert names(nominated.expected_with(pod("x", 11))) == {}


def test_a_pod_does_not_expect_itself() -> None:
    nominated = Nominator()
    a, b = pod("a", 5), pod("b", 5)
    nominated.add(a, "n1")
    assert names(nominated.expected_with(a)) == {}
    assert nominated.expected_on("n1", a) is None

    nominated.add(b, "n1")
    assert names(nominated.expected_with(a)) == {"n1": ["b"]}
    assert names(nominated.expected_with(pod("x", 5))) == {"n1": ["a", "b"]}


def test_amounts_add_up() -> None:
    nominated = Nominator()
    a, b = pod("a", 5, "1"), pod("b", 5, "500m")
    nominated.add(a, "n1")
    nominated.add(b, "n1")
    expected = nominated.expected_on("n1", pod("x", 0))
    assert expected is not None
    for line, amount in amounts_of(a):
        assert expected.amounts[line] == amount + dict(amounts_of(b))[line]


@pytest.mark.parametrize("kept", [1, 16])
@pytest.mark.parametrize("seed", range(10))
def test_what_is_kept_agrees_with_looking_at_everybody(seed: int, kept: int) -> None:
    rng = random.Random(seed)
    nominated = Nominator()
    known: dict[str, tuple[PodInfo, str]] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nominator, "NOMINATED_PRIORITIES_CACHED", kept)
        for _ in range(200):
            name = f"p{rng.randrange(12)}"
            if rng.random() < 0.6:
                info, node = pod(name, rng.randrange(4)), rng.choice(NODES)
                nominated.add(info, node)
                known[info.uid] = (info, node)
            else:
                nominated.delete(f"uid:default/{name}")
                known.pop(f"uid:default/{name}", None)
            asking = pod(f"p{rng.randrange(14)}", rng.randrange(5))
            wanted: dict[str, list[str]] = {}
            for info, node in known.values():
                if info.priority >= asking.priority and info.uid != asking.uid:
                    wanted.setdefault(node, []).append(info.name)
            assert names(nominated.expected_with(asking)) == {
                node: sorted(found) for node, found in wanted.items()
            }
            for node in NODES:
                here = nominated.expected_on(node, asking)
                found = [] if here is None else sorted(one.name for one in here.pods)
                assert found == sorted(wanted.get(node, []))
