"""What the server refuses in a pod, and which of its fields may change later."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ksched.api.label_syntax import label_value_problems, qualified_name_problems
from ksched.api.quantity import NANOS, to_nanos
from ksched.apiserver.admission import qos_class
from ksched.apiserver.served_resources import JsonObject
from ksched.apiserver.status_errors import (
    FieldError,
    duplicate,
    forbidden_field,
    invalid_value,
    not_supported,
    required,
)

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_PROBLEM = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex "
    "used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_UPDATABLE = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_CONTAINER_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
_OTHER_RESOURCES = frozenset({"pods", "services", "secrets", "configmaps", "storage"})
_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def validate_pod(pod: JsonObject) -> list[FieldError]:
    """Return what is wrong with a new pod."""
    spec = pod["spec"]
    errors = validate_pod_spec(spec, "spec")
    if spec.get("ephemeralContainers"):
        errors.append(forbidden_field("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("nodeName") and spec.get("schedulingGates"):
        problem = "cannot be set until all schedulingGates have been cleared"
        errors.append(forbidden_field("spec.nodeName", problem))
    return errors


def validate_pod_spec(spec: JsonObject, path: str) -> list[FieldError]:
    """Return what is wrong with a pod spec, be it a pod's or a template's."""
    errors: list[FieldError] = []
    if not spec.get("containers"):
        errors.append(required(f"{path}.containers"))
    names: set[str] = set()
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(kind) or []):
            errors += _container(container, f"{path}.{kind}[{index}]", names)
    if spec.get("restartPolicy") not in _RESTART_POLICIES:
        policy = spec.get("restartPolicy")
        errors.append(not_supported(f"{path}.restartPolicy", policy, _RESTART_POLICIES))
    for key, value in (spec.get("nodeSelector") or {}).items():
        errors += _named(f"{path}.nodeSelector", key)
        errors += _label_values(f"{path}.nodeSelector", [value])
    for index, toleration in enumerate(spec.get("tolerations") or []):
        errors += _toleration(toleration, f"{path}.tolerations[{index}]")
    for index, constraint in enumerate(spec.get("topologySpreadConstraints") or []):
        errors += _spread(constraint, f"{path}.topologySpreadConstraints[{index}]")
    return errors + _affinity(spec.get("affinity") or {}, f"{path}.affinity")


def validate_pod_update(new: JsonObject, old: JsonObject, subresource: str) -> list[FieldError]:
    """Return what a change of a pod must not have changed."""
    if subresource == "resize":
        before = qos_class(old["spec"])
        if qos_class(new["spec"]) == before:
            return validate_pod_spec(new["spec"], "spec")
        problem = "Pod QOS Class may not change as a result of resizing"
        return [invalid_value("spec", qos_class(new["spec"]), problem)]
    before, after = old["spec"], dict(new["spec"])
    if before == after:
        return []
    errors = validate_pod_spec(after, "spec")
    for kind in ("containers", "initContainers"):
        olds, news = before.get(kind) or [], after.get(kind) or []
        if len(olds) != len(news):
            problem = "pod updates may not add or remove containers"
            return [*errors, forbidden_field(f"spec.{kind}", problem)]
        if kind in after:
            pairs = zip(olds, news, strict=True)
            after[kind] = [{**new, "image": old.get("image")} for old, new in pairs]
    errors += _only_added_tolerations(after.get("tolerations"), before.get("tolerations"))
    errors += _only_deleted_gates(after.get("schedulingGates"), before.get("schedulingGates"))
    free = ["activeDeadlineSeconds", "schedulingGates", "tolerations"]
    if before.get("schedulingGates"):
        errors += _narrowed_selector(after.get("nodeSelector"), before.get("nodeSelector"))
        free += ["nodeSelector", "affinity"]
    for field in free:
        after.pop(field, None)
    if after != {key: value for key, value in before.items() if key not in free}:
        changed = sorted(
            key for key in {*after, *before} - {*free} if after.get(key) != before.get(key)
        )
        problem = f"pod updates may not change fields other than {_UPDATABLE}\n{changed}"
        errors.append(forbidden_field("spec", problem))
    return errors


def _container(container: JsonObject, path: str, names: set[str]) -> list[FieldError]:
    errors: list[FieldError] = []
    name = container.get("name", "")
    if not name:
        errors.append(required(f"{path}.name"))
    elif _LABEL.fullmatch(name) is None or len(name) > 63:
        errors.append(invalid_value(f"{path}.name", name, _LABEL_PROBLEM))
    elif name in names:
        errors.append(duplicate(f"{path}.name", name))
    names.add(name)
    if not container.get("image"):
        errors.append(required(f"{path}.image"))
    for index, port in enumerate(container.get("ports") or []):
        for field in ("containerPort", "hostPort"):
            number = port.get(field)
            if number and not 0 < number < 65536:
                problem = "must be between 1 and 65535, inclusive"
                errors.append(invalid_value(f"{path}.ports[{index}].{field}", number, problem))
        if not port.get("containerPort"):
            errors.append(required(f"{path}.ports[{index}].containerPort"))
    return errors + _resources(container.get("resources") or {}, f"{path}.resources")


def _resources(resources: JsonObject, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for kind in ("limits", "requests"):
        for name, amount in (resources.get(kind) or {}).items():
            where = f"{path}.{kind}[{name}]"
            errors += _resource_name(name, where)
            nanos = to_nanos(amount)
            if nanos < 0:
                errors.append(invalid_value(where, amount, "must be greater than or equal to 0"))
            if nanos % NANOS and not _is_native(name):
                errors.append(invalid_value(where, amount, "must be an integer"))
    limits = resources.get("limits") or {}
    for name, amount in (resources.get("requests") or {}).items():
        errors += _request_within_limit(name, amount, limits.get(name), path)
    return errors


def _is_native(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


def _resource_name(name: str, path: str) -> list[FieldError]:
    errors = _named(path, name)
    if errors or "/" in name or name in _CONTAINER_RESOURCES or name.startswith("hugepages-"):
        return errors
    problems = ["must be a standard resource for containers"]
    if name not in _OTHER_RESOURCES:
        problems.insert(0, "must be a standard resource type or fully qualified")
    return [invalid_value(path, name, problem) for problem in problems]


def _request_within_limit(name: str, amount: str, limit: str | None, path: str) -> list[FieldError]:
    overcommits = _is_native(name) and not name.startswith("hugepages-")
    if limit is None:
        problem = "Limit must be set for non overcommitable resources"
        return [] if overcommits else [required(f"{path}.limits", problem)]
    asked, most = to_nanos(amount), to_nanos(limit)
    if asked != most and not overcommits:
        problem = f"must be equal to {name} limit of {limit}"
    elif asked > most:
        problem = f"must be less than or equal to {name} limit of {limit}"
    else:
        return []
    return [invalid_value(f"{path}.requests", amount, problem)]


def _toleration(toleration: JsonObject, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    key, operator = toleration.get("key", ""), toleration.get("operator", "")
    value, effect = toleration.get("value", ""), toleration.get("effect", "")
    if key:
        errors += _named(f"{path}.key", key)
    elif operator != "Exists":
        problem = (
            "operator must be Exists when `key` is empty, "
            'which means "match all values and all keys"'
        )
        errors.append(invalid_value(f"{path}.operator", operator, problem))
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        problem = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        errors.append(invalid_value(f"{path}.effect", effect, problem))
    if operator in ("Equal", ""):
        errors += _label_values(f"{path}.operator", [value])
    elif operator == "Exists":
        if value:
            problem = "value must be empty when `operator` is 'Exists'"
            errors.append(invalid_value(f"{path}.operator", value, problem))
    else:
        errors.append(not_supported(f"{path}.operator", operator, ("Equal", "Exists")))
    effects = ("NoSchedule", "PreferNoSchedule", "NoExecute")
    if effect and effect not in effects:
        errors.append(not_supported(f"{path}.effect", effect, effects))
    return errors


def _spread(constraint: JsonObject, path: str) -> list[FieldError]:
    errors = []
    if constraint.get("maxSkew", 0) <= 0:
        shown = constraint.get("maxSkew", 0)
        errors.append(invalid_value(f"{path}.maxSkew", shown, "must be greater than zero"))
    if not constraint.get("topologyKey"):
        errors.append(required(f"{path}.topologyKey", "can not be empty"))
    choices = ("DoNotSchedule", "ScheduleAnyway")
    if constraint.get("whenUnsatisfiable") not in choices:
        shown = constraint.get("whenUnsatisfiable", "")
        errors.append(not_supported(f"{path}.whenUnsatisfiable", shown, choices))
    return errors + _label_selector(constraint.get("labelSelector"), f"{path}.labelSelector")


def _affinity(affinity: JsonObject, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    node = affinity.get("nodeAffinity") or {}
    where = f"{path}.nodeAffinity.{_REQUIRED}"
    wanted = node.get(_REQUIRED)
    if wanted is not None:
        terms = wanted.get("nodeSelectorTerms") or []
        if not terms:
            problem = "must have at least one node selector term"
            errors.append(required(f"{where}.nodeSelectorTerms", problem))
        for index, term in enumerate(terms):
            errors += _node_term(term, f"{where}.nodeSelectorTerms[{index}]")
    for index, weighted in enumerate(node.get(_PREFERRED) or []):
        item = f"{path}.nodeAffinity.{_PREFERRED}[{index}]"
        errors += _weight(weighted, item)
        errors += _node_term(weighted.get("preference") or {}, f"{item}.preference")
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(kind) or {}
        for index, term in enumerate(terms.get(_REQUIRED) or []):
            errors += _pod_term(term, f"{path}.{kind}.{_REQUIRED}[{index}]")
        for index, weighted in enumerate(terms.get(_PREFERRED) or []):
            item = f"{path}.{kind}.{_PREFERRED}[{index}]"
            errors += _weight(weighted, item)
            errors += _pod_term(weighted.get("podAffinityTerm") or {}, f"{item}.podAffinityTerm")
    return errors


def _weight(weighted: JsonObject, path: str) -> list[FieldError]:
    weight = weighted.get("weight", 0)
    if 0 < weight <= 100:
        return []
    return [invalid_value(f"{path}.weight", weight, "must be in the range 1-100")]


def _node_term(term: JsonObject, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, requirement in enumerate(term.get("matchExpressions") or []):
        where = f"{path}.matchExpressions[{index}]"
        values = requirement.get("values") or []
        match requirement.get("operator", ""):
            case "In" | "NotIn" if not values:
                problem = "must be specified when `operator` is 'In' or 'NotIn'"
                errors.append(required(f"{where}.values", problem))
            case "Exists" | "DoesNotExist" if values:
                problem = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                errors.append(forbidden_field(f"{where}.values", problem))
            case "Gt" | "Lt" if len(values) != 1:
                problem = "must be specified single value when `operator` is 'Lt' or 'Gt'"
                errors.append(required(f"{where}.values", problem))
            case "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt":
                pass
            case operator:
                problem = "not a valid selector operator"
                errors.append(invalid_value(f"{where}.operator", operator, problem))
        errors += _named(f"{where}.key", requirement.get("key", ""))
        errors += _label_values(f"{where}.values", values)
    return errors


def _pod_term(term: JsonObject, path: str) -> list[FieldError]:
    errors = _label_selector(term.get("labelSelector"), f"{path}.labelSelector")
    errors += _label_selector(term.get("namespaceSelector"), f"{path}.namespaceSelector")
    if not term.get("topologyKey"):
        errors.append(required(f"{path}.topologyKey", "can not be empty"))
    return errors + _named(f"{path}.topologyKey", term.get("topologyKey", ""))


def _label_selector(selector: JsonObject | None, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if selector is None:
        return errors
    for key, value in (selector.get("matchLabels") or {}).items():
        errors += _named(f"{path}.matchLabels", key)
        errors += _label_values(f"{path}.matchLabels", [value])
    for index, requirement in enumerate(selector.get("matchExpressions") or []):
        where = f"{path}.matchExpressions[{index}]"
        values = requirement.get("values") or []
        match requirement.get("operator", ""):
            case "In" | "NotIn" if not values:
                problem = "must be specified when `operator` is 'In' or 'NotIn'"
                errors.append(required(f"{where}.values", problem))
            case "Exists" | "DoesNotExist" if values:
                problem = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                errors.append(forbidden_field(f"{where}.values", problem))
            case "In" | "NotIn" | "Exists" | "DoesNotExist":
                pass
            case operator:
                problem = "not a valid selector operator"
                errors.append(invalid_value(f"{where}.operator", operator, problem))
        errors += _named(f"{where}.key", requirement.get("key", ""))
        errors += _label_values(f"{where}.values", values)
    return errors


def _only_added_tolerations(new: Any, old: Any) -> list[FieldError]:
    def comparable(toleration: JsonObject) -> JsonObject:
        return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}

    kept = [comparable(toleration) for toleration in new or []]
    if all(comparable(toleration) in kept for toleration in old or []):
        return []
    problem = "existing toleration can not be modified except its tolerationSeconds"
    return [forbidden_field("spec.tolerations", problem)]


def _only_deleted_gates(new: Any, old: Any) -> list[FieldError]:
    before = {gate["name"] for gate in old or []}
    text = "only deletion is allowed, but found new scheduling gate"
    return [
        forbidden_field(f"spec.schedulingGates[{index}].name", f"{text} '{gate['name']}'")
        for index, gate in enumerate(new or [])
        if gate["name"] not in before
    ]


def _narrowed_selector(new: Any, old: Any) -> list[FieldError]:
    if all((new or {}).get(key) == value for key, value in (old or {}).items()):
        return []
    problem = "only additions are allowed (no mutations or deletions)"
    return [invalid_value("spec.nodeSelector", new, problem)]


def _named(path: str, name: str) -> list[FieldError]:
    return [invalid_value(path, name, problem) for problem in qualified_name_problems(name)]


def _label_values(path: str, values: Iterable[str]) -> list[FieldError]:
    return [invalid_value(path, v, problem) for v in values for problem in label_value_problems(v)]
