"""Discovery endpoints: groups, resources, version, OpenAPI.

The OpenAPI documents only say that every kind accepts ``fieldValidation``: that is what kubectl
looks
for before ``create`` and ``apply``, and it then leaves the checking to the server.
"""

from __future__ import annotations

from collections.abc import Callable

from ksched.apiserver.served_resources import PODS, JsonObject, Resource, ServedResources

VERSION = "v1.36.0"

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_UPDATE_VERBS = ["get", "patch", "update"]


def discover(path: str, resources: ServedResources) -> JsonObject | None:
    """Answer a discovery path (no query); ``None`` when it is none."""
    fixed = _FIXED.get(path)
    if fixed is not None:
        return fixed(resources)
    parts = path.strip("/").split("/")
    if parts[0] == "apis" and len(parts) == 2:
        return next((g for g in _groups(resources) if g["name"] == parts[1]), None)
    if parts[0] == "apis" and len(parts) == 3:
        return _resource_list("/".join(parts[1:]), resources)
    if parts[:2] == ["openapi", "v3"]:
        if parts[2:] == ["api", "v1"]:
            return _open_api("v1", resources)
        if len(parts) == 5 and parts[2] == "apis":
            return _open_api("/".join(parts[3:]), resources)
    return None


def _version(resources: ServedResources) -> JsonObject:
    major, minor = VERSION.lstrip("v").split(".")[:2]
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"{VERSION}+ksched",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "",
    }


def _core_versions(resources: ServedResources) -> JsonObject:
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}],
    }


def _group_versions(resources: ServedResources) -> list[str]:
    return list(dict.fromkeys(row.group_version for row in resources))


def _groups(resources: ServedResources) -> list[JsonObject]:
    """The groups with their versions; of several the one that is served first is preferred."""
    versions: dict[str, list[JsonObject]] = {}
    for group_version in _group_versions(resources):
        group, slash, version = group_version.partition("/")
        if slash:
            entry = {"groupVersion": group_version, "version": version}
            versions.setdefault(group, []).append(entry)
    return [
        {
            "kind": "APIGroup",
            "apiVersion": "v1",
            "name": group,
            "versions": entries,
            "preferredVersion": entries[0],
        }
        for group, entries in versions.items()
    ]


def _group_list(resources: ServedResources) -> JsonObject:
    groups = [
        {k: v for k, v in g.items() if k not in ("kind", "apiVersion")} for g in _groups(resources)
    ]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def _resource_list(group_version: str, resources: ServedResources) -> JsonObject | None:
    rows = [row for row in resources if row.group_version == group_version]
    if not rows:
        return None
    listed = [entry for row in rows for entry in _entries(row)]
    if group_version == "v1":
        listed.append(_entry("bindings", "Binding", True, ["create"], singularName="binding"))
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": listed,
    }


def _entries(row: Resource) -> list[JsonObject]:
    extra: JsonObject = {"singularName": row.singular}
    if row.short_names:
        extra["shortNames"] = list(row.short_names)
    if row.categories:
        extra["categories"] = list(row.categories)
    entries = [_entry(row.plural, row.kind, row.namespaced, _VERBS, **extra)]
    if row.status:
        entries.append(_entry(f"{row.plural}/status", row.kind, row.namespaced, _UPDATE_VERBS))
    if row.scale:
        scale = _entry(f"{row.plural}/scale", "Scale", row.namespaced, _UPDATE_VERBS)
        entries.append({**scale, "group": "autoscaling", "version": "v1"})
    if row is PODS:
        entries.append(_entry("pods/binding", "Binding", True, ["create"]))
        eviction = _entry("pods/eviction", "Eviction", True, ["create"])
        entries.append({**eviction, "group": "policy", "version": "v1"})
        entries.append(_entry("pods/resize", "Pod", True, _UPDATE_VERBS))
    return entries


def _entry(name: str, kind: str, namespaced: bool, verbs: list[str], **extra: object) -> JsonObject:
    entry = {"name": name, "singularName": "", "namespaced": namespaced, "kind": kind}
    return {**entry, "verbs": verbs, **extra}


def _open_api_index(resources: ServedResources) -> JsonObject:
    def prefix(group_version: str) -> str:
        return f"apis/{group_version}" if "/" in group_version else f"api/{group_version}"

    paths = {
        prefix(group_version): {"serverRelativeURL": f"/openapi/v3/{prefix(group_version)}?hash=1"}
        for group_version in _group_versions(resources)
    }
    return {"paths": paths}


def _open_api(group_version: str, resources: ServedResources) -> JsonObject | None:
    rows = [row for row in resources if row.group_version == group_version]
    if not rows:
        return None
    parameters = [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}]
    paths: JsonObject = {}
    for row in rows:
        root = f"/apis/{group_version}" if row.group else f"/api/{group_version}"
        scope = "/namespaces/{namespace}" if row.namespaced else ""
        kind = {"group": row.group, "version": row.version, "kind": row.kind}
        operation = {"parameters": parameters, "x-kubernetes-group-version-kind": kind}
        paths[f"{root}{scope}/{row.plural}"] = {"post": operation}
        paths[f"{root}{scope}/{row.plural}/{{name}}"] = {"patch": operation, "put": operation}
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": VERSION},
        "paths": paths,
        "components": {"schemas": {}},
    }


_FIXED: dict[str, Callable[[ServedResources], JsonObject | None]] = {
    "/version": _version,
    "/api": _core_versions,
    "/apis": _group_list,
    "/api/v1": lambda resources: _resource_list("v1", resources),
    "/openapi/v3": _open_api_index,
}
