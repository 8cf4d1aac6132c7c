"""CustomResourceDefinitions for the kinds that plugins declare."""

from __future__ import annotations

from typing import Any

from ksched.api.watched_kinds import WatchedKind


def custom_resource_definition(kind: WatchedKind[Any]) -> dict[str, Any]:
    """Return a definition with which an API server serves a kind, with any fields.

    For tests: a real one has a schema.
    """
    resource = kind.resource
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": {"plural": resource.plural, "kind": resource.kind},
            "versions": [
                {
                    "name": resource.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }
