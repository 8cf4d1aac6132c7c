from __future__ import annotations

import json

import pytest

from bench import workloads as real
from ksched import benchmark, cli
from ksched.testing.gang_workloads import GANGS


@pytest.mark.parametrize("workload", benchmark.WORKLOADS)
async def test_every_pod_of_a_workload_is_placed(workload: str) -> None:
    figures = await benchmark.measure(workload, nodes=40, pods=30)
    assert (figures.workload, figures.nodes, figures.pods) == (workload, 40, 30)
    assert figures.placed == figures.wanted == (0 if workload == "gangshopeless" else 30)
    assert (figures.longest_ms > 0) == (workload in GANGS)
    # A plan of evictions is tried.
    assert (figures.undone > 0) == ("evict" in workload)
    assert figures.rows_per_decision > 0
    assert min(figures.first_micros, figures.last_micros, figures.decisions_per_second) > 0


@pytest.mark.parametrize("workload", real.WORKLOADS)
@pytest.mark.parametrize("number", [0, 1, 2, 3, 4, 321])
def test_workloads_are_those_of_the_benchmark_on_a_real_control_plane(
    workload: str, number: int
) -> None:
    ours = benchmark.make_workload_pod(number, workload).to_dict()
    theirs = real.pod(number, workload)
    for field in ("affinity", "topologySpreadConstraints", "resourceClaims"):
        assert ours["spec"].get(field) == theirs["spec"].get(field)
    assert ours["metadata"]["labels"] == theirs["metadata"]["labels"]
    [our_container], [their_container] = ours["spec"]["containers"], theirs["spec"]["containers"]
    assert our_container["resources"] == their_container["resources"]


async def test_devices_are_used_up() -> None:
    """Ten of each node for claims, two for shared claims of five pods."""
    assert (await benchmark.measure("claims", nodes=2, pods=25)).placed == 20
    assert (await benchmark.measure("extended", nodes=2, pods=25)).placed == 20
    assert (await benchmark.measure("sharedclaims", nodes=2, pods=25)).placed == 20


@pytest.mark.parametrize("number", [0, 1, 2, 3, 11])
def test_nodes_are_those_of_the_benchmark_on_a_real_control_plane(number: int) -> None:
    ours, theirs = benchmark.make_workload_node(number), real.node(number)
    labels = theirs["metadata"]["labels"]
    assert ours.metadata.labels == {
        key: value for key, value in labels.items() if not key.startswith("kubernetes.io/")
    } | {benchmark.HOSTNAME: ours.metadata.name}
    for resource in ("cpu", "memory", "pods"):
        assert ours.status.allocatable[resource] == theirs["status"]["allocatable"][resource]
    assert len(ours.status.images or ()) == len(theirs["status"]["images"])


def test_the_command_prints_a_line_per_workload(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.execute(["bench", "basic", "mixed", "--nodes", "20", "--pods", "10"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["workload", "basic", "mixed"]


def test_the_command_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.execute(["bench", "basic", "--nodes", "20", "--pods", "10", "--json"]) == 0
    [figures] = json.loads(capsys.readouterr().out)
    assert (figures["workload"], figures["placed"]) == ("basic", 10)


def test_a_cluster_that_is_too_small_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.execute(["bench", "basic", "--nodes", "1", "--pods", "120"]) == 0
    assert "not all pods found a node: basic" in capsys.readouterr().err


def test_nonsense_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.execute(["bench", "chaos", "--nodes", "0"]) == 2
    [unknown, nodes] = capsys.readouterr().err.splitlines()
    assert unknown.startswith("error: chaos: no such workload, wanted basic,")
    assert nodes == "error: --nodes: must be at least 1, got 0"
