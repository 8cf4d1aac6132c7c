"""The same preemptions by a real kube-scheduler and by ksched, on the same API server.

Both run all the time under names of their own; the pod's ``schedulerName`` says whose turn it is.
``make parity SEEDS=200`` decides that many cases, ``SEEDS=17,40`` just these.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from ksched.api.objects import Pod
from ksched.api.resources import NODES, POD_DISRUPTION_BUDGETS, PODS, ApiResource
from ksched.client.http_transport import HttpTransport
from ksched.client.kubeconfig import load_client_config
from ksched.client.rest import ApiClient
from ksched.clock import LoopClock
from ksched.errors import Conflict
from ksched.testing.builders import PodBuilder, make_pod
from ksched.transport import MERGE_PATCH
from lab.control_plane import ControlPlane
from lab.parity.tally import Tally
from lab.random_preemption import NAMESPACE, PRIORITIES, Budget, Case, random_case
from lab.reference import DEFAULT_PROFILE, World
from lab.reference.preemption import preempt
from lab.seeds import asked_seeds

pytestmark = [pytest.mark.real, pytest.mark.real_time]

RBAC = Path(__file__).parents[2] / "config" / "rbac.yaml"
KUBE_SCHEDULER, KSCHED = "kube-scheduler", "ksched"
PRIORITY_CLASSES = ApiResource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
)
PREEMPTION, BUDGETS = "DefaultPreemption", "DefaultPreemption and budgets"
EVERYTHING = (PREEMPTION, BUDGETS)
PATIENCE_SECONDS = 60.0
STUCK_SECONDS = 10.0
"""After its victims are gone kube-scheduler may wait minutes before it looks at the pod again: it
was gated when those went that its plugins cared for, and the last one does not matter to them."""


@pytest.fixture(scope="module")
def schedulers(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    control_plane.kubectl("apply", "-f", str(RBAC))
    control_plane.kubectl("create", "namespace", NAMESPACE)
    for priority in PRIORITIES:
        for policy in ("PreemptLowerPriority", "Never"):
            priority_class = {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": class_name(priority, policy)},
                "value": priority,
                "preemptionPolicy": policy,
            }
            answer = control_plane.request("POST", PRIORITY_CLASSES.path(), priority_class)
            assert answer.status == 201, answer.body
    with (
        control_plane.kube_scheduler("parity-kube-scheduler", scheduler_name=KUBE_SCHEDULER),
        control_plane.ksched("parity-ksched", scheduler_name=KSCHED),
    ):
        yield control_plane


@pytest.fixture
async def client(schedulers: ControlPlane) -> AsyncIterator[ApiClient]:
    clock = LoopClock()
    config = load_client_config(clock, kubeconfig=str(schedulers.kubeconfig()))
    transport = HttpTransport(config, clock)
    try:
        yield ApiClient(transport, clock)
    finally:
        await transport.aclose()


def class_name(priority: int, policy: str | None) -> str:
    return f"p{priority}-never" if policy == "Never" else f"p{priority}"


def as_sent(builder: PodBuilder) -> dict[str, Any]:
    """A pod as a user would send it: the server works out its priority."""
    pod = builder.to_dict()
    spec = pod["spec"]
    del pod["metadata"]["uid"]
    pod.pop("status", None)
    policy = spec.pop("preemptionPolicy", None)
    spec["priorityClassName"] = class_name(spec.pop("priority", 0), policy)
    spec["terminationGracePeriodSeconds"] = 0
    return pod


class Trial:
    """One case on the API server, decided by one scheduler."""

    def __init__(self, client: ApiClient, case: Case, scheduler: str) -> None:
        self._client, self._case, self._scheduler = client, case, scheduler

    async def run(self) -> dict[str, Any]:
        """Where the pod went and who had to go for it, or why it went nowhere."""
        try:
            await self._set_up()
            await self._until_seen()
            await self._create(PODS, as_sent(self._case.pod.scheduler(self._scheduler)))
            node, message = await self._until_decided("q")
            names = {pod["metadata"]["name"] for pod in await self._list(PODS)}
            victims = {pod.obj().metadata.name for pod in self._case.pods} - names
            return {"node": node, "message": message, "victims": victims}
        finally:
            await self._clean()

    async def _set_up(self) -> None:
        await asyncio.gather(*(self._create(NODES, one.to_dict()) for one in self._case.nodes))
        for budget in self._case.budgets:
            sent = budget.to_dict()
            await self._create(POD_DISRUPTION_BUDGETS, sent)
            name, status = sent["metadata"]["name"], {"status": budget.status}
            await self._patch_status(POD_DISRUPTION_BUDGETS, name, status)
        await asyncio.gather(*map(self._start, self._case.pods))

    async def _start(self, builder: PodBuilder) -> None:
        pod = builder.obj()
        await self._create(PODS, as_sent(builder))
        status = {"phase": "Running", "startTime": pod.status.start_time}
        await self._patch_status(PODS, pod.metadata.name, {"status": status})

    async def _until_seen(self) -> None:
        """Wait until the scheduler has judged a pod on all the nodes, after all the others."""
        probe = make_pod("probe", NAMESPACE).priority(0).preemption_policy("Never")
        probe = probe.node_selector(disk="none").scheduler(self._scheduler)
        await self._create(PODS, as_sent(probe))
        nodes = f"0/{len(self._case.nodes)} nodes are available"
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not _message(await self._get("probe")).startswith(nodes):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        await self._client.request("DELETE", PODS.path(NAMESPACE, "probe"))

    async def _until_decided(self, name: str) -> tuple[str, str]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                pod = await self._get(name)
                if node := pod["spec"].get("nodeName", ""):
                    return node, ""
                message = _message(pod)
                is_waiting = "terminating pod on the nominated node" in message
                if " preemption: " in message and not is_waiting:
                    return "", message
                is_stuck = self._scheduler == KUBE_SCHEDULER and loop.time() - began > STUCK_SECONDS
                if is_stuck and (nominated := pod["status"].get("nominatedNodeName", "")):
                    return nominated, ""
                await asyncio.sleep(0.02)

    async def _get(self, name: str) -> Any:
        return msgspec.json.decode(await self._client.get(PODS, NAMESPACE, name))

    async def _create(self, resource: ApiResource, obj: dict[str, Any]) -> None:
        namespace = NAMESPACE if resource.namespaced else ""
        for _ in range(100):
            try:
                await self._client.create(resource, namespace, msgspec.json.encode(obj))
                return
            except Conflict:
                # The last trial's object of that name is still on its way out.
                await asyncio.sleep(0.05)
        raise AssertionError(f"{resource.plural} {obj['metadata']['name']}: still there")

    async def _patch_status(self, resource: ApiResource, name: str, patch: object) -> None:
        body = msgspec.json.encode(patch)
        await self._client.patch(
            resource, NAMESPACE, name, body, subresource="status", content_type=MERGE_PATCH
        )

    async def _list(self, resource: ApiResource) -> list[Any]:
        namespace = NAMESPACE if resource.namespaced else ""
        answer = await self._client.request("GET", resource.path(namespace))
        items: list[Any] = msgspec.json.decode(answer)["items"]
        return items

    async def _clean(self) -> None:
        now = msgspec.json.encode({"gracePeriodSeconds": 0})
        for resource in (PODS, POD_DISRUPTION_BUDGETS, NODES):
            namespace = NAMESPACE if resource.namespaced else ""
            await self._client.request("DELETE", resource.path(namespace), now)
            while await self._list(resource):  # noqa: ASYNC110
                await asyncio.sleep(0.02)


def _message(pod: Any) -> str:
    conditions = pod["status"].get("conditions", ())
    messages = [one.get("message", "") for one in conditions if one["type"] == "PodScheduled"]
    return messages[0] if messages else ""


@pytest.mark.parametrize("seed", asked_seeds(30))
async def test_preempts_as_kube_scheduler_does(client: ApiClient, tally: Tally, seed: int) -> None:
    case = random_case(Random(seed))

    theirs = await Trial(client, case, KUBE_SCHEDULER).run()
    ours = await Trial(client, case, KSCHED).run()

    choices = possible(case, case.budgets)
    assert theirs["node"] in (choices or {""}), f"the reference is wrong: {choices}, {theirs}"
    if len(choices) > 1:
        # All six criteria tie: any of these nodes is right.
        agree = ours["victims"] == choices.get(ours["node"])
        agree = agree and theirs["victims"] == choices[theirs["node"]]
    else:
        agree = ours == theirs
    tally.expect(EVERYTHING)
    mattered = {PREEMPTION} if theirs["victims"] else set()
    if choices != possible(case, ()):
        mattered.add(BUDGETS)
    tally.add(mattered, differs=not agree)
    assert agree, "\n".join(
        (
            f"seed {seed}: kube-scheduler and ksched evict differently",
            f"pod: {case.pod.to_dict()}",
            f"kube-scheduler: {theirs}",
            f"ksched:         {ours}",
            f"right would be: {choices}",
        )
    )


def possible(case: Case, budgets: Sequence[Budget]) -> dict[str, set[str]]:
    """The nodes that the criteria leave, and who would have to go there."""
    by_node: dict[str, list[Pod]] = {}
    for builder in case.pods:
        by_node.setdefault(builder.obj().spec.node_name, []).append(builder.obj())
    nodes = [node.obj() for node in case.nodes]
    world = World(nodes, by_node, case.pod.obj(), DEFAULT_PROFILE)
    choices = preempt(world, [budget.obj() for budget in budgets]).choices
    return {
        node: {key.removeprefix(f"{NAMESPACE}/") for key in victims}
        for node, victims in choices.items()
    }
