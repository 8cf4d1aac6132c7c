"""What was decided is decided again: on the embedded API server, in virtual time.

Covers ``ksched.journal.recording``, ``ksched.journal.recorded_state``,
``ksched.journal.encoding``, ``ksched.journal.records`` and ``ksched.journal.replay_report`` too.
"""

from __future__ import annotations

import gzip
from random import Random

import pytest

from ksched.configuration import load_config
from ksched.framework import SUCCESS
from ksched.journal.reading import JournalFile, journal_paths
from ksched.journal.records import Began, Decided
from ksched.journal.replay_report import GROUPS
from ksched.metrics import Metrics
from ksched.testing import cluster, make_node, make_pod
from ksched.testing.device_builders import (
    make_device_class,
    make_resource_claim,
    make_slice,
    with_claim,
)
from ksched.testing.storage_builders import make_claim, make_storage_class, make_volume
from lab.gangs import configured, priority_class
from lab.parity.manifests import RandomManifests
from tests.journal.conftest import journaling, replayed

HEADER = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
"""
MOST_ALLOCATED = load_config(
    HEADER
    + """
- pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
"""
)
NO_TAINTS = load_config(
    HEADER
    + """
- plugins: {filter: {disabled: [{name: TaintToleration}]}}
"""
)


def is_all_the_same(summary):
    found = (summary.different, summary.other_feasible, summary.not_judged, summary.notes)
    return found == (0, 0, {}, [])


@pytest.mark.parametrize("seed", range(6))
async def test_random_pods_are_decided_as_recorded(seed, folder):
    random = Random(seed)
    source = RandomManifests(random)
    async with cluster(seed=seed) as c:
        names = [f"n{number}" for number in range(random.randint(2, 6))]
        await c.create(*source.cluster(names))
        for number in range(random.randint(0, 8)):
            await c.create(source.running_pod(f"r{number}", names))
        await c.settle()
        async with journaling(c, folder):
            for number in range(15):
                await c.create(source.pod(f"p{number}"))
                if random.random() < 0.5:
                    await c.settle()
                if random.random() < 0.2:
                    await c.replace(source.changed_node(random.choice(c.nodes())))
            await c.advance(3)
            decisions = len(c.scheduler.decisions)
    summary = await replayed(folder)
    assert is_all_the_same(summary), summary
    assert summary.decisions == decisions >= 15


@pytest.mark.parametrize("seed", range(3))
async def test_preemption_chooses_as_recorded(seed, folder):
    random = Random(seed)
    async with cluster(5, seed=seed, kubelet=True) as c, journaling(c, folder):
        await c.create(*map(priority_class, (1, 5, 10)))
        for number in range(40):
            pod = make_pod(f"p{number}").req(cpu=random.choice(["1", "2", "3"]))
            name = f"p{random.choice([1, 5, 10])}"
            await c.create(pod.merge({"spec": {"priorityClassName": name}}))
            await c.advance(random.choice([0, 0, 1, 40]))
        await c.advance(60)
    summary = await replayed(folder)
    assert is_all_the_same(summary), summary
    assert summary.decisions > 40
    assert any(one.nominated for one in decisions_in(folder))


def decisions_in(folder):
    return [
        record
        for path in journal_paths([str(folder)])
        for record in JournalFile(path)
        if isinstance(record, Decided)
    ]


async def test_volumes_that_are_promised_already_are_part_of_the_state(folder):
    classes = [make_storage_class("static", "kubernetes.io/no-provisioner")]
    async with cluster(3) as c, c.volume_controller(), journaling(c, folder):
        await c.create(*classes)
        for number in range(6):
            where = f"n{number % 3 + 1}"
            await c.create(make_volume(f"v{number}", "6Gi", "static").on_node(where))
            await c.create(make_claim(f"c{number}", "static", "5Gi"))
        await c.settle()
        await c.create(*(make_pod(f"p{number}").pvc(f"c{number}") for number in range(6)))
        await c.settle()
        await c.advance(5)
        assert all(c.bound(f"p{number}") for number in range(6))
    summary = await replayed(folder)
    assert is_all_the_same(summary), summary
    assert b'"record":"volumes"' in content(folder)


async def test_devices_that_are_promised_already_are_part_of_the_state(folder):
    nodes = [make_node("n1"), make_node("n2")]
    slices = [make_slice(name).device("d1").device("d2") for name in ("n1", "n2")]
    async with cluster(nodes) as c, journaling(c, folder):
        await c.create(make_device_class(), *slices)
        for number in range(5):
            await c.create(make_resource_claim(f"gpu{number}").request())
        await c.settle()
        pods = [with_claim(make_pod(f"p{number}"), f"gpu{number}") for number in range(5)]
        await c.create(*pods)
        await c.advance(5)
        assert sum(bool(c.bound(f"p{number}")) for number in range(5)) == 4
    summary = await replayed(folder)
    assert is_all_the_same(summary), summary
    assert b'"record":"claims"' in content(folder)


async def test_a_change_during_a_decision_comes_too_late_for_it(folder):
    class Slow:
        name = "Slow"

        async def pre_filter(self, state, pod, snapshot):
            await c.patch_node("n1", {"spec": {"unschedulable": True}})
            await c.clock.sleep(1)
            return SUCCESS

    async with cluster(1, plugins=[Slow()]) as c, journaling(c, folder):
        await c.create(make_pod("web"))
        await c.advance(5)
        assert c.bound("web") == "n1"
    records = [type(one) for one in JournalFile(journal_paths([str(folder)])[0])]
    assert records.index(Began) < records.index(Decided)
    summary = await replayed(folder, configuration=load_config(HEADER + "- {}"))
    assert is_all_the_same(summary), summary


async def test_members_of_groups_are_counted_and_not_judged(folder):
    group = {"ksched.dev/group": "g", "ksched.dev/group-min": "2"}
    config = configured("annotations")
    async with cluster(2, config=config) as c, journaling(c, folder):
        await c.create(*(make_pod(f"m{number}").annotation(group) for number in range(2)))
        await c.create(make_pod("alone"))
        await c.advance(2)
        assert c.bound("m0")
    summary = await replayed(folder)
    assert summary.not_judged == {GROUPS: 2}
    assert (summary.decisions, summary.same) == (1, 1)


async def test_a_part_of_the_nodes_is_searched_from_where_it_was(folder):
    config = {"percentageOfNodesToScore": 50}
    nodes = cluster(260, config=config, check_declarations=False)
    async with nodes as c, journaling(c, folder):
        await c.create(*(make_pod(f"p{number}").req(cpu="1") for number in range(20)))
        await c.settle()
    summary = await replayed(folder)
    assert is_all_the_same(summary), summary
    assert len({one.start for one in decisions_in(folder)}) > 1


# -- another configuration ----------------------------------------------------------------------


async def mixed(folder, pods=20):
    """Nodes of different sizes, one of which is tainted, and pods on the large ones."""
    nodes = [
        make_node(f"n{cpu}").capacity(cpu=str(cpu), memory=f"{2 * cpu}Gi") for cpu in (2, 4, 8)
    ]
    async with cluster([*nodes, make_node("tainted").capacity(cpu="32").taint("k")]) as c:
        async with journaling(c, folder):
            for number in range(pods):
                await c.create(make_pod(f"p{number}").req(cpu="100m", memory="200Mi"))
            await c.create(make_pod("big").req(cpu="16"))
            await c.settle()
        assert not c.bound("big")


async def test_another_strategy_is_named_as_the_cause(folder):
    await mixed(folder)
    assert is_all_the_same(await replayed(folder))
    summary = await replayed(folder, configuration=MOST_ALLOCATED)
    assert (summary.decisions, summary.not_judged) == (21, {})
    assert summary.different > 10
    assert {one.plugin for one in summary.causes} == {"NodeResourcesFit"}
    first = summary.differences[0]
    assert (first.pod, first.recorded, first.replayed) == ("default/p0", "n8", "n2")
    assert "of that NodeResourcesFit" in first.detail


async def test_a_pod_that_fits_now_is_different(folder):
    await mixed(folder, pods=0)
    summary = await replayed(folder, configuration=NO_TAINTS)
    (found,) = summary.differences
    assert (found.pod, found.recorded, found.replayed) == ("default/big", "no node", "tainted")
    assert found.plugin == "NodeResourcesFit, TaintToleration"
    assert found.cause.value == "rejected it, and does not now"


async def test_only_one_pod_or_one_second(folder):
    await mixed(folder, pods=3)
    summary = await replayed(folder, pod="default/p1", configuration=MOST_ALLOCATED)
    assert summary.decisions == 1
    at = decisions_in(folder)[0].at
    assert (await replayed(folder, at=at)).decisions == 4
    assert (await replayed(folder, at=at + 5)).decisions == 0


async def test_pods_of_another_profile_are_not_judged(folder):
    await mixed(folder, pods=1)
    other = load_config(HEADER + "- schedulerName: other")
    summary = await replayed(folder, configuration=other)
    assert summary.not_judged == {"the configuration has no profile default-scheduler": 2}


# -- what is not recorded -----------------------------------------------------------------------


async def test_no_secret_is_recorded(folder):
    secret = "hunter2-secret"
    container = {"name": "c", "image": "i", "env": [{"name": "TOKEN", "value": secret}]}
    container["command"] = ["run", secret]
    config = (
        HEADER
        + f"""
