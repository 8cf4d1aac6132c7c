"""The cluster in one object: that it does what its methods promise, on both kinds of loop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ksched.apiserver.faults import Fault, Faults, Rule
from ksched.apiserver.status_errors import StatusError
from ksched.errors import NotFound
from ksched.framework import unschedulable
from ksched.queue.places import Place
from ksched.testing import FakePlugin, cluster, make_node, make_pod

TWO_PROFILES = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
- schedulerName: other
"""


async def test_a_pod_is_bound_without_time_passing() -> None:
    async with cluster(nodes=3) as c:
        await c.create(make_pod("web").req(cpu="1"))
        await c.settle()
        assert c.bound("web") in ("n1", "n2", "n3")
        [event] = c.events("web")
        assert (event.type, event.reason) == ("Normal", "Scheduled")
        assert event.note == f"Successfully assigned default/web to {c.bound('web')}"
    assert asyncio.get_running_loop().time() == 0.0


@pytest.mark.real_time
async def test_the_same_code_runs_on_a_real_loop() -> None:
    async with cluster(nodes=1) as c:
        await c.create(make_pod("web").req(cpu="1"), make_pod("big").req(cpu="100"))
        await c.settle()
        assert c.bound("web") == "n1"
        assert c.message("big").startswith("0/1 nodes are available: 1 Insufficient cpu.")
        await c.add_nodes([make_node("large").capacity(cpu="128", memory="1Gi", pods="10")])
        await c.settle()
        assert c.bound("big") == "large"


async def test_a_pod_that_fits_nowhere_is_explained_and_its_story_told() -> None:
    async with cluster(nodes=2) as c:
        await c.create(make_pod("big").req(cpu="10"))
        await c.settle()
        assert c.bound("big") is None
        condition = c.condition("big")
        assert condition is not None
        assert condition["reason"] == "Unschedulable"
        assert c.message("big").startswith("0/2 nodes are available: 2 Insufficient cpu.")
        assert c.place("big") is Place.UNSCHEDULABLE
        assert [step.target for step in c.story("big")] == [
            Place.ACTIVE,
            Place.IN_FLIGHT,
            Place.UNSCHEDULABLE,
        ]


async def test_advance_moves_the_clock_to_the_exact_second() -> None:
    async with cluster() as c:
        await c.advance(90)
        assert c.clock.now() == 90.0


async def test_objects_may_be_dicts_structs_or_builders() -> None:
    async with cluster(nodes=[make_node("a").obj()]) as c:
        await c.create(make_pod("struct").obj(), make_pod("dict").to_dict(), make_pod("builder"))
        await c.create({"kind": "Namespace", "metadata": {"name": "team"}})
        await c.create(
            {"metadata": {"name": "bare"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        )
        await c.create(make_pod("web", namespace="team"))
        await c.settle()
        for name in ("struct", "dict", "builder", "bare", "team/web"):
            assert c.bound(name) == "a"


async def test_delete_patch_and_bind_go_through_the_server() -> None:
    async with cluster(nodes=1) as c:
        await c.create(make_pod("a").scheduler("nobody"), make_pod("b").req(cpu="5"))
        await c.bind("a", "n1")
        await c.patch("a", {"metadata": {"labels": {"app": "web"}}})
        await c.settle()
        assert c.bound("a") == "n1"
        assert c.pod("a")["metadata"]["labels"] == {"app": "web"}
        await c.delete("a", grace_seconds=0)
        assert not c.exists("a")
        await c.patch_node("n1", {"status": {"allocatable": {"cpu": "8"}}}, subresource="status")
        await c.advance(2)
        assert c.bound("b") == "n1"
        await c.delete_node("n1")
        assert c.nodes() == []
        with pytest.raises(NotFound):
            await c.delete("never")
        assert {audit.user for audit in c.requests} == {"test", "system:kube-scheduler"}


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(TWO_PROFILES, id="text"),
        pytest.param(
            {"profiles": [{"schedulerName": "default-scheduler"}, {"schedulerName": "other"}]},
            id="mapping",
        ),
    ],
)
async def test_plugins_are_enabled_in_every_profile_that_does_not_mention_them(
    config: Any,
) -> None:
    moody = FakePlugin("Moody", filter=unschedulable("not today"))
    async with cluster(nodes=1, config=config, plugins=[moody]) as c:
        await c.create(make_pod("a"), make_pod("b").scheduler("other"))
        await c.settle()
        assert c.message("a") == c.message("b")
        assert c.message("a").startswith("0/1 nodes are available: 1 not today.")


async def test_a_plugin_that_the_configuration_disables_stays_off() -> None:
    moody = FakePlugin("Moody", filter=unschedulable("not today"))
    off = {"profiles": [{"plugins": {"filter": {"disabled": [{"name": "Moody"}]}}}]}
    async with cluster(nodes=1, config=off, plugins={"Moody": moody}) as c:
        await c.create(make_pod("a"))
        await c.settle()
        assert c.bound("a") == "n1"


async def test_plugins_may_be_factories_or_ready_made() -> None:
    class Ready:
        name = "Ready"

        def filter(self, state: object, pod: object, node: object) -> object:
            return unschedulable("ready")

    built: list[Any] = []

    def factory(args: Any, handle: Any) -> FakePlugin:
        built.append(handle)
        return FakePlugin("Made", filter=unschedulable("made"))

    async with cluster(nodes=1, plugins={"Made": factory, "Ready": Ready()}) as c:
        await c.create(make_pod("a"))
        await c.settle()
        assert c.message("a").startswith("0/1 nodes are available: 1 made.")
        assert [handle.profile_name for handle in built] == ["default-scheduler"]


async def test_kubelets_run_bound_pods_and_finish_deletions() -> None:
    async with cluster(nodes=1, kubelet=True) as c:
        await c.create(make_pod("a"), make_pod("job").annotation({"ksched.dev/run-seconds": "60"}))
        await c.advance(5)
        assert c.pod("a")["status"]["phase"] == "Running"
        await c.advance(60)
        assert c.pod("job")["status"]["phase"] == "Succeeded"
        await c.delete("a")
        await c.advance(40)
        assert not c.exists("a")


async def test_faults_come_between_scheduler_and_server_only() -> None:
    broken = StatusError(500, "InternalError", "etcd is on fire")
    faults = Faults([Rule(Fault(answer=broken), verb="create", resource="pods/binding")])
    async with cluster(nodes=1, faults=faults) as c:
        await c.create(make_pod("a"))
        await c.settle()
        assert c.bound("a") is None
        assert len(c.faults.fired) == 1
        await c.advance(3)
        assert c.bound("a") == "n1"


@pytest.mark.parametrize("kubelet", [False, True])
async def test_what_the_block_raises_comes_out_as_it_is(kubelet: bool) -> None:
    with pytest.raises(ZeroDivisionError):
        async with cluster(nodes=1, kubelet=kubelet):
            raise ZeroDivisionError


async def test_the_same_seed_makes_the_same_choices() -> None:
    async def placements(seed: int) -> list[str | None]:
        async with cluster(nodes=20, seed=seed) as c:
            await c.create(*(make_pod(f"p{number}").req(cpu="1") for number in range(10)))
            await c.settle()
            return [c.bound(f"p{number}") for number in range(10)]

    assert await placements(1) == await placements(1)
    assert await placements(1) != await placements(2)
