"""Desired state of Deployments, ReplicaSets, Jobs and disruption budgets, as pure functions.

Each takes objects and returns what should be; ``controllers`` makes it so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

import msgspec

from ksched.apiserver.served_resources import JsonObject
from ksched.clock import rfc3339

TEMPLATE_HASH = "pod-template-hash"
_DISRUPTED_SECONDS = 120.0
_HASH_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def is_terminating(obj: JsonObject) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


def is_active(pod: JsonObject) -> bool:
    """Whether a pod still counts for its controller."""
    return pod["status"].get("phase") not in ("Succeeded", "Failed") and not is_terminating(pod)


def is_ready(pod: JsonObject) -> bool:
    conditions = pod["status"].get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def controller_uid(obj: JsonObject) -> str:
    """Return the uid of the object's controller; empty when it has none."""
    owners = obj["metadata"].get("ownerReferences") or []
    return next((str(owner["uid"]) for owner in owners if owner.get("controller")), "")


def owner_reference(owner: JsonObject) -> JsonObject:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pod_from_template(owner: JsonObject) -> JsonObject:
    """Return a new pod of a ReplicaSet or Job."""
    template = owner["spec"]["template"]
    metadata = template.get("metadata") or {}
    kept = {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}
    return {
        "metadata": {
            "generateName": f"{owner['metadata']['name']}-",
            **kept,
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": template["spec"],
    }


def surplus_pods(pods: Sequence[JsonObject], wanted: int) -> list[JsonObject]:
    """Select the pods to delete: unbound ones first, then unready ones, then the youngest."""

    def rank(pod: JsonObject) -> tuple[bool, bool, int]:
        bound, version = bool(pod["spec"].get("nodeName")), int(pod["metadata"]["resourceVersion"])
        return bound, is_ready(pod), -version

    return sorted(pods, key=rank)[: max(0, len(pods) - wanted)]


def replica_set_status(replica_set: JsonObject, active: Sequence[JsonObject]) -> JsonObject:
    ready = sum(1 for pod in active if is_ready(pod))
    return {
        "replicas": len(active),
        "fullyLabeledReplicas": len(active),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "observedGeneration": replica_set["metadata"]["generation"],
    }


def template_hash(deployment: JsonObject) -> str:
    """Return a short name for a pod template; equal templates have equal names."""
    encoded = msgspec.json.encode(deployment["spec"]["template"], order="deterministic")
    digest = hashlib.sha256(encoded).digest()
    return "".join(_HASH_ALPHABET[byte % len(_HASH_ALPHABET)] for byte in digest[:10])


def replica_set_for(deployment: JsonObject, replicas: int) -> JsonObject:
    """Return the ReplicaSet of a Deployment's present template."""
    name, spec = template_hash(deployment), deployment["spec"]
    labels = {**(spec["template"]["metadata"].get("labels") or {}), TEMPLATE_HASH: name}
    selector = spec["selector"]
    matched = {**(selector.get("matchLabels") or {}), TEMPLATE_HASH: name}
    template = {**spec["template"], "metadata": {**spec["template"]["metadata"], "labels": labels}}
    return {
        "metadata": {
            "name": f"{deployment['metadata']['name']}-{name}",
            "labels": labels,
            "ownerReferences": [owner_reference(deployment)],
        },
        "spec": {
            "replicas": replicas,
            "selector": {**selector, "matchLabels": matched},
            "template": template,
        },
    }


class Rollout(NamedTuple):
    """How many replicas each ReplicaSet of a Deployment should have now."""

    current: int
    others: dict[str, int]


def rollout(
    deployment: JsonObject, current: JsonObject | None, others: Sequence[JsonObject]
) -> Rollout:
    """Take the next step from old ReplicaSets to the present one within surge and unavailability.

    ``deployment_controller: rolling.go``; the next step is taken when the status has moved.
    """
    wanted, strategy = deployment["spec"]["replicas"], deployment["spec"]["strategy"]
    if strategy["type"] == "Recreate":
        gone = all((rs.get("status") or {}).get("replicas", 0) == 0 for rs in others)
        return Rollout(wanted if gone else 0, {rs["metadata"]["name"]: 0 for rs in others})
    rolling = strategy["rollingUpdate"]
    surge = _absolute(rolling["maxSurge"], wanted, up=True)
    missing = _absolute(rolling["maxUnavailable"], wanted, up=False)
    if surge == 0 and missing == 0:
        missing = 1
    have = current["spec"]["replicas"] if current else 0
    total = have + sum(rs["spec"]["replicas"] for rs in others)
    grown = min(wanted, have + max(0, wanted + surge - total)) if have < wanted else wanted
    available = (current.get("status") or {}).get("availableReplicas", 0) if current else 0
    removable = max(0, total - (wanted - missing) - max(0, have - available))
    left = {}
    for rs in others:
        cut = min(rs["spec"]["replicas"], removable)
        removable -= cut
        left[rs["metadata"]["name"]] = rs["spec"]["replicas"] - cut
    return Rollout(grown, left)


def deployment_status(
    deployment: JsonObject, current: JsonObject | None, others: Sequence[JsonObject], now: float
) -> JsonObject:
    statuses = [rs.get("status") or {} for rs in ([current] if current else []) + list(others)]
    updated = (current.get("status") or {}).get("replicas", 0) if current else 0
    total = sum(status.get("replicas", 0) for status in statuses)
    available = sum(status.get("availableReplicas", 0) for status in statuses)
    wanted = deployment["spec"]["replicas"]
    rolling = deployment["spec"]["strategy"].get("rollingUpdate") or {}
    floor = wanted - _absolute(rolling.get("maxUnavailable", 0), wanted, up=False)
    value = "True" if available >= floor else "False"
    reason = "MinimumReplicasAvailable" if value == "True" else "MinimumReplicasUnavailable"
    old = (deployment.get("status") or {}).get("conditions") or []
    since = next((c["lastTransitionTime"] for c in old if c["status"] == value), rfc3339(now))
    return {
        "observedGeneration": deployment["metadata"]["generation"],
        "replicas": total,
        "updatedReplicas": updated,
        "readyReplicas": sum(status.get("readyReplicas", 0) for status in statuses),
        "availableReplicas": available,
        "unavailableReplicas": max(0, wanted - available),
        "conditions": [
            {
                "type": "Available",
                "status": value,
                "reason": reason,
                "message": f"Deployment has {available} available replicas.",
                "lastTransitionTime": since,
                "lastUpdateTime": since,
            }
        ],
    }


def job_status(job: JsonObject, pods: Sequence[JsonObject], now: float) -> JsonObject:
    phases = [pod["status"].get("phase") for pod in pods]
    succeeded, failed = phases.count("Succeeded"), phases.count("Failed")
    active, spec = [pod for pod in pods if is_active(pod)], job["spec"]
    old = job.get("status") or {}
    status: JsonObject = {"startTime": old.get("startTime") or rfc3339(now)}
    ended = ""
    if succeeded >= (spec.get("completions") or 1):
        ended = "Complete"
        status["completionTime"] = old.get("completionTime") or rfc3339(now)
    elif failed > spec["backoffLimit"]:
        ended = "Failed"
    status |= {"active": len(active), "ready": sum(1 for pod in active if is_ready(pod))}
    status |= {"succeeded": succeeded, "failed": failed}
    if ended:
        found = [c for c in old.get("conditions") or [] if c["type"] == ended]
        new = {"type": ended, "status": "True", "lastTransitionTime": rfc3339(now)}
        status["conditions"] = found or [new]
    return status


def job_pods_missing(job: JsonObject, status: JsonObject) -> int:
    """Return how many more pods a job needs now."""
    if status.get("conditions") or job["spec"].get("suspend"):
        return 0
    left: int = (job["spec"].get("completions") or 1) - status["succeeded"]
    active: int = status["active"]
    return max(0, min(int(job["spec"]["parallelism"]), left) - active)


def budget_status(
    budget: JsonObject, pods: Sequence[JsonObject], expected: int, now: float
) -> JsonObject:
    """Return a disruption budget's status for the pods it selects.

    ``expected`` is what their controllers want; the pods there may be fewer.
    """
    spec, old = budget.get("spec") or {}, budget.get("status") or {}
    disrupted = {
        pod["metadata"]["name"]: since
        for pod in pods
        if (since := (old.get("disruptedPods") or {}).get(pod["metadata"]["name"]))
        and not is_terminating(pod)
        and since > rfc3339(now - _DISRUPTED_SECONDS)
    }
    healthy = sum(
        1
        for pod in pods
        if is_active(pod) and is_ready(pod) and pod["metadata"]["name"] not in disrupted
    )
    if spec.get("maxUnavailable") is not None:
        desired = max(0, expected - _absolute(spec["maxUnavailable"], expected, up=True))
    else:
        minimum = spec.get("minAvailable", 1)
        if isinstance(minimum, int):
            expected = sum(1 for pod in pods if is_active(pod))
        desired = _absolute(minimum, expected, up=True)
    allowed = max(0, healthy - desired) if expected else 0
    status: JsonObject = {
        "observedGeneration": budget["metadata"]["generation"],
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
    }
    if disrupted:
        status["disruptedPods"] = disrupted
    value, reason = ("True", "SufficientPods") if allowed else ("False", "InsufficientPods")
    since = rfc3339(now)
    for condition in old.get("conditions") or []:
        if condition["status"] == value:
            since = condition["lastTransitionTime"]
    status["conditions"] = [
        {
            "type": "DisruptionAllowed",
            "status": value,
            "reason": reason,
            "message": "",
            "lastTransitionTime": since,
            "observedGeneration": budget["metadata"]["generation"],
        }
    ]
    return status


def _absolute(amount: int | str, whole: int, *, up: bool) -> int:
    """Resolve a number or a percentage."""
    if isinstance(amount, int):
        return amount
    share = int(amount.removesuffix("%")) * whole
    return ceil(share / 100) if up else share // 100
