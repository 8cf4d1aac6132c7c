"""REST semantics: which verb on which path does what."""

from __future__ import annotations

from typing import Any

import msgspec

from ksched.apiserver import event_versions
from ksched.apiserver.deletion import DeleteOptions, delete, finalize_namespace
from ksched.apiserver.object_store import Entry
from ksched.apiserver.object_validation import validate_new_event
from ksched.apiserver.patches import json_patch, merge_patch
from ksched.apiserver.protobuf import MEDIA_TYPE
from ksched.apiserver.reading import Page, Reader, encode_list, shaped
from ksched.apiserver.request import Call, decode_body, no_such_path
from ksched.apiserver.resource_registry import Edit, Registry
from ksched.apiserver.served_resources import (
    EVENTS,
    NAMESPACES,
    NEW_EVENTS,
    PODS,
    JsonObject,
    Resource,
)
from ksched.apiserver.status_errors import (
    GroupResource,
    StatusError,
    bad_request,
    invalid,
    method_not_allowed,
    required,
    success,
    unsupported_media_type,
)
from ksched.apiserver.strategic import strategic_merge
from ksched.apiserver.subresources import bind, evict, get_scale, set_scale
from ksched.apiserver.watching import Watch
from ksched.transport import JSON, MERGE_PATCH, STRATEGIC_MERGE_PATCH, Response

JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
_PATCH_TYPES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY_PATCH)
_BODY_TYPES = (JSON, "application/yaml", MEDIA_TYPE, "text/yaml")


class Routes:
    """Answers requests about resources; refusals are raised as ``StatusError``."""

    def __init__(self, registry: Registry, reader: Reader) -> None:
        self._registry, self._reader = registry, reader

    def handle(self, call: Call) -> Response | Watch:
        method, target = call.request.method, call.target
        if target.subresource:
            return self._subresource(call)
        if method == "GET":
            return self._read(call)
        if method == "POST" and not target.name:
            return self._create(call)
        if method == "PUT" and target.name:
            return self._replace(call)
        if method == "PATCH" and target.name:
            return self._patch(call)
        if method == "DELETE":
            return self._delete(call) if target.name else self._delete_collection(call)
        raise method_not_allowed()

    def _read(self, call: Call) -> Response | Watch:
        if call.target.name:
            return self._reader.get(call)
        return self._reader.watch(call) if call.flag("watch") else self._reader.list(call)

    def _create(self, call: Call) -> Response:
        resource, namespace = call.resource, call.target.namespace
        if resource.namespaced and not namespace:
            raise method_not_allowed()
        obj = _stored_shape(resource, _body(call))
        if resource is NEW_EVENTS:
            validate_new_event(obj, namespace)
        entry = self._registry.create(_stored(resource), namespace, obj, call.is_dry_run)
        return _answer(resource, entry, 201)

    def _replace(self, call: Call) -> Response:
        obj = _stored_shape(call.resource, _body(call))
        return self._update(call, lambda _: obj)

    def _patch(self, call: Call) -> Response:
        content_type = call.request.content_type.partition(";")[0].strip()
        edit = _patch_edit(call, content_type)
        if content_type == APPLY_PATCH and not call.query.get("fieldManager"):
            problem = required("fieldManager", "is required for apply patch")
            raise invalid(GroupResource("meta.k8s.io", "PatchOptions"), "", [problem])
        is_apply = content_type == APPLY_PATCH
        return self._update(call, edit, allow_create=is_apply, is_patch=True)

    def _update(
        self, call: Call, edit: Edit, *, allow_create: bool = False, is_patch: bool = False
    ) -> Response:
        target = call.target
        entry, created = self._registry.update(
            _stored(target.resource),
            target.namespace,
            target.name,
            edit,
            subresource=target.subresource,
            dry_run=call.is_dry_run,
            allow_create=allow_create,
            is_patch=is_patch,
        )
        return _answer(target.resource, entry, 201 if created else 200)

    def _delete(self, call: Call) -> Response:
        target = call.target
        resource = _stored(target.resource)
        entry = self._registry.get(resource, target.namespace, target.name)
        entry, gone = delete(self._registry, resource, entry, _delete_options(call))
        if not gone or resource.returns_deleted:
            return _answer(target.resource, entry, 200)
        details = {**resource.group_resource.details(entry.name)}
        details["uid"] = entry.decode()["metadata"]["uid"]
        return _status(success(details=details), 200)

    def _delete_collection(self, call: Call) -> Response:
        resource, options = _stored(call.resource), _delete_options(call)
        page = self._reader.page(call)
        for entry in page.entries:
            delete(self._registry, resource, entry, options)
        body = encode_list(call.resource, Page(page.entries, self._registry.store.version))
        return Response(200, {"Content-Type": JSON}, body)

    def _subresource(self, call: Call) -> Response:
        target, method = call.target, call.request.method
        resource, name = target.resource, target.subresource
        if name == "status" and resource.status:
            pass
        elif resource is PODS and name in ("binding", "eviction"):
            return self._pod_verb(call)
        elif resource is PODS and name == "resize":
            pass
        elif name == "scale" and resource.scale:
            return self._scale(call)
        elif resource is NAMESPACES and name == "finalize" and method == "PUT":
            entry = self._registry.get(resource, "", target.name)
            return _answer(resource, finalize_namespace(self._registry, entry, _body(call)), 200)
        else:
            raise no_such_path()
        if method == "GET":
            return self._reader.get(call)
        if method == "PUT":
            return self._replace(call)
        if method == "PATCH":
            return self._patch(call)
        raise method_not_allowed()

    def _pod_verb(self, call: Call) -> Response:
        target, body = call.target, _body(call)
        if call.request.method != "POST":
            raise method_not_allowed()
        if target.subresource == "binding":
            dry_run = call.is_dry_run
            status = bind(self._registry, target.namespace, target.name, body, dry_run)
        else:
            status = evict(self._registry, target.namespace, target.name, body)
        return _status(status, 201)

    def legacy_binding(self, call: Call) -> Response:
        """``POST .../bindings``: the pod is named in the body only."""
        body = _body(call)
        name = (body.get("metadata") or {}).get("name", "")
        namespace = call.target.namespace
        return _status(bind(self._registry, namespace, name, body, call.is_dry_run), 201)

    def _scale(self, call: Call) -> Response:
        target, resource = call.target, call.resource
        entry = self._registry.get(resource, target.namespace, target.name)
        if call.request.method != "GET":
            if call.request.method == "PUT":
                scale = _body(call)
            elif call.request.method == "PATCH":
                content_type = call.request.content_type.partition(";")[0].strip()
                scale = _patch_edit(call, content_type)(get_scale(resource, entry.decode()))
            else:
                raise method_not_allowed()
            entry, _ = self._registry.update(
                resource,
                target.namespace,
                target.name,
                lambda obj: set_scale(obj, scale),
                dry_run=call.is_dry_run,
            )
        return _status(get_scale(resource, entry.decode()), 200)


