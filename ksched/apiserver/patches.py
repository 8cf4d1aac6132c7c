"""JSON patch (RFC 6902) and JSON merge patch (RFC 7386)."""

from __future__ import annotations

from typing import Any

from ksched.apiserver.served_resources import JsonObject
from ksched.apiserver.status_errors import bad_request, unprocessable


def merge_patch(target: Any, patch: Any) -> Any:
    """Return ``target`` with the merge patch applied; both may be consumed."""
    if not isinstance(patch, dict):
        return patch
    result = target if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def json_patch(target: JsonObject, operations: Any) -> JsonObject:
    """Return ``target`` with all operations applied in order, or refuse the whole patch."""
    if not isinstance(operations, list):
        raise bad_request("json: cannot unmarshal the body into a list of patch operations")
    document: Any = target
    for operation in operations:
        try:
            document = _apply(document, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise unprocessable() from error
    if not isinstance(document, dict):
        raise unprocessable()
    return document


def _apply(document: Any, operation: dict[str, Any]) -> Any:
    path = _pointer(operation["path"])
    match operation["op"]:
        case "add":
            return _add(document, path, operation["value"])
        case "remove":
            return _remove(document, path)
        case "replace":
            _resolve(document, path)
            return _replace(document, path, operation["value"])
        case "move":
            source = _pointer(operation["from"])
            value = _resolve(document, source)
            return _add(_remove(document, source), path, value)
        case "copy":
            return _add(document, path, _copied(_resolve(document, _pointer(operation["from"]))))
        case "test":
            if _resolve(document, path) != operation["value"]:
                raise ValueError(f"testing value {operation['path']} failed")
            return document
        case other:
            raise ValueError(f"unexpected kind: {other}")


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise ValueError(f"path {text!r} does not begin with a slash")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _resolve(document: Any, path: list[str]) -> Any:
    for part in path:
        document = document[int(part)] if isinstance(document, list) else document[part]
    return document


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent, last = _resolve(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        index = len(parent) if last == "-" else int(last)
        if not 0 <= index <= len(parent):
            raise IndexError(f"index {last} is out of range")
        parent.insert(index, value)
    else:
        parent[last] = value
    return document


def _replace(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent, last = _resolve(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        parent[int(last)] = value
    else:
        parent[last] = value
    return document


def _remove(document: Any, path: list[str]) -> Any:
    if not path:
        raise ValueError("the whole document cannot be removed")
    parent, last = _resolve(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        del parent[int(last)]
    else:
        del parent[last]
    return document


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value
