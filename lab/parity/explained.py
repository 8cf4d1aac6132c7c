"""The message of ``ksched explain`` about a pod that a real kube-scheduler left pending."""

from __future__ import annotations

from ksched.client.connecting import connect
from ksched.client.rest import ApiClient
from ksched.clock import LoopClock
from ksched.configuration.model import SchedulerConfiguration
from ksched.explain.cluster_copy import ClusterCopy
from ksched.explain.explaining import explain
from ksched.explain.read_only import ReadOnlyTransport
from lab.control_plane import ControlPlane
from lab.parity.verdicts import Outcome


async def explained(
    plane: ControlPlane,
    namespace: str,
    pod: str,
    configuration: SchedulerConfiguration | None = None,
) -> Outcome:
    """Read the cluster once, as the command does, and explain the pod."""
    clock = LoopClock()
    async with connect(str(plane.kubeconfig("admin"))) as transport:
        client = ApiClient(ReadOnlyTransport(transport), clock)
        copy = ClusterCopy(client, configuration or SchedulerConfiguration(), clock)
        found = await copy.read_pod(namespace, pod)
        await copy.read()
    return Outcome(message=(await explain(copy, found)).message)
