"""What the server decides about an object beyond its defaults, before it is stored.

Priority and default tolerations of pods, the state a pod begins in, the life of its namespace: the
admission plugins and create strategies of kube-apiserver that matter to a scheduler.
"""

from __future__ import annotations

from typing import Any

from ksched.apiserver.object_defaults import containers
from ksched.apiserver.object_store import Store
from ksched.apiserver.served_resources import (
    DISRUPTION_BUDGETS,
    NAMESPACES,
    PODS,
    PRIORITY_CLASSES,
    JsonObject,
    Resource,
)
from ksched.apiserver.status_errors import forbidden, not_found
from ksched.clock import rfc3339

PREEMPT_LOWER_PRIORITY = "PreemptLowerPriority"
SYSTEM_PRIORITY_CLASSES = {
    "system-cluster-critical": (
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, "
        "but can be moved to another node if necessary.",
    ),
    "system-node-critical": (
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
}
SYSTEM_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")

_DEFAULT_TOLERATION_SECONDS = 300
_NOT_READY = "node.kubernetes.io/not-ready"
_UNREACHABLE = "node.kubernetes.io/unreachable"
_GATED_MESSAGE = "Scheduling is blocked due to non-empty scheduling gates"


def admit_to_namespace(store: Store, resource: Resource, obj: JsonObject) -> None:
    """Refuse new objects in a namespace that is missing or on its way out."""
    name, namespace = obj["metadata"]["name"], obj["metadata"]["namespace"]
    found = store.collection(NAMESPACES).entries.get(namespace)
    if found is None:
        raise not_found(NAMESPACES.group_resource, namespace)
    if found.fields["status.phase"] == "Terminating":
        why = (
            f"unable to create new content in namespace {namespace} because it is being terminated"
        )
        error = forbidden(resource.group_resource, name, why)
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {namespace} is being terminated",
            "field": "metadata.namespace",
        }
        error.details = {**(error.details or {}), "causes": [cause]}
        raise error


def admit_create(store: Store, resource: Resource, obj: JsonObject, now: float) -> None:
    """Apply the admission rules for a new object, in place."""
    if resource is PODS:
        _admit_pod(store, obj)
        _begin_pod(obj, now)
    elif resource is PRIORITY_CLASSES:
        _admit_priority_class(store, obj, creating=True)
    elif resource is DISRUPTION_BUDGETS:
        obj["status"] = {
            "currentHealthy": 0,
            "desiredHealthy": 0,
            "disruptionsAllowed": 0,
            "expectedPods": 0,
        }
    elif resource.plural == "jobs":
        _select_own_pods(obj)


def admit_update(store: Store, resource: Resource, obj: JsonObject) -> None:
    """Apply the admission rules for a changed object, in place."""
    if resource is PODS:
        _default_tolerations(obj["spec"])
    elif resource is PRIORITY_CLASSES:
        _admit_priority_class(store, obj, creating=False)


def _admit_priority_class(store: Store, priority_class: JsonObject, creating: bool) -> None:
    """Refuse a second global default."""
    name = priority_class["metadata"]["name"]
    if not priority_class.get("globalDefault"):
        return
    default = _global_default(store)
    if default is not None and (creating or default["metadata"]["name"] != name):
        why = (
            f"PriorityClass {default['metadata']['name']} is already marked as default. "
            "Only one default can exist"
        )
        raise forbidden(PRIORITY_CLASSES.group_resource, name, why)


def condition(
    kind: str, status: str, now: float, reason: str = "", message: str = ""
) -> JsonObject:
    """Return a pod condition as the server writes it."""
    result: JsonObject = {
        "type": kind,
        "status": status,
        "lastProbeTime": None,
        "lastTransitionTime": rfc3339(now),
    }
    if reason:
        result["reason"] = reason
    if message:
        result["message"] = message
    return result


def set_condition(status: JsonObject, new: JsonObject) -> None:
    """Put a condition into a status; its transition time moves only with its value."""
    conditions: list[JsonObject] = status.setdefault("conditions", [])
    for index, old in enumerate(conditions):
        if old["type"] == new["type"]:
            if old["status"] == new["status"]:
                new["lastTransitionTime"] = old.get("lastTransitionTime")
            conditions[index] = new
            return
    conditions.append(new)


def system_priority_class(name: str) -> JsonObject:
    value, description = SYSTEM_PRIORITY_CLASSES[name]
    return {"metadata": {"name": name}, "value": value, "description": description}


def qos_class(spec: JsonObject) -> str:
    """Return Guaranteed, Burstable or BestEffort (``qos.ComputePodQOS``)."""
    supported = ("cpu", "memory")
    if (spec.get("resources") or {}) != {}:
        owners = [spec["resources"]]
    else:
        owners = [container.get("resources") or {} for container in containers(spec)]
    asked = [
        amount
        for owner in owners
        for kind in ("requests", "limits")
        for name, amount in (owner.get(kind) or {}).items()
        if name in supported and amount != "0"
    ]
    if not asked:
        return "BestEffort"
    for owner in owners:
        requests, limits = owner.get("requests") or {}, owner.get("limits") or {}
        for name in supported:
            if limits.get(name) in (None, "0") or requests.get(name) != limits[name]:
                return "Burstable"
    return "Guaranteed"


