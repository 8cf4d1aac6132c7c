"""Strategic merge patch: a merge patch in which some lists are sets of named items.

In the real server the knowledge comes from tags on Go structs; here it is the table below. A list
that is not in it is replaced as a whole, which is also what the real server does with untagged
lists (so
with ``taints`` and ``tolerations``).
"""

from __future__ import annotations

from typing import Any

from ksched.apiserver.served_resources import JsonObject
from ksched.apiserver.status_errors import StatusError, bad_request

_MERGE_KEYS = {
    "conditions": "type",
    "addresses": "type",
    "ownerReferences": "uid",
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "secrets": "name",
    "hostAliases": "ip",
    "podIPs": "ip",
    "hostIPs": "ip",
    "schedulingGates": "name",
    "resourceClaims": "name",
    "resourceClaimStatuses": "name",
    "reservedFor": "uid",
    "topologySpreadConstraints": "topologyKey",
    "env": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "drivers": "name",
}
_PRIMITIVE_SETS = frozenset({"finalizers", "podCIDRs"})

_ORDER, _DELETE = "$setElementOrder/", "$deleteFromPrimitiveList/"
_DIRECTIVES = ("$patch", "$retainKeys")


def strategic_merge(original: JsonObject, patch: JsonObject) -> JsonObject:
    """Return ``original`` with the patch applied; both may be consumed."""
    return _merge_map(original, patch, ())


def _merge_map(original: JsonObject, patch: JsonObject, path: tuple[str, ...]) -> JsonObject:
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise bad_request(f"unknown patch type found: {directive}")
    if "$retainKeys" in patch:
        kept = set(patch["$retainKeys"])
        original = {key: value for key, value in original.items() if key in kept}
    for key, value in patch.items():
        if key.startswith(_DELETE):
            name, gone = key.removeprefix(_DELETE), set(value)
            if name in original:
                original[name] = [item for item in original[name] if item not in gone]
        elif key in _DIRECTIVES or key.startswith(_ORDER):
            continue
        elif value is None:
            original.pop(key, None)
        else:
            order = patch.get(_ORDER + key)
            original[key] = _merge_value(original.get(key), value, order, (*path, key))
    for key, order in patch.items():
        name = key.removeprefix(_ORDER)
        if key.startswith(_ORDER) and name not in patch and name in original:
            original[name] = _ordered(
                original[name], order, original[name], _merge_key((*path, name))
            )
    return original


def _merge_value(original: Any, value: Any, order: Any, path: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        return _merge_map(original if isinstance(original, dict) else {}, value, path)
    if not isinstance(value, list):
        return value
    present = original if isinstance(original, list) else []
    if path[-1] in _PRIMITIVE_SETS:
        merged = present + [item for item in value if item not in present]
        return merged if order is None else _ordered(merged, order, present, None)
    key = _merge_key(path)
    if key is None or not all(isinstance(item, dict) for item in value):
        return value
    return _merge_list(present, value, order, key, path)


def _merge_key(path: tuple[str, ...]) -> str | None:
    name = path[-1]
    if name == "ports":
        inside_container = len(path) > 1 and path[-2].lower().endswith("containers")
        return "containerPort" if inside_container else "port"
    return _MERGE_KEYS.get(name)


def _merge_list(
    original: list[JsonObject],
    patch: list[JsonObject],
    order: list[Any] | None,
    key: str,
    path: tuple[str, ...],
) -> list[JsonObject]:
    if any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if item.get("$patch") != "replace"]
    merged = list(original)
    for item in patch:
        if key not in item:
            shown = " ".join(f"{name}:{value}" for name, value in sorted(item.items()))
            # Upstream forgets to make this a status, so it is a 500.
            problem = f"map: map[{shown}] does not contain declared merge key: {key}"
            raise StatusError(500, "", problem)
        index = next((i for i, old in enumerate(merged) if old.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            merged = [old for old in merged if old.get(key) != item[key]]
        elif index is None:
            merged.append(_merge_map({}, item, path))
        else:
            merged[index] = _merge_map(merged[index], item, path)
    return merged if order is None else _ordered(merged, order, original, key)


def _ordered(merged: list[Any], order: list[Any], server: list[Any], key: str | None) -> list[Any]:
    """Put the elements the client named in its order, the others where the server had them."""

    def identity(item: Any) -> Any:
        return item.get(key) if key is not None and isinstance(item, dict) else item

    wanted = [identity(item) for item in order]
    on_server = [identity(item) for item in server]
    named = sorted(
        (item for item in merged if identity(item) in wanted),
        key=lambda item: wanted.index(identity(item)),
    )
    others = [item for item in merged if identity(item) not in wanted]
    result: list[Any] = []
    while named and others:
        left, right = identity(named[0]), identity(others[0])
        both_known = left in on_server and right in on_server
        other_first = both_known and on_server.index(right) < on_server.index(left)
        result.append((others if other_first else named).pop(0))
    return [*result, *named, *others]
