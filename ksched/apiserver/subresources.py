"""Binding, eviction and scale: the endpoints that are verbs in disguise."""

from __future__ import annotations

from ksched.apiserver.admission import condition, set_condition
from ksched.apiserver.deletion import DeleteOptions, check_preconditions, delete
from ksched.apiserver.resource_registry import Registry, failed_precondition
from ksched.apiserver.selection import label_selector_predicate
from ksched.apiserver.served_resources import DISRUPTION_BUDGETS, PODS, JsonObject, Resource
from ksched.apiserver.status_errors import (
    GroupResource,
    StatusError,
    bad_request,
    conflict,
    forbidden,
    not_supported,
    success,
    too_many_requests,
)
from ksched.clock import rfc3339

_BINDING = GroupResource("", "pods/binding")
_DISRUPTED = "Cannot evict pod as it would violate the pod's disruption budget."
_MOST_DISRUPTED_PODS = 2000


def bind(
    registry: Registry, namespace: str, name: str, binding: JsonObject, dry_run: bool
) -> JsonObject:
    """Assign a pod to a node, once (``BindingREST``)."""
    metadata, target = binding.get("metadata") or {}, binding.get("target") or {}
    if metadata.get("name", "") != name:
        raise bad_request("name in URL does not match name in Binding object")
    if target.get("kind", "") not in ("", "Node"):
        problem = not_supported("target.kind", target["kind"], ("Node", "<empty>"))
        raise StatusError(500, "", str(problem))
    if not target.get("name"):
        # Upstream returns the bare validation error here, which becomes a 500.
        raise StatusError(500, "", "target.name: Required value")
    entry = registry.get(PODS, namespace, name)
    pod = entry.decode()
    uid, version = metadata.get("uid"), metadata.get("resourceVersion")
    if uid and uid != pod["metadata"]["uid"]:
        raise failed_precondition(PODS, entry.key, entry.name, "UID", uid, pod["metadata"]["uid"])
    if version and version != str(entry.version):
        found = str(entry.version)
        raise failed_precondition(PODS, entry.key, entry.name, "ResourceVersion", version, found)
    spec, status = pod["spec"], pod.setdefault("status", {})
    if pod["metadata"].get("deletionTimestamp"):
        why = f"pod {name} is being deleted, cannot be assigned to a host"
        raise conflict(_BINDING, name, why)
    if spec.get("nodeName"):
        why = f'pod {name} is already assigned to node "{spec["nodeName"]}"'
        raise conflict(_BINDING, name, why)
    if spec.get("schedulingGates"):
        raise conflict(_BINDING, name, f"pod {name} has non-empty .spec.schedulingGates")
    if dry_run:
        return success(201)
    spec["nodeName"] = target["name"]
    status.pop("nominatedNodeName", None)
    for field in ("annotations", "labels"):
        if metadata.get(field):
            merged = {**(pod["metadata"].get(field) or {}), **metadata[field]}
            pod["metadata"][field] = merged
    set_condition(status, condition("PodScheduled", "True", registry.clock.wall()))
    registry.write(PODS, entry, pod)
    return success(201)


def evict(registry: Registry, namespace: str, name: str, eviction: JsonObject) -> JsonObject:
    """Delete a pod unless its disruption budget forbids it (``EvictionREST``)."""
    if (eviction.get("metadata") or {}).get("name", "") != name:
        raise bad_request("name in URL does not match name in Eviction object")
    options = DeleteOptions.parse(eviction.get("deleteOptions") or {}, {})
    entry = registry.get(PODS, namespace, name)
    pod = entry.decode()
    budgets = [] if _is_beyond_protection(pod) else _budgets_of(registry, pod)
    if len(budgets) > 1:
        message = (
            "This pod has more than one PodDisruptionBudget, "
            "which the eviction subresource does not support."
        )
        raise StatusError(500, "", message)
    if budgets and not _may_go_unhealthy(pod, budgets[0]):
        _spend(registry, budgets[0], name, options.dry_run)
    check_preconditions(PODS, entry, pod, options)
    if not options.dry_run:
        now = registry.clock.wall()
        mark = condition(
            "DisruptionTarget", "True", now, "EvictionByEvictionAPI", "Eviction API: evicting"
        )
        set_condition(pod.setdefault("status", {}), mark)
        entry = registry.write(PODS, entry, pod)
    delete(registry, PODS, entry, options._replace(resource_version=None))
    return success(201)


