"""Values the server fills in when the writer left them out (``pkg/apis/*/v1/defaults.go``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ksched.apiserver.custom_definitions import set_definition_defaults
from ksched.apiserver.quantities import canonical_quantity
from ksched.apiserver.served_resources import JsonObject, Resource

_PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_FILE_MODE = 420
_NODE_INFO = (
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
)


def apply_defaults(resource: Resource, obj: JsonObject) -> None:
    """Fill in the defaults of a kind, in place; raises ``ValueError`` for nonsense quantities."""
    setter = _SETTERS.get(str(resource.group_resource))
    if setter is not None:
        setter(obj)


def containers(spec: JsonObject) -> Iterator[JsonObject]:
    """Yield the containers and init containers of a pod spec."""
    yield from spec.get("containers") or []
    yield from spec.get("initContainers") or []


def canonical_resources(owner: JsonObject, *names: str) -> None:
    """Rewrite the quantities of resource lists in place; raises ``ValueError`` for nonsense."""
    for name in names:
        amounts = owner.get(name) or {}
        for key, value in amounts.items():
            amounts[key] = canonical_quantity(str(value))


def pod_spec_defaults(spec: JsonObject) -> None:
    """Fill in what every pod spec gets, templates included."""
    for container in containers(spec):
        _container(container)
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    for volume in spec.get("volumes") or []:
        _volume(volume)
    if "overhead" in spec:
        canonical_resources(spec, "overhead")
    if spec.get("resources"):
        canonical_resources(spec["resources"], "requests", "limits")


def _container(container: JsonObject) -> None:
    resources = container.setdefault("resources", {})
    canonical_resources(resources, "requests", "limits")
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("imagePullPolicy", _pull_policy(container.get("image", "")))
    for port in container.get("ports") or []:
        port.setdefault("protocol", "TCP")
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe in container:
            _fill(container[probe], _PROBE)
            if "httpGet" in container[probe]:
                _fill(container[probe]["httpGet"], {"path": "/", "scheme": "HTTP"})
    for variable in container.get("env") or []:
        field = (variable.get("valueFrom") or {}).get("fieldRef")
        if field is not None:
            field.setdefault("apiVersion", "v1")


def _pull_policy(image: str) -> str:
    name = image.rpartition("/")[2]
    if "@" in name:
        return "IfNotPresent"
    _, tagged, tag = name.partition(":")
    return "Always" if not tagged or tag == "latest" else "IfNotPresent"


def _volume(volume: JsonObject) -> None:
    if not any(key != "name" for key in volume):
        volume["emptyDir"] = {}
    for source in ("secret", "configMap", "projected", "downwardAPI"):
        if isinstance(volume.get(source), dict):
            volume[source].setdefault("defaultMode", _FILE_MODE)
    if isinstance(volume.get("hostPath"), dict):
        volume["hostPath"].setdefault("type", "")


def _pod(pod: JsonObject) -> None:
    spec = pod.setdefault("spec", {})
    pod_spec_defaults(spec)
    for container in containers(spec):
        _requests_from_limits(container["resources"])
    if spec.get("resources"):
        _pod_level_requests(spec)
    spec.setdefault("enableServiceLinks", True)
    _conditions(pod.get("status") or {}, "lastProbeTime", "lastTransitionTime")
    if spec.get("hostNetwork"):
        for container in containers(spec):
            for port in container.get("ports") or []:
                port.setdefault("hostPort", port.get("containerPort"))


def _conditions(status: JsonObject, *times: str) -> None:
    """Write absent times as null, as Go does with structs it cannot leave out."""
    for condition in status.get("conditions") or []:
        for time in times:
            condition.setdefault(time, None)


def _requests_from_limits(resources: JsonObject) -> None:
    if resources.get("limits"):
        requests = resources.setdefault("requests", {})
        for name, amount in resources["limits"].items():
            requests.setdefault(name, amount)


def _pod_level_requests(spec: JsonObject) -> None:
    """Default a pod-level request to its limit where no container requests that resource."""
    resources = spec["resources"]
    asked = {name for c in containers(spec) for name in c["resources"].get("requests") or {}}
    for name, amount in (resources.get("limits") or {}).items():
        if name not in asked:
            resources.setdefault("requests", {}).setdefault(name, amount)


def _node(node: JsonObject) -> None:
    node.setdefault("spec", {})
    status = node.setdefault("status", {})
    canonical_resources(status, "capacity", "allocatable")
    if status.get("allocatable") is None and status.get("capacity"):
        status["allocatable"] = dict(status["capacity"])
    _conditions(status, "lastHeartbeatTime", "lastTransitionTime")
    status.setdefault("daemonEndpoints", {}).setdefault("kubeletEndpoint", {"Port": 0})
    _fill(status.setdefault("nodeInfo", {}), dict.fromkeys(_NODE_INFO, ""))


def _namespace(namespace: JsonObject) -> None:
    metadata = namespace["metadata"]
    if metadata.get("name"):
        labels = metadata.get("labels") or {}
        metadata["labels"] = {**labels, "kubernetes.io/metadata.name": metadata["name"]}
    namespace.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
    namespace.setdefault("status", {}).setdefault("phase", "Active")


def _service(service: JsonObject) -> None:
    spec = service.setdefault("spec", {})
    _fill(spec, {"sessionAffinity": "None", "type": "ClusterIP"})
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    for port in spec.get("ports") or []:
        _fill(port, {"protocol": "TCP", "targetPort": port.get("port")})
    service.setdefault("status", {}).setdefault("loadBalancer", {})


def _template(owner: JsonObject) -> JsonObject:
    template: JsonObject = owner["spec"].setdefault("template", {})
    template.setdefault("metadata", {})
    pod_spec_defaults(template.setdefault("spec", {}))
    return template


def _replication_controller(controller: JsonObject) -> None:
    spec = controller.setdefault("spec", {})
    _fill(spec, {"replicas": 1})
    labels = _template(controller)["metadata"].get("labels")
    if labels:
        spec["selector"] = spec.get("selector") or dict(labels)
        metadata = controller["metadata"]
        metadata["labels"] = metadata.get("labels") or dict(labels)
    _fill(controller.setdefault("status", {}), {"replicas": 0})


def _deployment(deployment: JsonObject) -> None:
    spec = deployment.setdefault("spec", {})
    _fill(spec, {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600})
    strategy = spec.setdefault("strategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        _fill(rolling, {"maxUnavailable": "25%", "maxSurge": "25%"})
    _template(deployment)
    deployment.setdefault("status", {})


def _replica_set(replica_set: JsonObject) -> None:
    _fill(replica_set.setdefault("spec", {}), {"replicas": 1})
    _template(replica_set)
    _fill(replica_set.setdefault("status", {}), {"replicas": 0})


def _stateful_set(stateful_set: JsonObject) -> None:
    spec = stateful_set.setdefault("spec", {})
    _fill(spec, {"replicas": 1, "revisionHistoryLimit": 10, "podManagementPolicy": "OrderedReady"})
    strategy = spec.setdefault("updateStrategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)
    retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    _fill(retention, {"whenDeleted": "Retain", "whenScaled": "Retain"})
    _template(stateful_set)
    _fill(stateful_set.setdefault("status", {}), {"replicas": 0, "availableReplicas": 0})


def _daemon_set(daemon_set: JsonObject) -> None:
    spec = daemon_set.setdefault("spec", {})
    _fill(spec, {"revisionHistoryLimit": 10})
    strategy = spec.setdefault("updateStrategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        _fill(strategy.setdefault("rollingUpdate", {}), {"maxUnavailable": 1, "maxSurge": 0})
    _template(daemon_set)
    numbers = (
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
    )
    _fill(daemon_set.setdefault("status", {}), dict.fromkeys(numbers, 0))


def _job(job: JsonObject) -> None:
    spec = job.setdefault("spec", {})
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    _fill(
        spec,
        {
            "parallelism": 1,
            "backoffLimit": 6,
            "completionMode": "NonIndexed",
            "suspend": False,
            "podReplacementPolicy": "TerminatingOrFailed",
            "manualSelector": False,
        },
    )
    _template(job)
    job.setdefault("status", {})


def _persistent_volume(volume: JsonObject) -> None:
    spec = volume.setdefault("spec", {})
    canonical_resources(spec, "capacity")
    _fill(spec, {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"})
    volume.setdefault("status", {}).setdefault("phase", "Pending")
    if isinstance(spec.get("hostPath"), dict):
        spec["hostPath"].setdefault("type", "")


def _persistent_volume_claim(claim: JsonObject) -> None:
    spec = claim.setdefault("spec", {})
    spec.setdefault("volumeMode", "Filesystem")
    canonical_resources(spec.setdefault("resources", {}), "requests", "limits")
    claim.setdefault("status", {}).setdefault("phase", "Pending")


def _storage_class(storage_class: JsonObject) -> None:
    _fill(storage_class, {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"})


def _priority_class(priority_class: JsonObject) -> None:
    _fill(priority_class, {"preemptionPolicy": "PreemptLowerPriority"})
    priority_class.setdefault("value", 0)


def _csi_storage_capacity(capacity: JsonObject) -> None:
    for name in ("capacity", "maximumVolumeSize"):
        if name in capacity:
            capacity[name] = canonical_quantity(str(capacity[name]))


def _resource_claim(claim: JsonObject) -> None:
    for request in (claim.get("spec") or {}).get("devices", {}).get("requests") or []:
        for asked in (request.get("exactly"), *(request.get("firstAvailable") or [])):
            if asked is not None:
                _fill(asked, {"allocationMode": "ExactCount"})
                if asked["allocationMode"] == "ExactCount":
                    _fill(asked, {"count": 1})


def _resource_claim_template(template: JsonObject) -> None:
    _resource_claim(template.get("spec") or {})


def _secret(secret: JsonObject) -> None:
    secret.setdefault("type", "Opaque")


def _event(event: JsonObject) -> None:
    for time in ("firstTimestamp", "lastTimestamp", "eventTime"):
        event.setdefault(time, None)
    event.setdefault("source", {})
    _fill(event, {"reportingComponent": "", "reportingInstance": ""})


def _fill(target: JsonObject, values: dict[str, Any]) -> None:
    for key, value in values.items():
        if target.get(key) is None:
            target[key] = value


_SETTERS: dict[str, Callable[[JsonObject], None]] = {
    "customresourcedefinitions.apiextensions.k8s.io": set_definition_defaults,
    "pods": _pod,
    "nodes": _node,
    "namespaces": _namespace,
    "events": _event,
    "services": _service,
    "secrets": _secret,
    "replicationcontrollers": _replication_controller,
    "persistentvolumes": _persistent_volume,
    "persistentvolumeclaims": _persistent_volume_claim,
    "deployments.apps": _deployment,
    "replicasets.apps": _replica_set,
    "statefulsets.apps": _stateful_set,
    "daemonsets.apps": _daemon_set,
    "jobs.batch": _job,
    "storageclasses.storage.k8s.io": _storage_class,
    "csistoragecapacities.storage.k8s.io": _csi_storage_capacity,
    "priorityclasses.scheduling.k8s.io": _priority_class,
    "resourceclaims.resource.k8s.io": _resource_claim,
    "resourceclaimtemplates.resource.k8s.io": _resource_claim_template,
}
