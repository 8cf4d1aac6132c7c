"""More or fewer pods of a workload, as its controller makes or deletes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ksched.api.objects import (
    ObjectMeta,
    OwnerReference,
    PersistentVolumeClaimVolumeSource,
    Pod,
    Volume,
)
from ksched.api.resources import (
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    ApiResource,
)
from ksched.api.storage import PersistentVolumeClaim
from ksched.cache.pod_info import PodInfo
from ksched.client.rest import ApiClient
from ksched.errors import KschedError, NotFound
from ksched.explain.manifest import pod_of
from ksched.what_if.changes import Scale
from ksched.what_if.new_pods import STATEFUL_SET, NewPods, controller_of

DEPLOYMENTS: Final = ApiResource("apps", "v1", "deployments", "Deployment")
_RESOURCES: Final = {
    "deployment": DEPLOYMENTS,
    "replicaset": REPLICA_SETS,
    "statefulset": STATEFUL_SETS,
    "replicationcontroller": REPLICATION_CONTROLLERS,
}
_REVISION: Final = "deployment.kubernetes.io/revision"
_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
_POD_INDEX: Final = "apps.kubernetes.io/pod-index"


class Workload(Struct, frozen=True):
    """What makes the pods: for a Deployment its newest ReplicaSet."""

    manifest: dict[str, Any]
    controller: OwnerReference
    uids: frozenset[str]
    """Its own, and those of a Deployment's older ReplicaSets."""

    def owns(self, pod: Pod) -> bool:
        controller = controller_of(pod)
        return controller is not None and controller.uid in self.uids


async def read_workload(client: ApiClient, scale: Scale) -> Workload:
    """Read what makes the pods of a workload; raises ``KschedError``."""
    resource = _RESOURCES[scale.kind]
    try:
        found = msgspec.json.decode(await client.get(resource, scale.namespace, scale.name))
    except NotFound:
        raise KschedError(
            f"--scale: no {scale.kind} is named {scale.name} in namespace {scale.namespace}"
        ) from None
    sets = [{**found, "kind": resource.kind, "apiVersion": resource.api_version}]
    if resource is DEPLOYMENTS:
        page = msgspec.json.decode(await client.request("GET", REPLICA_SETS.path(scale.namespace)))
        uid = found["metadata"]["uid"]
        kind = {"kind": REPLICA_SETS.kind, "apiVersion": REPLICA_SETS.api_version}
        sets = [{**one, **kind} for one in page["items"] if _controller_uid(one) == uid]
        if not sets:
            raise KschedError(f"--scale: deployment {scale.name} has no ReplicaSet yet")
    newest = max(sets, key=_revision)
    meta = newest["metadata"]
    controller = OwnerReference(
        api_version=newest["apiVersion"],
        kind=newest["kind"],
        name=meta["name"],
        uid=meta["uid"],
        controller=True,
    )
    return Workload(newest, controller, frozenset(one["metadata"]["uid"] for one in sets))


def _controller_uid(manifest: dict[str, Any]) -> str:
    owners = manifest["metadata"].get("ownerReferences") or []
    return next((one["uid"] for one in owners if one.get("controller")), "")


def _revision(manifest: dict[str, Any]) -> int:
    text = (manifest["metadata"].get("annotations") or {}).get(_REVISION, "0")
    return int(text) if text.isdecimal() else 0


async def more_pods(
    client: ApiClient, workload: Workload, pods: Sequence[Pod], number: int, new_pods: NewPods
) -> list[Pod]:
    """New pods: like an existing one, which was admitted already, or from the template."""
    uid = workload.controller.uid
    like = next((pod for pod in pods if _is_of(pod, uid)), None)
    if like is None:
        namespace = workload.manifest["metadata"]["namespace"]
        like = await pod_of(workload.manifest, namespace, client)
    if workload.controller.kind == STATEFUL_SET:
        return list(_stateful_pods(workload, like, pods, number, new_pods))
    return [new_pods.another(like, workload.controller) for _ in range(number)]


def _is_of(pod: Pod, uid: str) -> bool:
    controller = controller_of(pod)
    return controller is not None and controller.uid == uid


def _stateful_pods(
    workload: Workload, like: Pod, pods: Sequence[Pod], number: int, new_pods: NewPods
) -> Iterator[Pod]:
    """Pods of the lowest free ordinals, each with claims of its own."""
    spec, namespace = workload.manifest["spec"], like.metadata.namespace
    first = (spec.get("ordinals") or {}).get("start", 0)
    taken = {pod.metadata.name for pod in pods}
    templates = msgspec.convert(spec.get("volumeClaimTemplates") or [], list[PersistentVolumeClaim])
    ordinal = first
    while number:
        name = f"{workload.controller.name}-{ordinal}"
        if name not in taken:
            number -= 1
            claims = {one.metadata.name: f"{one.metadata.name}-{name}" for one in templates}
            for template in templates:
                new_pods.make_claim(template, claims[template.metadata.name], namespace)
            yield new_pods.named(_of_ordinal(like, workload, name, ordinal, claims), name)
        ordinal += 1


def _of_ordinal(
    like: Pod, workload: Workload, name: str, ordinal: int, claims: dict[str, str]
) -> Pod:
    metadata: ObjectMeta = replace(
        like.metadata,
        labels={**like.metadata.labels, _POD_NAME: name, _POD_INDEX: str(ordinal)},
        owner_references=[workload.controller],
    )
    others = [one for one in like.spec.volumes if one.name not in claims]
    own = [
        Volume(
            name=volume, persistent_volume_claim=PersistentVolumeClaimVolumeSource(claim_name=claim)
        )
        for volume, claim in claims.items()
    ]
    return replace(like, metadata=metadata, spec=replace(like.spec, volumes=[*own, *others]))


def surplus_pods(workload: Workload, pods: Sequence[PodInfo], number: int) -> list[PodInfo]:
    """The pods that a controller deletes first (controller_utils.go: ActivePodsWithRanks).

    Those without a node, then not running, then not ready, of the lowest deletion cost, on nodes
    with most of them, the youngest. A StatefulSet deletes the highest ordinals.
    """
    if workload.controller.kind == STATEFUL_SET:
        return sorted(pods, key=lambda pod: -_ordinal(pod.name))[:number]
    on_node = Counter(pod.node_name for pod in pods)

    def rank(info: PodInfo) -> tuple[bool, bool, bool, int, int, tuple[int, ...]]:
        pod = info.pod
        # The youngest first: a later time compares as less.
        age = tuple(-ord(letter) for letter in pod.metadata.creation_timestamp or "")
        return (
            bool(info.node_name),
            pod.status.phase == "Running",
            any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions),
            _cost(pod),
            -on_node[info.node_name],
            age,
        )

    return sorted(pods, key=lambda pod: (rank(pod), pod.key))[:number]


def _ordinal(name: str) -> int:
    text = name.rpartition("-")[2]
    return int(text) if text.isdecimal() else -1


def _cost(pod: Pod) -> int:
    try:
        return int(pod.metadata.annotations.get(_DELETION_COST, "0"))
    except ValueError:
        return 0
