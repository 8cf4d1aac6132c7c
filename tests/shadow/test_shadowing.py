"""The shadow beside a live ksched on the embedded API server, in virtual time.

Covers ``ksched.shadow.changes``, ``ksched.shadow.live_decisions``, ``ksched.shadow.comparing``,
``ksched.shadow.judging``, ``ksched.shadow.report`` and ``ksched.shadow.own_writes`` too.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from random import Random

import anyio
import pytest

from ksched.apiserver.faults import Fault, Faults, Rule, StreamEnd
from ksched.apiserver.in_process import InProcessTransport
from ksched.apiserver.status_errors import bad_request
from ksched.client.rest import ApiClient
from ksched.configuration import load_config
from ksched.configuration.extenders import Extender
from ksched.configuration.model import SchedulerConfiguration
from ksched.errors import ApiError
from ksched.explain.read_only import ReadOnlyTransport
from ksched.shadow.shadowing import DELAY_SECONDS, EXTENDERS, FAILED, IN_A_LIST, Shadow
from ksched.shadow.variants import DEFAULTS, LIVE
from ksched.testing import cluster, make_node, make_pod
from lab.parity.manifests import RandomManifests

MOST_ALLOCATED = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
"""


@asynccontextmanager
async def shadowing(c, configuration=None, faults=None, **options):
    """A shadow that has listed everything; in the end it has judged all that happened."""
    transport = InProcessTransport(c.server, "shadow", faults or Faults())
    client = ApiClient(ReadOnlyTransport(transport), c.clock)
    shadow = Shadow(client, configuration or SchedulerConfiguration(), c.clock, **options)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(shadow.run)
        while not shadow.is_following:
            await c.advance(0.1)
        yield shadow
        await c.advance(DELAY_SECONDS + 1)
        tasks.cancel_scope.cancel()


def outcomes(shadow):
    return shadow.summary().outcomes


async def test_a_bind_to_the_best_node_is_the_same_choice():
    small, large = make_node("small").capacity(cpu="2"), make_node("large").capacity(cpu="8")
    async with cluster([small, large]) as c, shadowing(c) as shadow:
        await c.create(make_pod("web").req(cpu="1"))
        await c.settle()
    assert c.bound("web") == "large"
    assert outcomes(shadow) == {"same_node": 1}
    verbs = {one.verb for one in c.requests if one.user == "shadow"}
    assert verbs <= {"get", "list", "watch"}


async def test_one_of_the_best_nodes_is_a_node_of_equal_score():
    async with cluster(3) as c, shadowing(c) as shadow:
        await c.create(make_pod("web"))
        await c.settle()
    assert outcomes(shadow) == {"equal_score": 1}


async def test_a_rejection_with_the_same_message_is_alike():
    async with cluster([make_node("n1").capacity(cpu="1")]) as c, shadowing(c) as shadow:
        await c.create(make_pod("big").req(cpu="2"))
        await c.settle()
    assert outcomes(shadow) == {"rejected_alike": 1}


@pytest.mark.parametrize("seed", range(12))
async def test_random_pods_are_decided_alike(seed):
    random = Random(seed)
    source = RandomManifests(random)
    async with cluster() as c:
        names = [f"n{number}" for number in range(random.randint(2, 6))]
        await c.create(*source.cluster(names))
        for number in range(random.randint(0, 8)):
            await c.create(source.running_pod(f"r{number}", names))
        async with shadowing(c) as shadow:
            for number in range(12):
                await c.create(source.pod(f"p{number}"))
                if random.random() < 0.5:
                    await c.settle()
            await c.settle()
            await c.advance(3)
        summary = shadow.summary()
    assert summary.decisions >= 12
    assert not summary.is_different, summary


# -- causes of differences ----------------------------------------------------------------------


