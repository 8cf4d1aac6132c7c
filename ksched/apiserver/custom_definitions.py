"""CustomResourceDefinitions: their defaults, their rules, and how their objects are served."""

from __future__ import annotations

from ksched.apiserver.served_resources import JsonObject, Resource
from ksched.apiserver.status_errors import FieldError, invalid_value, not_supported, required


def served_row(definition: JsonObject) -> Resource:
    """How the objects of a definition are served."""
    spec = definition["spec"]
    names, version = spec["names"], _storage_version(spec)
    return Resource(
        spec["group"],
        version["name"],
        names["plural"],
        names["kind"],
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        status="status" in (version.get("subresources") or {}),
        generation=True,
        unconditional_update=False,
        is_custom=True,
        columns=tuple(version.get("additionalPrinterColumns") or ()),
    )


def set_definition_defaults(definition: JsonObject) -> None:
    """Accept the names of a definition, as its controller would a moment later."""
    spec = definition.get("spec") or {}
    names = spec.get("names") or {}
    kind = names.get("kind") or ""
    names.setdefault("singular", kind.lower())
    names.setdefault("listKind", f"{kind}List")
    since = definition["metadata"].get("creationTimestamp")
    definition.setdefault(
        "status",
        {
            "conditions": [
                {
                    "type": condition,
                    "status": "True",
                    "reason": reason,
                    "message": message,
                    "lastTransitionTime": since,
                }
                for condition, reason, message in (
                    ("NamesAccepted", "NoConflicts", "no conflicts found"),
                    ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
                )
            ],
            "acceptedNames": names,
            "storedVersions": [
                one["name"] for one in spec.get("versions") or [] if one.get("storage")
            ],
        },
    )


def validate_definition(definition: JsonObject) -> list[FieldError]:
    """What keeps a definition from being served."""
    errors: list[FieldError] = []
    spec = definition.get("spec") or {}
    names = spec.get("names") or {}
    for field, value in (
        ("spec.group", spec.get("group")),
        ("spec.names.plural", names.get("plural")),
        ("spec.names.kind", names.get("kind")),
    ):
        if not value:
            errors.append(required(field))
    if spec.get("scope") not in ("Namespaced", "Cluster"):
        errors.append(not_supported("spec.scope", spec.get("scope"), ("Cluster", "Namespaced")))
    stored = [one for one in spec.get("versions") or [] if one.get("storage")]
    if len(stored) != 1 or not stored[0].get("name"):
        shown = [one.get("name") for one in spec.get("versions") or []]
        message = "must have exactly one version marked as storage version"
        errors.append(invalid_value("spec.versions", shown, message))
    wanted = f"{names.get('plural')}.{spec.get('group')}"
    name = definition["metadata"].get("name", "")
    if name != wanted:
        problem = 'must be spec.names.plural+"."+spec.group'
        errors.append(invalid_value("metadata.name", name, problem))
    return errors


def _storage_version(spec: JsonObject) -> JsonObject:
    version: JsonObject = next(one for one in spec["versions"] if one.get("storage"))
    return version