def _body(call: Call) -> JsonObject:
    content_type = call.request.content_type.partition(";")[0].strip()
    if content_type not in _BODY_TYPES:
        raise unsupported_media_type(_BODY_TYPES)
    return call.body()


def _patch_edit(call: Call, content_type: str) -> Edit:
    is_strategic = content_type == STRATEGIC_MERGE_PATCH
    if content_type not in _PATCH_TYPES or (is_strategic and call.resource.is_custom):
        raise StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    resource = call.resource
    try:
        patch = decode_body(call.request.body, content_type)
    except ValueError as error:
        raise bad_request(f"error decoding patch: {error}") from error
    if content_type == JSON_PATCH:
        return lambda obj: _patched(resource, obj, lambda o: json_patch(o, patch))
    if not isinstance(patch, dict):
        raise bad_request("error decoding patch: the patch is no object")
    if content_type == MERGE_PATCH:
        return lambda obj: _patched(resource, obj, lambda o: merge_patch(o, patch))
    # Server-side apply without field ownership: what is applied is merged, nothing is taken away.
    return lambda obj: _patched(resource, obj, lambda o: strategic_merge(o, patch))


def _patched(resource: Resource, obj: JsonObject, edit: Edit) -> JsonObject:
    """Apply a patch to the shape its writer sees."""
    if resource is NEW_EVENTS:
        return event_versions.to_stored(edit(event_versions.from_stored(obj)))
    return edit(obj)


def _stored(resource: Resource) -> Resource:
    return EVENTS if resource is NEW_EVENTS else resource


def _stored_shape(resource: Resource, obj: JsonObject) -> JsonObject:
    if resource is not NEW_EVENTS:
        return obj
    obj.setdefault("apiVersion", resource.group_version)
    return event_versions.to_stored(obj)


def _delete_options(call: Call) -> DeleteOptions:
    body: JsonObject = call.body() if call.request.body.strip() else {}
    return DeleteOptions.parse(body, dict(call.query))


def _answer(resource: Resource, entry: Entry, code: int) -> Response:
    return Response(code, {"Content-Type": JSON}, shaped(resource, entry))


def _status(body: Any, code: int) -> Response:
    return Response(code, {"Content-Type": JSON}, msgspec.json.encode(body))
