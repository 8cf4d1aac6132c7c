"""What the server refuses to store: names, labels and the rules of each kind.

The rules are those a scheduler or its tests can run into, not all of kube-apiserver's. Wording and
field paths are upstream's (``pkg/apis/*/validation``), because people read them in kubectl.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ksched.api.label_syntax import label_value_problems, qualified_name_problems
from ksched.apiserver.custom_definitions import validate_definition
from ksched.apiserver.pod_validation import validate_pod, validate_pod_spec, validate_pod_update
from ksched.apiserver.selection import label_selector_predicate
from ksched.apiserver.served_resources import JsonObject, Resource
from ksched.apiserver.status_errors import (
    FieldError,
    GroupResource,
    forbidden_field,
    invalid,
    invalid_value,
    not_supported,
    required,
)

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")
_SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")

_SUBDOMAIN_PROBLEM = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex "
    "used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_PROBLEM = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex "
    "used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_SERVICE_PROBLEM = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    "regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_HIGHEST_USER_PRIORITY = 1_000_000_000
_LONGEST_EVENT_WORD, _LONGEST_EVENT_NOTE = 128, 1024
_TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def validate_create(resource: Resource, obj: JsonObject) -> None:
    """Refuse a new object that breaks a rule; every broken rule is named."""
    errors = [*_metadata(resource, obj["metadata"]), *_specific(resource, obj)]
    if errors:
        raise invalid(resource.group_kind, obj["metadata"].get("name", ""), errors)


def validate_update(resource: Resource, new: JsonObject, old: JsonObject, subresource: str) -> None:
    """Refuse a change that breaks a rule."""
    errors = _metadata_update(new["metadata"], old["metadata"])
    errors += _metadata(resource, new["metadata"])
    if resource.plural == "pods":
        if subresource != "status":
            errors += validate_pod_update(new, old, subresource)
    else:
        errors += _specific(resource, new)
    if resource.plural == "priorityclasses":
        for field in ("value", "preemptionPolicy"):
            if new.get(field) != old.get(field):
                errors.append(forbidden_field(field, "may not be changed in an update."))
    if errors:
        raise invalid(resource.group_kind, old["metadata"]["name"], errors)


def _metadata(resource: Resource, metadata: JsonObject) -> list[FieldError]:
    errors: list[FieldError] = []
    name = metadata.get("name", "")
    if not name:
        errors.append(required("metadata.name", "name or generateName is required"))
    else:
        problems = _name_problems(resource, name)
        errors += [invalid_value("metadata.name", name, problem) for problem in problems]
    for key, value in (metadata.get("labels") or {}).items():
        problems = list(qualified_name_problems(key))
        errors += [invalid_value("metadata.labels", key, problem) for problem in problems]
        problems = list(label_value_problems(str(value)))
        errors += [invalid_value("metadata.labels", value, problem) for problem in problems]
    for key in metadata.get("annotations") or {}:
        problems = list(qualified_name_problems(key.lower()))
        errors += [invalid_value("metadata.annotations", key, problem) for problem in problems]
    return errors


def _name_problems(resource: Resource, name: str) -> list[str]:
    if resource.group == "rbac.authorization.k8s.io":
        return ["may not contain '/'"] if "/" in name or "%" in name else []
    pattern, longest, problem = _SUBDOMAIN, 253, _SUBDOMAIN_PROBLEM
    if resource.plural == "namespaces":
        pattern, longest, problem = _LABEL, 63, _LABEL_PROBLEM
    elif resource.plural == "services":
        pattern, longest, problem = _SERVICE_NAME, 63, _SERVICE_PROBLEM
    problems = []
    if len(name) > longest:
        problems.append(f"must be no more than {longest} bytes")
    if pattern.fullmatch(name) is None:
        problems.append(problem)
    return problems


def _metadata_update(new: JsonObject, old: JsonObject) -> list[FieldError]:
    errors = []
    for field in ("name", "namespace", "uid", "creationTimestamp"):
        if new.get(field, "") != old.get(field, ""):
            shown = new.get(field, "")
            errors.append(invalid_value(f"metadata.{field}", shown, "field is immutable"))
    if old.get("deletionTimestamp"):
        added = [f for f in new.get("finalizers") or [] if f not in (old.get("finalizers") or [])]
        if added:
            text = "no new finalizers can be added if the object is being deleted, found new "
            shown = ", ".join(f'"{finalizer}"' for finalizer in added)
            problem = f"{text}finalizers []string{{{shown}}}"
            errors.append(forbidden_field("metadata.finalizers", problem))
    return errors


def _specific(resource: Resource, obj: JsonObject) -> list[FieldError]:
    rule = _RULES.get(str(resource.group_resource))
    return [] if rule is None else rule(obj)


def _node(node: JsonObject) -> list[FieldError]:
    errors: list[FieldError] = []
    seen = set()
    for index, taint in enumerate(node["spec"].get("taints") or []):
        # Upstream reports taints under metadata; people may have come to expect it.
        path = f"metadata.taints[{index}]"
        key, effect = taint.get("key", ""), taint.get("effect", "")
        errors += [invalid_value(f"{path}.key", key, p) for p in qualified_name_problems(key)]
        value = taint.get("value", "")
        errors += [invalid_value(f"{path}.value", value, p) for p in label_value_problems(value)]
        if not effect:
            errors.append(required(f"{path}.effect"))
        elif effect not in _TAINT_EFFECTS:
            errors.append(not_supported(f"{path}.effect", effect, _TAINT_EFFECTS))
        if (key, effect) in seen:
            body = f"Duplicate value: {taint}: taints must be unique by key and effect pair"
            errors.append(FieldError("FieldValueDuplicate", path, body))
        seen.add((key, effect))
    for kind in ("capacity", "allocatable"):
        for name, amount in (node["status"].get(kind) or {}).items():
            if str(amount).startswith("-"):
                problem = "must be greater than or equal to 0"
                errors.append(invalid_value(f"status.{kind}.{name}", amount, problem))
    return errors


def _priority_class(priority_class: JsonObject) -> list[FieldError]:
    name, value = priority_class["metadata"]["name"], priority_class.get("value", 0)
    if name.startswith("system-"):
        from_system = {
            "system-cluster-critical": 2_000_000_000,
            "system-node-critical": 2_000_001_000,
        }
        if from_system.get(name) != value:
            problem = (
                "priority class names with 'system-' prefix are reserved for system use only. "
                f"error: {name} is not a known system priority class"
            )
            return [forbidden_field("metadata.name", problem)]
    elif value > _HIGHEST_USER_PRIORITY:
        problem = f"maximum allowed value of a user defined priority is {_HIGHEST_USER_PRIORITY}"
        return [forbidden_field("value", problem)]
    return []


def _lease(lease: JsonObject) -> list[FieldError]:
    spec = lease.get("spec") or {}
    errors = []
    if spec.get("leaseDurationSeconds") is not None and spec["leaseDurationSeconds"] <= 0:
        shown = spec["leaseDurationSeconds"]
        errors.append(invalid_value("spec.leaseDurationSeconds", shown, "must be greater than 0"))
    if spec.get("leaseTransitions") is not None and spec["leaseTransitions"] < 0:
        problem = "must be greater than or equal to 0"
        errors.append(invalid_value("spec.leaseTransitions", spec["leaseTransitions"], problem))
    return errors


def _disruption_budget(budget: JsonObject) -> list[FieldError]:
    spec = budget.get("spec") or {}
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        problem = "minAvailable and maxUnavailable cannot be both set"
        return [invalid_value("spec", spec, problem)]
    return []


def _workload(workload: JsonObject) -> list[FieldError]:
    spec = workload["spec"]
    errors: list[FieldError] = []
    labels = (spec["template"].get("metadata") or {}).get("labels")
    if not spec.get("selector"):
        errors.append(required("spec.selector"))
    try:
        selects = label_selector_predicate(spec.get("selector"))(labels or {})
    except ValueError as error:
        errors.append(invalid_value("spec.selector", spec["selector"], str(error)))
    else:
        if not selects:
            problem = "`selector` does not match template `labels`"
            errors.append(invalid_value("spec.template.metadata.labels", labels, problem))
    if spec.get("replicas", 0) < 0:
        problem = "must be greater than or equal to 0"
        errors.append(invalid_value("spec.replicas", spec["replicas"], problem))
    return errors + validate_pod_spec(spec["template"]["spec"], "spec.template.spec")


def _pod_group(group: JsonObject) -> list[FieldError]:
    policy = (group.get("spec") or {}).get("schedulingPolicy") or {}
    path = "spec.schedulingPolicy"
    if len([name for name in ("basic", "gang") if policy.get(name) is not None]) != 1:
        problem = "must specify exactly one of: `basic`, `gang`"
        return [invalid_value(path, policy, problem)]
    least = (policy.get("gang") or {"minCount": 1}).get("minCount", 0)
    if least < 1:
        problem = "must be greater than or equal to 1"
        return [invalid_value(f"{path}.gang.minCount", least, problem)]
    return []


def _job(job: JsonObject) -> list[FieldError]:
    spec = job["spec"]["template"]["spec"]
    errors = validate_pod_spec(spec, "spec.template.spec")
    if spec.get("restartPolicy") == "Always":
        path = "spec.template.spec.restartPolicy"
        errors.append(required(path, 'valid values: "OnFailure", "Never"'))
    return errors


def _replication_controller(controller: JsonObject) -> list[FieldError]:
    return validate_pod_spec(controller["spec"]["template"]["spec"], "spec.template.spec")


def validate_new_event(event: JsonObject, namespace: str) -> None:
    """Refuse an event that came as ``events.k8s.io/v1``, which is stricter than ``v1``."""
    errors = _event_problems(event, namespace, "reportingController")
    if not event.get("eventTime"):
        errors.append(required("eventTime"))
    if event.get("type") not in ("Normal", "Warning"):
        problem = f"has invalid value: {event.get('type', '')}"
        errors.append(invalid_value("type", "", problem))
    if errors:
        name = (event.get("metadata") or {}).get("name", "")
        raise invalid(GroupResource("", "Event"), name, errors)


def _event(event: JsonObject) -> list[FieldError]:
    return _event_problems(event, event["metadata"].get("namespace", ""), "reportingComponent")


def _event_problems(event: JsonObject, own: str, controller_field: str) -> list[FieldError]:
    namespace = (event.get("involvedObject") or {}).get("namespace", "")
    is_new = bool(event.get("eventTime"))
    without = ("default", "kube-system") if is_new else ("", "default")
    errors: list[FieldError] = []
    if (not namespace and own not in without) or (namespace and namespace != own and not is_new):
        problem = "does not match event.namespace"
        errors.append(invalid_value("involvedObject.namespace", namespace, problem))
    if not is_new:
        return errors
    controller = event.get("reportingComponent", "")
    if not controller:
        errors.append(required(controller_field))
    errors += [
        invalid_value(controller_field, controller, p) for p in qualified_name_problems(controller)
    ]
    for field in ("reportingInstance", "action", "reason"):
        text = event.get(field, "")
        if not text:
            errors.append(required(field))
        if len(text) > _LONGEST_EVENT_WORD:
            problem = f"can have at most {_LONGEST_EVENT_WORD} characters"
            errors.append(invalid_value(field, "", problem))
    if len(event.get("message", "")) > _LONGEST_EVENT_NOTE:
        problem = f"can have at most {_LONGEST_EVENT_NOTE} characters"
        errors.append(invalid_value("message", "", problem))
    return errors


_RULES: dict[str, Callable[[Any], list[FieldError]]] = {
    "customresourcedefinitions.apiextensions.k8s.io": validate_definition,
    "pods": validate_pod,
    "nodes": _node,
    "events": _event,
    "events.events.k8s.io": _event,
    "replicationcontrollers": _replication_controller,
    "priorityclasses.scheduling.k8s.io": _priority_class,
    "leases.coordination.k8s.io": _lease,
    "poddisruptionbudgets.policy": _disruption_budget,
    "deployments.apps": _workload,
    "replicasets.apps": _workload,
    "statefulsets.apps": _workload,
    "daemonsets.apps": _workload,
    "jobs.batch": _job,
    "podgroups.scheduling.k8s.io": _pod_group,
}