def get_scale(resource: Resource, obj: JsonObject) -> JsonObject:
    """Return the ``autoscaling/v1`` Scale of a workload."""
    metadata, spec = obj["metadata"], obj["spec"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    selector = spec.get("selector") or {}
    labels = selector if resource.group == "" else selector.get("matchLabels") or {}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in kept if key in metadata},
        "spec": {"replicas": spec.get("replicas", 0)},
        "status": {
            "replicas": (obj.get("status") or {}).get("replicas", 0),
            "selector": ",".join(f"{key}={value}" for key, value in sorted(labels.items())),
        },
    }


def set_scale(obj: JsonObject, scale: JsonObject) -> JsonObject:
    """Return the workload with the replicas of a Scale."""
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    version = (scale.get("metadata") or {}).get("resourceVersion")
    metadata = {**obj["metadata"], "resourceVersion": version or ""}
    return {**obj, "metadata": metadata, "spec": {**obj["spec"], "replicas": replicas}}


def _is_beyond_protection(pod: JsonObject) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or bool(
        pod["metadata"].get("deletionTimestamp")
    )


def _budgets_of(registry: Registry, pod: JsonObject) -> list[JsonObject]:
    labels = pod["metadata"].get("labels") or {}
    found = []
    for entry in registry.store.collection(DISRUPTION_BUDGETS).entries.values():
        if entry.namespace != pod["metadata"]["namespace"]:
            continue
        budget = entry.decode()
        try:
            selects = label_selector_predicate((budget.get("spec") or {}).get("selector"))
        except ValueError:
            # Upstream too treats a budget whose selector is nonsense as selecting nothing.
            continue
        if selects(labels):
            found.append(budget)
    return found


def _may_go_unhealthy(pod: JsonObject, budget: JsonObject) -> bool:
    """Whether an unready pod may go without being counted against the budget."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    if any(c["type"] == "Ready" and c["status"] == "True" for c in conditions):
        return False
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    wanted = status.get("desiredHealthy", 0)
    return bool(status.get("currentHealthy", 0) >= wanted > 0)


def _spend(registry: Registry, budget: JsonObject, pod_name: str, dry_run: bool) -> None:
    name, status = budget["metadata"]["name"], budget.setdefault("status", {})
    kind = GroupResource("policy", "poddisruptionbudget")
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        cause = f"The disruption budget {name} is still being processed by the server."
        raise too_many_requests(_DISRUPTED, 10, cause, "DisruptionBudget")
    allowed = status.get("disruptionsAllowed", 0)
    if allowed < 0:
        raise forbidden(kind, name, "pdb disruptions allowed is negative")
    if len(status.get("disruptedPods") or {}) > _MOST_DISRUPTED_PODS:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise forbidden(kind, name, why)
    if allowed == 0:
        wanted, healthy = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        cause = f"The disruption budget {name} does not allow evicting pods currently"
        if healthy <= wanted:
            need = f"needs {wanted} healthy pods and has {healthy} currently"
            cause = f"The disruption budget {name} {need}"
        raise too_many_requests(_DISRUPTED, 0, cause, "DisruptionBudget")
    if dry_run:
        return
    status["disruptionsAllowed"] = allowed - 1
    disrupted = dict(status.get("disruptedPods") or {})
    status["disruptedPods"] = {**disrupted, pod_name: rfc3339(registry.clock.wall())}
    namespace = budget["metadata"]["namespace"]
    entry = registry.get(DISRUPTION_BUDGETS, namespace, name)
    registry.write(DISRUPTION_BUDGETS, entry, budget)
