"""``meta.k8s.io/v1`` Tables: the rows ``kubectl get`` prints (``pkg/printers/internalversion``)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ksched.apiserver.served_resources import JsonObject, Resource
from ksched.apiserver.table_columns import GENERIC, KINDS, custom_columns

_GROUP = "meta.k8s.io"


class TableOptions(NamedTuple):
    """The parameters of a table request."""

    version: str
    include_object: str = "Metadata"


def wants_table(accept: str, include_object: str) -> TableOptions | None:
    """Return the table a client prefers to the object itself, if it does.

    The ``Accept`` header lists alternatives, best first; what is not understood is skipped.
    """
    for alternative in accept.split(","):
        media_type, *parameters = (part.strip() for part in alternative.split(";"))
        chosen = dict(part.partition("=")[::2] for part in parameters)
        if media_type not in ("application/json", "*/*"):
            continue
        if chosen.get("as") == "Table" and chosen.get("g") == _GROUP:
            if chosen.get("v") in ("v1", "v1beta1"):
                return TableOptions(chosen["v"], include_object or "Metadata")
        elif "as" not in chosen:
            return None
    return None


def table(
    resource: Resource,
    objects: Iterable[JsonObject],
    options: TableOptions,
    metadata: JsonObject,
    now: float,
) -> JsonObject:
    """Return objects as a Table."""
    if resource.columns:
        columns, cells = custom_columns(resource.columns)
    else:
        columns, cells = KINDS.get(str(resource.group_resource), GENERIC)
    return {
        "kind": "Table",
        "apiVersion": f"{_GROUP}/{options.version}",
        "metadata": metadata,
        "columnDefinitions": [
            {
                "name": column.name,
                "type": column.type,
                "format": "name" if column.name == "Name" else "",
                "description": "",
                "priority": column.priority,
            }
            for column in columns
        ],
        "rows": [
            {"cells": cells(obj, now), **_object_cell(resource, obj, options)} for obj in objects
        ],
    }


def _object_cell(resource: Resource, obj: JsonObject, options: TableOptions) -> JsonObject:
    if options.include_object == "None":
        return {}
    if options.include_object == "Object":
        return {"object": obj}
    partial = {"kind": "PartialObjectMetadata", "apiVersion": f"{_GROUP}/{options.version}"}
    return {"object": {**partial, "metadata": obj["metadata"]}}