async def test_a_choice_of_a_moment_ago_is_state_lag():
    """The live scheduler has not seen yet that the other node has become smaller."""
    nodes = [make_node("n1").capacity(cpu="8"), make_node("n2").capacity(cpu="4")]
    async with cluster(nodes, start=False) as c, shadowing(c) as shadow:
        await c.create(make_pod("web").req(cpu="1"))
        await c.advance(1)
        await c.patch_node("n1", {"status": {"allocatable": {"cpu": "2"}}}, subresource="status")
        await c.bind("web", "n1")
    (found,) = shadow.summary().differences
    assert (found.outcome.value, found.live, found.shadow) == ("state_lag", "n1", "n2")
    assert found.lag == "before the update of node n1"


async def test_the_same_choice_long_after_is_no_lag():
    nodes = [make_node("n1").capacity(cpu="8"), make_node("n2").capacity(cpu="4")]
    async with cluster(nodes, start=False) as c, shadowing(c) as shadow:
        await c.create(make_pod("web").req(cpu="1"))
        await c.patch_node("n1", {"status": {"allocatable": {"cpu": "2"}}}, subresource="status")
        await c.advance(10)
        await c.bind("web", "n1")
    (found,) = shadow.summary().differences
    assert (found.outcome.value, found.plugin) == ("different", "NodeResourcesFit")
    assert found.detail.startswith("n2 scores ")


async def test_pods_that_are_placed_but_not_bound_yet_count():
    """Decided one after the other, bound in the other order."""
    nodes = [make_node("n1").capacity(cpu="4"), make_node("n2").capacity(cpu="3")]
    async with cluster(nodes, start=False) as c, shadowing(c) as shadow:
        await c.create(make_pod("first").req(cpu="2"), make_pod("second").req(cpu="2"))
        await c.advance(1)
        await c.bind("second", "n2")
        await c.bind("first", "n1")
    (found,) = shadow.summary().differences
    assert (found.pod, found.outcome.value) == ("default/second", "state_lag")
    assert found.lag == "after the bind of default/first"
    assert outcomes(shadow) == {"same_node": 1, "state_lag": 1}


async def test_a_node_that_a_filter_rejects_is_a_difference_of_that_plugin():
    nodes = [make_node("n1").taint("team", "red"), make_node("n2")]
    async with cluster(nodes, start=False) as c, shadowing(c) as shadow:
        await c.create(make_pod("web"))
        await c.advance(10)
        await c.bind("web", "n1")
    (found,) = shadow.summary().differences
    assert (found.outcome.value, found.plugin) == ("different", "TaintToleration")
    assert "rejects n1: node(s) had untolerated taint" in found.detail


async def test_preemption_is_compared_and_its_nomination_explains_the_bind():
    high = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 10,
    }
    nodes = [make_node("n1").capacity(cpu="2"), make_node("n2").capacity(cpu="2")]
    async with cluster(nodes, kubelet=True) as c:
        await c.create(high, make_pod("low1").req(cpu="2").node("n1"))
        await c.create(make_pod("low2").req(cpu="1").node("n2"))
        async with shadowing(c) as shadow:
            await c.create(
                make_pod("p").req(cpu="2").merge({"spec": {"priorityClassName": "high"}})
            )
            await c.settle()
            await c.advance(15)
    assert c.bound("p") in ("n1", "n2")
    assert not shadow.summary().is_different, shadow.summary()
    assert outcomes(shadow)["rejected_alike"] == 1


@pytest.mark.parametrize("given", [False, True], ids=["guessed", "given"])
async def test_a_wrong_configuration_is_named_within_100_pods(given):
    """Candidate and live scheduler prefer free and used nodes."""
    nodes = [make_node(f"n{number}").capacity(cpu=str(8 + number)) for number in range(6)]
    candidate = load_config(MOST_ALLOCATED)
    live = SchedulerConfiguration() if given else None
    async with cluster(nodes) as c, shadowing(c, candidate, live_configuration=live) as shadow:
        for number in range(20):
            await c.create(make_pod(f"p{number}").req(cpu="1"))
            await c.settle()
            await c.advance(5)
    summary = shadow.summary()
    (finding,) = summary.findings
    assert finding.noticed_after < 100
    wanted = LIVE if given else DEFAULTS
    assert wanted in finding.configurations
    assert summary.outcomes["configuration"] == finding.explains >= 10
    assert "different" not in summary.outcomes, summary.differences


