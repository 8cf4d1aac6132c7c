"""The parts of the conformance kit, and plugins that it finds nothing wrong with.

What the checks find is in ``test_planted_faults``.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import pytest

from ksched.cache.pod_info import TemplateRegistry
from ksched.cache.resource_axis import ResourceAxis
from ksched.errors import ConfigError
from ksched.framework import SUCCESS, CycleState, Handle, NodeInfo, PodInfo, Status, unschedulable
from ksched.framework.plugins.in_tree import IN_TREE
from ksched.testing import check_plugin, make_pod
from ksched.testing.conformance import cancellation, kit
from ksched.testing.conformance.random_cluster import DISTINCT, random_cluster
from ksched.testing.conformance.report import CheckResult, Finding, Report
from ksched.testing.conformance.subject import Subject
from ksched.testing.conformance.target import find_target, read_args
from ksched.testing.conformance.traces import traces
from ksched.testing.conformance.trial import run
from ksched.testing.conformance.vocabulary import Vocabulary, vocabulary_of

TIER = "example.com/tier"


class Tier:
    """Pods of a tier go to its nodes; what is reserved is given back."""

    name = "Tier"

    def __init__(self, args: Any, handle: Handle) -> None:
        self.strict = bool((args or {}).get("strict"))
        self.reserved: dict[str, str] = {}

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        wanted, given = pod.labels.get(TIER), node.labels.get(TIER)
        return SUCCESS if wanted in (None, given) else unschedulable("node(s) were of another tier")

    async def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        self.reserved[pod.uid] = node_name
        await asyncio.sleep(0.5)
        return SUCCESS

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self.reserved.pop(pod.uid, None)

    async def start(self, handle: Handle) -> None:
        self.handle = handle
        handle.tasks.start_soon(asyncio.Event().wait)

    async def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        self.handle.tasks.start_soon(asyncio.Event().wait)
        for _ in range(3):
            await asyncio.sleep(1)
        return SUCCESS


def test_a_plugin_that_keeps_its_contract_is_clean() -> None:
    report = check_plugin(Tier, args={"strict": True}, nodes=12)
    assert report.points == ["filter", "reserve", "permit"]
    by_name = {check.name: check for check in report.checks}
    assert all(by_name[name].cases for name in ("contract", "purity", "determinism", "life"))
    # Three pods, cancelled at the await of reserve and at the three of permit.
    assert by_name["cancellation"].cases == 3 * (1 + 3)
    assert [cost.nodes for cost in report.costs] == [100, 5000]
    assert "no findings" in report.to_text()
    assert not [note for check in report.checks for note in check.notes]


FEW = ("NodeAffinity", "NodeResourcesFit", "InterPodAffinity", "DefaultPreemption", "VolumeBinding")
"""A plugin of every form; ``make explore`` checks all, which takes minutes."""


@pytest.mark.parametrize("name", IN_TREE if os.environ.get("KSCHED_EXAMPLES") == "explore" else FEW)
def test_in_tree_plugins_are_clean(name: str) -> None:
    """All checks but the cost, which an own bench follows."""
    subject = Subject(find_target(name), 1, 10)
    for check in kit.CHECKS:
        result = check(subject)
        assert not result.findings, f"{name}: {result.name}: {result.findings}"


def test_the_same_seed_makes_the_same_cluster() -> None:
    words = Vocabulary((TIER,), ("gold",))
    one, same, other = (random_cluster(seed, 5, 8, words) for seed in (1, 1, 2))
    assert [node.to_dict() for node in one.nodes] == [node.to_dict() for node in same.nodes]
    assert [pod.to_dict() for pod in one.pending] == [pod.to_dict() for pod in same.pending]
    assert [pod.to_dict() for pod in one.pending] != [pod.to_dict() for pod in other.pending]
    labels = [node.obj().metadata.labels for node in one.nodes]
    assert any(found.get(TIER) == "gold" for found in labels)


def test_a_large_cluster_has_names_of_its_own() -> None:
    content = random_cluster(0, DISTINCT + 50, 0)
    names = [node.obj().metadata.name for node in content.nodes]
    hosts = [node.obj().metadata.labels["kubernetes.io/hostname"] for node in content.nodes]
    assert names == hosts
    assert len(set(names)) == DISTINCT + 50
    assert len({pod.obj().metadata.uid for pod in content.running}) == 2 * (DISTINCT + 50)


def test_words_of_a_plugins_module_become_labels() -> None:
    words = vocabulary_of(Tier(None, None))  # type: ignore[arg-type]
    assert TIER in words.keys
    assert TIER in words.prefixed
    assert "node(s) were of another tier" not in words.keys
    assert "true" in words.values


class Account:
    def __init__(self) -> None:
        self.pods: dict[str, str] = {}
        self.by_node = {"n1": 3, "n2": 1}
        self.waiting: set[str] = set()


def test_traces_are_found_by_pod_and_by_node() -> None:
    info = TemplateRegistry(ResourceAxis()).pod_info(make_pod("web").obj())
    account = Account()
    assert traces(account, info, "n1") == {"self.by_node[n1]": 3}
    account.pods[info.uid], account.by_node["n1"] = "x", 4
    account.waiting.add("default/web")
    assert traces(account, info, "n1") == {
        "self.by_node[n1]": 4,
        "self.pods[uid:default/web]": "x",
        "self.waiting[default/web]": True,
    }


def test_tasks_that_do_not_end_do_not_keep_the_loop() -> None:
    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                continue

    async def main() -> str:
        loop = asyncio.get_running_loop()
        loop.set_debug(False)
        kept.append(loop.create_task(stubborn()))
        await asyncio.sleep(0)
        return "done"

    kept: list[asyncio.Task[None]] = []
    assert run(main()) == "done"


def test_an_await_is_cancelled_as_a_scheduler_would() -> None:
    class Two:
        timeout_seconds = 5.0

        async def permit(self) -> str:
            await asyncio.sleep(1)
            await asyncio.sleep(1)
            return "answer"

        async def never(self) -> None:
            await asyncio.Event().wait()

    async def outcomes() -> list[cancellation.Outcome | None]:
        return [
            *[await cancellation._cancelled_at(Two(), "permit", (), at) for at in (1, 2, 3)],
            await cancellation._cancelled_at(Two(), "never", (), 2),
        ]

    first, second, third, never = run(outcomes())
    assert (first, second) == (cancellation.Outcome(1, True), cancellation.Outcome(2, True))
    assert third is not None
    assert not third.was_cancelled
    assert never == cancellation.Outcome(1, True)


# -- targets and reports ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("named", "complaint"),
    [
        ("NoSuchPlugin", "no such plugin"),
        ("no_such_module:Plugin", "cannot be imported: ModuleNotFoundError"),
        ("json:NoSuchClass", "cannot be imported: AttributeError"),
        ("json:dumps", "has no name"),
        (type("Fit", (), {"name": "NodeResourcesFit"}), "is that of an in-tree plugin"),
    ],
)
def test_what_is_no_plugin_is_refused(named: object, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        find_target(named)


def test_arguments_come_alone_or_in_a_configuration(tmp_path: Any) -> None:
    alone, whole, wrong = (tmp_path / name for name in ("args.yaml", "config.yaml", "list.yaml"))
    alone.write_text("strict: true\n")
    plugin_config = [{"name": "Other", "args": {}}, {"name": "Tier", "args": {"strict": False}}]
    whole.write_text(
        json.dumps(
            {"kind": "KubeSchedulerConfiguration", "profiles": [{"pluginConfig": plugin_config}]}
        )
    )
    wrong.write_text("[1]")
    assert read_args(str(alone), "Tier") == {"strict": True}
    assert read_args(str(whole), "Tier") == {"strict": False}
    assert read_args(str(whole), "Unknown") is None
    with pytest.raises(ConfigError, match="wanted a mapping"):
        read_args(str(wrong), "Tier")
    with pytest.raises(ConfigError, match=r"absent\.yaml"):
        read_args(str(tmp_path / "absent.yaml"), "Tier")


def test_a_report_is_text_and_json() -> None:
    finding = Finding("purity", "impure", "Tier", "filter", "It did.", "Do not.", "default/p", "n1")
    check = CheckResult("purity", "changes nothing", cases=2)
    check.add(finding)
    check.add(Finding("purity", "impure", "Tier", "filter", "Again.", "Do not."))
    report = Report(
        "Tier", "tier:Tier", ["filter"], 7, 12, [check], "ksched check-plugin tier:Tier"
    )
    assert report.to_text().splitlines() == [
        "Tier (tier:Tier): filter",
        "seed 7, 12 nodes",
        "",
        "CHECK   CASES  FINDINGS",
        "purity      2         1  changes nothing",
        "",
        '1. impure: plugin "Tier", filter, pod "default/p", node "n1"',
        "   It did.",
        "   what to do: Do not.",
        "   reproduce: ksched check-plugin tier:Tier",
        "",
        "1 finding",
    ]
    data = json.loads(report.to_json())
    assert (data["clean"], data["seed"], data["plugin"]) == (False, 7, "Tier")
    assert data["checks"][0]["findings"][0]["node"] == "n1"
