"""The operations of scheduler_perf against the embedded API server."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from bench.load_generator import LoadGenerator
from bench.perf_config import PerfCase, PerfConfigError
from bench.perf_operations import Executor, collection
from bench.workloads import Object
from ksched.apiserver.api_server import ApiServer
from ksched.apiserver.in_process import InProcessTransport
from ksched.clock import LoopClock
from ksched.scheduling.scheduler import Scheduler

NODE = """\
apiVersion: v1
kind: Node
metadata: {name: "node-{{.Index}}"}
spec: {unschedulable: true}
status: {capacity: {pods: "10", cpu: "4"}}
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {generateName: pod-, labels: {type: unsched}}
spec: {containers: [{name: c, image: pause}]}
"""
OPERATIONS: list[Object] = [
    {"opcode": "startCollectingMetrics", "namespaces": ["waiting"]},
    {"opcode": "createNodes", "countParam": "$nodes", "nodeTemplatePath": "node.yaml"},
    {"opcode": "createPods", "count": 6, "namespace": "waiting", "skipWaitToCompletion": True},
    {"opcode": "barrier", "stageRequirement": "Attempted", "labelSelector": {"type": "unsched"}},
    {"opcode": "updateAny", "countParam": "$nodes", "templatePath": "open.yaml"},
    {"opcode": "barrier"},
    {"opcode": "stopCollectingMetrics"},
    {"opcode": "deletePods", "namespace": "waiting"},
]


@pytest.fixture
def case(tmp_path: Path) -> PerfCase:
    (tmp_path / "node.yaml").write_text(NODE)
    (tmp_path / "open.yaml").write_text(NODE.replace("true", "false"))
    (tmp_path / "pod.yaml").write_text(POD)
    return PerfCase("Case", "small", tmp_path, OPERATIONS, {"nodes": 2}, "pod.yaml")


@pytest.mark.real_time
async def test_pods_that_wait_for_nodes_are_counted_once_these_are_updated(case: PerfCase) -> None:
    server = ApiServer(LoopClock())
    transport = InProcessTransport(server, "bench")
    spent = iter([10.0, 13.0])
    async with Scheduler(transport) as scheduler:
        await scheduler.wait_synced()
        executor = Executor(LoadGenerator(transport), case, 30.0, lambda: next(spent))
        await executor.run()

    assert executor.asked == 6
    assert len(executor.waits) == 6
    assert all(bound > sent for sent, bound in executor.waits)
    began, ended = executor.collected
    assert ended.cpu_seconds - began.cpu_seconds == 3.0
    assert ended.at > began.at
    left = (await LoadGenerator(transport).get("/api/v1/pods"))["items"]
    assert all("deletionTimestamp" in pod["metadata"] for pod in left)


@pytest.mark.real_time
async def test_an_unknown_operation_is_named(case: PerfCase) -> None:
    case.operations[:] = [{"opcode": "createResourceDriver"}]
    executor = Executor(
        LoadGenerator(InProcessTransport(ApiServer(LoopClock()), "bench")), case, 1.0, lambda: 0.0
    )

    with pytest.raises(ExceptionGroup) as caught:
        await executor.run()

    (error,) = caught.value.exceptions
    assert isinstance(error, PerfConfigError)
    assert "cannot do createResourceDriver" in str(error)


def test_paths_follow_from_version_and_kind() -> None:
    claim = yaml.safe_load("{apiVersion: v1, kind: PersistentVolumeClaim}")
    assert collection(claim, "a") == "/api/v1/namespaces/a/persistentvolumeclaims"
    assert collection({"apiVersion": "v1", "kind": "Node"}, "") == "/api/v1/nodes"
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    assert collection(lease, "a") == "/apis/coordination.k8s.io/v1/namespaces/a/leases"