async def test_a_plugin_that_the_live_scheduler_lacks_is_named():
    nodes = [make_node(f"n{number}").taint("team", "red") for number in range(2)]
    without = {"plugins": {"multiPoint": {"disabled": [{"name": "TaintToleration"}]}}}
    nodes.append(make_node("n2").capacity(cpu="1"))
    async with cluster(nodes, config={"profiles": [without]}) as c, shadowing(c) as shadow:
        for number in range(8):
            await c.create(make_pod(f"p{number}").req(cpu="100m"))
            await c.settle()
            await c.advance(5)
    (finding,) = shadow.summary().findings
    assert finding.configurations == ["TaintToleration disabled"]


async def test_a_node_of_a_part_of_the_nodes_is_sampling():
    nodes = [make_node(f"n{number:03}").capacity(cpu=str(20 + number)) for number in range(150)]
    async with cluster(nodes, start=False) as c, shadowing(c) as shadow:
        await c.create(make_pod("part").req(cpu="10"), make_pod("never").req(cpu="10"))
        await c.advance(5)
        await c.bind("part", "n110")
        await c.advance(5)
        # Of 150 nodes a search ends with 100: the 20 smallest are never the best of them.
        await c.bind("never", "n010")
    found = {one.pod: one.outcome.value for one in shadow.summary().differences}
    assert found == {"default/part": "sampling", "default/never": "different"}


async def test_decisions_with_extenders_are_not_judged():
    extender = Extender(url_prefix="http://u:secret@extender.example/v1", filter_verb="f")
    candidate = SchedulerConfiguration(extenders=(extender,))
    async with cluster(2) as c, shadowing(c, candidate) as shadow:
        await c.create(make_pod("web"))
        await c.settle()
    summary = shadow.summary()
    assert (summary.decisions, summary.not_judged) == (0, {EXTENDERS: 1})
    assert summary.notes == ["extender http://extender.example/v1 is not called"]


async def test_binds_that_were_missed_are_not_judged():
    """The watch of pods expires twice before the bind; a list has it then, among others."""
    expiring = Fault(stream_end=StreamEnd.EXPIRED, stream_seconds=1.0)
    faults = Faults([Rule(expiring, "watch", "pods", times=3)])
    async with cluster(2, start=False) as c, shadowing(c, faults=faults) as shadow:
        await c.create(make_pod("web"))
        await c.advance(0.95)
        await c.settle()
        await c.advance(0.3)
        (node, *_) = (one["metadata"]["name"] for one in c.nodes())
        await c.bind("web", node)
        await c.advance(60)
    assert (shadow.report.decisions, shadow.summary().not_judged) == (0, {IN_A_LIST: 1})


async def test_missing_permission_is_said_at_once():
    no = Fault(answer=bad_request("not for you"))
    faults = Faults([Rule(no, "list", "nodes", times=None)])
    async with cluster(1) as c:
        client = ApiClient(InProcessTransport(c.server, "shadow", faults), c.clock)
        with pytest.raises(ApiError, match="not for you"):
            await Shadow(client, SchedulerConfiguration(), c.clock).check_access()


async def test_an_error_in_one_comparison_is_contained(monkeypatch):
    async def fail(*_):
        raise ZeroDivisionError

    async with cluster(1) as c, shadowing(c) as shadow:
        monkeypatch.setattr("ksched.shadow.comparing.Judge.decide", fail)
        await c.create(make_pod("first"))
        await c.settle()
        await c.advance(DELAY_SECONDS + 1)
        monkeypatch.undo()
        await c.create(make_pod("second"))
        await c.settle()
    assert shadow.summary().not_judged == {FAILED: 1}
    assert outcomes(shadow) == {"same_node": 1}
