"""Events have two faces, ``v1`` and ``events.k8s.io/v1``, and one storage: the ``v1`` shape."""

from __future__ import annotations

from ksched.apiserver.served_resources import EVENTS, NEW_EVENTS, JsonObject

_RENAMED = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_BACK = {old: new for new, old in _RENAMED.items()}


def to_stored(event: JsonObject) -> JsonObject:
    """Turn an ``events.k8s.io/v1`` Event into its stored shape."""
    version = event.get("apiVersion")
    stored = {_RENAMED.get(key, key): value for key, value in event.items()}
    if version == NEW_EVENTS.group_version:
        stored["apiVersion"] = EVENTS.group_version
    return stored


def from_stored(event: JsonObject) -> JsonObject:
    """Turn a stored Event into an ``events.k8s.io/v1`` one."""
    shown = {_BACK.get(key, key): value for key, value in event.items()}
    shown["apiVersion"] = NEW_EVENTS.group_version
    return shown