def _admit_pod(store: Store, pod: JsonObject) -> None:
    _default_tolerations(pod["spec"])
    _priority(store, pod)


def _default_tolerations(spec: JsonObject) -> None:
    tolerations: list[JsonObject] = spec.get("tolerations") or []
    for key in (_NOT_READY, _UNREACHABLE):
        tolerated = any(
            t.get("key", "") in (key, "") and t.get("effect", "") in ("NoExecute", "")
            for t in tolerations
        )
        if not tolerated:
            added: JsonObject = {"key": key, "operator": "Exists", "effect": "NoExecute"}
            tolerations = [
                *tolerations,
                {**added, "tolerationSeconds": _DEFAULT_TOLERATION_SECONDS},
            ]
    spec["tolerations"] = tolerations


def _priority(store: Store, pod: JsonObject) -> None:
    spec, name = pod["spec"], pod["metadata"]["name"]
    chosen: JsonObject | None
    if spec.get("priorityClassName"):
        entry = store.collection(PRIORITY_CLASSES).entries.get(spec["priorityClassName"])
        if entry is None:
            why = f"no PriorityClass with name {spec['priorityClassName']} was found"
            raise forbidden(PODS.group_resource, name, why)
        chosen = entry.decode()
    else:
        chosen = _global_default(store)
    priority, policy = 0, PREEMPT_LOWER_PRIORITY
    if chosen is not None:
        spec["priorityClassName"] = chosen["metadata"]["name"]
        priority = chosen.get("value", 0)
        policy = chosen.get("preemptionPolicy") or policy
    _agree(pod, "priority", "the integer value of priority", priority)
    _agree(pod, "preemptionPolicy", "the string value of PreemptionPolicy", policy)


def _agree(pod: JsonObject, field: str, what: str, computed: Any) -> None:
    given = pod["spec"].get(field)
    if given is not None and given != computed:
        why = (
            f"{what} ({given}) must not be provided in pod spec; priority admission controller "
            f"computed {computed} from the given PriorityClass name"
        )
        raise forbidden(PODS.group_resource, pod["metadata"]["name"], why)
    pod["spec"][field] = computed


def _global_default(store: Store) -> JsonObject | None:
    entries = store.collection(PRIORITY_CLASSES).entries.values()
    classes = [entry.decode() for entry in entries if b"globalDefault" in entry.raw]
    defaults = [c for c in classes if c.get("globalDefault")]
    return min(defaults, key=lambda c: int(c.get("value", 0)), default=None)


def _begin_pod(pod: JsonObject, now: float) -> None:
    spec = pod["spec"]
    pod["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}
    if spec.get("schedulingGates"):
        gated = condition("PodScheduled", "False", now, "SchedulingGated", _GATED_MESSAGE)
        set_condition(pod["status"], gated)
    labels = pod["metadata"].get("labels") or {}
    for constraint in spec.get("topologySpreadConstraints") or []:
        _label_keys_into_selector(constraint, labels)
    affinity = spec.get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(kind) or {}
        for term in terms.get("requiredDuringSchedulingIgnoredDuringExecution") or []:
            _label_keys_into_selector(term, labels)
        for weighted in terms.get("preferredDuringSchedulingIgnoredDuringExecution") or []:
            _label_keys_into_selector(weighted.get("podAffinityTerm") or {}, labels)


def _label_keys_into_selector(owner: JsonObject, labels: JsonObject) -> None:
    """Turn ``matchLabelKeys`` and ``mismatchLabelKeys`` into selector terms, as upstream does."""
    selector = owner.get("labelSelector")
    if selector is None:
        return
    for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        for key in owner.get(field) or []:
            if key in labels:
                term = {"key": key, "operator": operator, "values": [labels[key]]}
                selector.setdefault("matchExpressions", []).append(term)


def _select_own_pods(job: JsonObject) -> None:
    """Give a job the labels and selector that tie its pods to it."""
    spec, metadata = job["spec"], job["metadata"]
    if spec.get("manualSelector"):
        return
    prefix = "batch.kubernetes.io/"
    labels: dict[str, str] = {}
    for name, value in (("controller-uid", metadata["uid"]), ("job-name", metadata["name"])):
        labels |= {name: value, prefix + name: value}
    template = spec["template"].setdefault("metadata", {})
    template["labels"] = {**(template.get("labels") or {}), **labels}
    if not metadata.get("labels"):
        metadata["labels"] = dict(template["labels"])
    spec["selector"] = {"matchLabels": {f"{prefix}controller-uid": metadata["uid"]}}