- pluginConfig:
  - {{name: Mine, args: {{apiToken: {secret}}}}}
"""
    )
    odd = make_resource_claim("gpu").request().config(parameters={"password": secret})
    annotated = make_node("n1").annotation({"note": secret})

    class Mine:
        name = "Mine"

        def filter(self, state, pod, node):
            return SUCCESS

    async with cluster([annotated], config=config, plugins=[Mine()]) as c:
        await c.create(make_device_class(), make_slice("n1").device("d1"))
        async with journaling(c, folder):
            await c.create(odd.annotation({"note": secret}))
            pod = with_claim(make_pod("web"), "gpu").annotation({"note": secret})
            await c.create(pod.merge({"spec": {"containers": [container]}}))
            await c.advance(5)
            assert c.bound("web") == "n1"
    text = content(folder)
    assert b'"name":"web"' in text
    assert b"gpu" in text
    assert secret.encode() not in text


def content(folder):
    return b"".join(gzip.decompress(path.read_bytes()) for path in journal_paths([str(folder)]))


async def test_what_does_not_matter_is_not_recorded(folder):
    """Conditions, heartbeats and the confirmation of a bind are not written whole."""
    metrics = Metrics()
    async with cluster(1) as c, journaling(c, folder, metrics=metrics):
        await c.create(make_pod("web"), make_pod("big").req(cpu="99"))
        await c.advance(1)
        before = content_so_far(folder)
        await c.patch_node("n1", {"metadata": {"annotations": {"beat": "1"}}})
        status = {"conditions": [{"type": "Ready", "status": "True"}]}
        await c.patch("web", {"status": status}, subresource="status")
        await c.advance(1)
        assert content_so_far(folder).count(b"\n") == before.count(b"\n")
    assert content(folder).count(b'"record":"bound"') == 1
    assert content(folder).count(b'"record":"pod"') == 2
    assert metrics.journal_written_bytes.value() > 0
    assert metrics.journal_dropped_records.value() == 0


def content_so_far(folder):
    import zlib

    (path,) = journal_paths([str(folder)])
    return zlib.decompressobj(31).decompress(path.read_bytes())
