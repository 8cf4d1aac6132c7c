"""Deletion: preconditions, grace periods, finalizers (``rest.BeforeDelete`` and its callers).

A pod bound to a node is only marked; its kubelet stops it and deletes it again with a grace period
of zero. Whatever carries a finalizer waits for its owner to take it off.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from ksched.apiserver.object_store import Entry
from ksched.apiserver.resource_registry import Registry
from ksched.apiserver.served_resources import NAMESPACES, PODS, JsonObject, Resource
from ksched.apiserver.status_errors import (
    GroupResource,
    conflict,
    forbidden,
    invalid,
    not_supported,
)
from ksched.clock import rfc3339

ORPHAN = "Orphan"


class DeleteOptions(NamedTuple):
    """The options of a DELETE."""

    grace_period_seconds: int | None = None
    uid: str | None = None
    resource_version: str | None = None
    propagation_policy: str = ""
    dry_run: bool = False

    @classmethod
    def parse(cls, body: JsonObject, query: dict[str, str]) -> DeleteOptions:
        """Read the options from the body, then from the query, which wins."""
        preconditions = body.get("preconditions") or {}
        grace = query.get("gracePeriodSeconds", body.get("gracePeriodSeconds"))
        policy = query.get("propagationPolicy") or body.get("propagationPolicy") or ""
        if body.get("orphanDependents") is True:
            policy = ORPHAN
        return cls(
            int(grace) if grace is not None else None,
            preconditions.get("uid"),
            preconditions.get("resourceVersion"),
            policy,
            "All" in (body.get("dryRun") or [query.get("dryRun")]),
        )


def delete(
    registry: Registry, resource: Resource, entry: Entry, options: DeleteOptions
) -> tuple[Entry, bool]:
    """Delete an object or mark it for deletion; the flag is true if it is gone."""
    obj = entry.decode()
    check_preconditions(resource, entry, obj, options)
    if resource is NAMESPACES:
        return _delete_namespace(registry, entry, obj, options)
    if options.propagation_policy == ORPHAN and not options.dry_run:
        _orphan_dependents(registry, obj["metadata"]["uid"])
    metadata = obj["metadata"]
    marked, pending = _mark_gracefully(registry, resource, obj, options)
    if pending:
        return entry, False
    finalizers = bool(metadata.get("finalizers"))
    if finalizers and not marked:
        _mark(registry, metadata, 0)
    if options.dry_run:
        return Entry(resource, obj, entry.version), not finalizers
    if marked or finalizers:
        entry = registry.write(resource, entry, obj)
    if finalizers or (marked and metadata["deletionGracePeriodSeconds"] > 0):
        return entry, False
    return registry.store.delete(resource, entry), True


def check_preconditions(
    resource: Resource, entry: Entry, obj: JsonObject, options: DeleteOptions
) -> None:
    """Refuse to delete another incarnation or version than the caller means."""
    uid, kind = obj["metadata"]["uid"], resource.group_kind
    if options.uid is not None and options.uid != uid:
        raise conflict(
            kind,
            entry.name,
            f"the UID in the precondition ({options.uid}) does not match the UID in record "
            f"({uid}). The object might have been deleted and then recreated",
        )
    version = str(entry.version)
    if options.resource_version is not None and options.resource_version != version:
        raise conflict(
            kind,
            entry.name,
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match "
            f"the ResourceVersion in record ({version}). The object might have been modified",
        )
    policies = ("Foreground", "Background", ORPHAN, "nil")
    if options.propagation_policy not in ("", *policies[:3]):
        problem = not_supported("propagationPolicy", options.propagation_policy, policies)
        raise invalid(GroupResource("meta.k8s.io", "DeleteOptions"), "", [problem])


def _mark_gracefully(
    registry: Registry, resource: Resource, obj: JsonObject, options: DeleteOptions
) -> tuple[bool, bool]:
    """Set or shorten a pod's grace period; returns (changed, already under way)."""
    if resource is not PODS:
        return False, False
    metadata, asked = obj["metadata"], options.grace_period_seconds
    if asked is not None and asked < 0:
        asked = 1
    if not metadata.get("deletionTimestamp"):
        _mark(registry, metadata, _grace_period(obj, asked))
        return True, False
    current = metadata.get("deletionGracePeriodSeconds")
    if not current:
        return False, False
    if asked is None or asked >= current:
        return False, True
    deadline = datetime.fromisoformat(metadata["deletionTimestamp"]).timestamp() - current + asked
    now = registry.clock.wall()
    if deadline < now:
        deadline, asked = now, min(asked, 1)
    metadata["deletionTimestamp"] = rfc3339(deadline)
    metadata["deletionGracePeriodSeconds"] = asked
    return True, False


def _grace_period(pod: JsonObject, asked: int | None) -> int:
    spec, phase = pod["spec"], (pod.get("status") or {}).get("phase")
    if not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
        return 0
    period = asked if asked is not None else spec.get("terminationGracePeriodSeconds", 0)
    return 1 if period < 0 else int(period)


def _mark(registry: Registry, metadata: JsonObject, grace_period_seconds: int) -> None:
    if not metadata.get("deletionTimestamp"):
        if metadata.get("generation"):
            metadata["generation"] += 1
        metadata["deletionTimestamp"] = rfc3339(registry.clock.wall() + grace_period_seconds)
    metadata["deletionGracePeriodSeconds"] = grace_period_seconds


def _delete_namespace(
    registry: Registry, entry: Entry, namespace: JsonObject, options: DeleteOptions
) -> tuple[Entry, bool]:
    """Mark a namespace; its last finalizer is removed from the spec when it is empty."""
    if entry.name in ("default", "kube-system", "kube-public"):
        why = "this namespace may not be deleted"
        raise forbidden(NAMESPACES.group_resource, entry.name, why)
    if not namespace["metadata"].get("deletionTimestamp"):
        _mark(registry, namespace["metadata"], 0)
        del namespace["metadata"]["deletionGracePeriodSeconds"]
        namespace["status"] = {**(namespace.get("status") or {}), "phase": "Terminating"}
        if options.dry_run:
            return Entry(NAMESPACES, namespace, entry.version), False
        entry = registry.write(NAMESPACES, entry, namespace)
    if (namespace.get("spec") or {}).get("finalizers"):
        return entry, False
    return registry.store.delete(NAMESPACES, entry), True


def finalize_namespace(registry: Registry, entry: Entry, obj: JsonObject) -> Entry:
    """Replace a namespace's spec finalizers; without any, one being deleted goes."""
    namespace = entry.decode()
    namespace["spec"] = {"finalizers": (obj.get("spec") or {}).get("finalizers") or []}
    if namespace["metadata"].get("deletionTimestamp") and not namespace["spec"]["finalizers"]:
        return registry.store.delete(NAMESPACES, entry)
    return registry.write(NAMESPACES, entry, namespace)


def _orphan_dependents(registry: Registry, uid: str) -> None:
    for resource in tuple(registry.resources):
        for entry in tuple(registry.store.collection(resource).entries.values()):
            if uid.encode() not in entry.raw:
                continue
            obj = entry.decode()
            owners = obj["metadata"].get("ownerReferences") or []
            kept = [owner for owner in owners if owner.get("uid") != uid]
            if len(kept) != len(owners):
                obj["metadata"]["ownerReferences"] = kept
                if not kept:
                    del obj["metadata"]["ownerReferences"]
                registry.write(resource, entry, obj)
