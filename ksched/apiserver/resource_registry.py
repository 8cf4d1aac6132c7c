"""Create, update and delete, with the rules common to all kinds (upstream's generic registry)."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import Any, TypeAlias

from ksched.apiserver.admission import admit_create, admit_to_namespace, admit_update
from ksched.apiserver.object_defaults import apply_defaults
from ksched.apiserver.object_store import Entry, Store, object_key
from ksched.apiserver.object_validation import validate_create, validate_update
from ksched.apiserver.served_resources import NODES, PODS, JsonObject, Resource, ServedResources
from ksched.apiserver.status_errors import (
    StatusError,
    already_exists,
    bad_request,
    conflict,
    invalid,
    invalid_value,
    not_found,
)
from ksched.clock import Clock, rfc3339

Edit: TypeAlias = Callable[[JsonObject], JsonObject]
"""Turns a private copy of the stored object into the desired one."""

_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
_LONGEST_GENERATED_BASE = 63 - _SUFFIX_LENGTH
_SYSTEM_FIELDS = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


class Registry:
    """The only writer of the store."""

    def __init__(self, store: Store, resources: ServedResources, clock: Clock, seed: int) -> None:
        self.store, self.resources, self.clock = store, resources, clock
        self._random = random.Random(seed)

    def get(self, resource: Resource, namespace: str, name: str) -> Entry:
        """Return an object; raises 404."""
        found = self.store.collection(resource).entries.get(object_key(namespace, name))
        if found is None:
            raise not_found(resource.group_resource, name)
        return found

    def create(
        self, resource: Resource, namespace: str, obj: JsonObject, dry_run: bool = False
    ) -> Entry:
        """Store a new object: name, defaults, admission, validation."""
        obj = self._typed(resource, obj)
        metadata = obj["metadata"]
        if metadata.get("resourceVersion"):
            problem = "resourceVersion should not be set on objects to be created"
            raise StatusError(500, "", problem)
        self._settle_namespace(resource, metadata, namespace)
        name = metadata.get("name") or self._generated_name(metadata.get("generateName", ""))
        system: JsonObject = {"name": name} if name else {}
        if metadata.get("namespace"):
            system["namespace"] = metadata["namespace"]
        system["uid"] = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        system["resourceVersion"] = ""
        if resource.generation:
            system["generation"] = 1
        system["creationTimestamp"] = rfc3339(self.clock.wall())
        written = {k: v for k, v in metadata.items() if k not in (*_SYSTEM_FIELDS, "generation")}
        obj["metadata"] = metadata = {**system, **written, **system}
        if resource.namespaced and name:
            admit_to_namespace(self.store, resource, obj)
        if resource.status and resource not in (NODES, PODS):
            obj.pop("status", None)
        self._fill_in(resource, obj)
        if name:
            admit_create(self.store, resource, obj, self.clock.wall())
        validate_create(resource, obj)
        if (
            object_key(metadata.get("namespace", ""), name)
            in self.store.collection(resource).entries
        ):
            raise already_exists(resource.group_resource, name)
        if dry_run:
            return Entry(resource, obj, self.store.version)
        return self.store.create(resource, obj)

    def update(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        edit: Edit,
        *,
        subresource: str = "",
        dry_run: bool = False,
        allow_create: bool = False,
        is_patch: bool = False,
    ) -> tuple[Entry, bool]:
        """Store a new version of an object; the flag is true if it was created instead.

        A UID in a whole object is a precondition; in a patch it is a field that cannot change.
        """
        entries = self.store.collection(resource).entries
        existing = entries.get(object_key(namespace, name))
        if existing is None:
            if subresource or not (resource.create_on_update or allow_create):
                raise not_found(resource.group_resource, name)
            obj = edit({})
            _check_name(obj, name)
            if uid := obj["metadata"].get("uid"):
                key = object_key(namespace, name)
                raise failed_precondition(resource, key, name, "UID", uid, "")
            obj["metadata"].pop("resourceVersion", None)
            return self.create(resource, namespace, obj, dry_run), True
        old = existing.decode()
        new = self._typed(resource, edit(existing.decode()))
        _check_name(new, name)
        self._settle_namespace(resource, new["metadata"], namespace)
        if is_patch:
            _refuse_another_uid(resource, existing, old, new["metadata"])
        self._check_version(resource, existing, old, new["metadata"])
        _keep_system_fields(new["metadata"], old["metadata"])
        new = _other_half_kept(resource, new, old, subresource)
        self._fill_in(resource, new)
        if not subresource:
            admit_update(self.store, resource, new)
        validate_update(resource, new, old, subresource)
        if resource.generation and _spec_of(new) != _spec_of(old):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        if dry_run:
            return Entry(resource, new, existing.version), False
        if _is_finished(new["metadata"]):
            gone = self.store.delete(resource, existing)
            return Entry(resource, new, gone.version), False
        return self.store.replace(resource, existing, new), False

    def write(self, resource: Resource, existing: Entry, obj: JsonObject) -> Entry:
        """Store a version that a subresource made; it vouches for the rules."""
        return self.store.replace(resource, existing, obj)

    def _typed(self, resource: Resource, obj: JsonObject) -> JsonObject:
        """Check kind and version, and put the fields every object starts with first."""
        kind, version = (
            obj.pop("kind", resource.kind),
            obj.pop("apiVersion", resource.group_version),
        )
        if (kind, version) != (resource.kind, resource.group_version):
            raise self._another_kind(resource, kind, version)
        metadata = obj.pop("metadata", None) or {}
        if not isinstance(metadata, dict):
            raise bad_request("metadata: expected an object")
        # Go's omitempty: an absent map and an empty one are the same to every reader.
        for field in ("labels", "annotations", "finalizers", "ownerReferences"):
            if field in metadata and not metadata[field]:
                del metadata[field]
        metadata.pop("managedFields", None)
        return {"kind": kind, "apiVersion": version, "metadata": metadata, **obj}

    def _another_kind(self, resource: Resource, kind: str, version: str) -> StatusError:
        known = {(row.kind, row.group_version) for row in self.resources}
        if (kind, version) not in known:
            why = f'no kind "{kind}" is registered for version "{version}"'
            return cannot_handle(resource, kind, version, why)
        if kind == resource.kind:
            return bad_request(
                f"the API version in the data ({version}) does not match the expected "
                f"API version ({resource.group_version})"
            )
        group, number = resource.group or "core", version.rpartition("/")[2]
        why = f"converting ({number}.{kind}) to ({group}.{resource.kind}): unknown conversion"
        return cannot_handle(resource, kind, version, why)

    def _fill_in(self, resource: Resource, obj: JsonObject) -> None:
        try:
            apply_defaults(resource, obj)
        except ValueError as error:
            kind, version = resource.kind, resource.group_version
            raise cannot_handle(resource, kind, version, str(error)) from error

    def _settle_namespace(self, resource: Resource, metadata: JsonObject, namespace: str) -> None:
        if not resource.namespaced:
            metadata.pop("namespace", None)
        elif metadata.setdefault("namespace", namespace) != namespace:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the "
                "request"
            )

    def _check_version(
        self, resource: Resource, existing: Entry, old: JsonObject, metadata: JsonObject
    ) -> None:
        uid = metadata.get("uid")
        if uid and uid != old["metadata"]["uid"]:
            found = old["metadata"]["uid"]
            raise failed_precondition(resource, existing.key, existing.name, "UID", uid, found)
        version = metadata.get("resourceVersion")
        if not version:
            if not resource.unconditional_update:
                problem = invalid_value(
                    "metadata.resourceVersion", 0, "must be specified for an update"
                )
                name = existing.name
                raise invalid(resource.group_resource, name, [problem])
        elif version != str(existing.version):
            raise conflict(resource.group_resource, existing.name)

    def _generated_name(self, base: str) -> str:
        if not base:
            return ""
        suffix = "".join(self._random.choices(_SUFFIX_ALPHABET, k=_SUFFIX_LENGTH))
        return base[:_LONGEST_GENERATED_BASE] + suffix


def failed_precondition(
    resource: Resource, key: str, name: str, what: str, wanted: str, found: str
) -> StatusError:
    """The error of a write that expected another UID or version of the object."""
    why = (
        f"StorageError: invalid object, Code: 4, Key: /registry/{resource.plural}/{key}, "
        f"ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: "
        f"{what} in precondition: {wanted}, {what} in object meta: {found}"
    )
    return conflict(resource.group_resource, name, why)


def cannot_handle(resource: Resource, kind: str, version: str, why: str) -> StatusError:
    """The error of a body that cannot be decoded as an object of this kind."""
    wanted = resource.kind
    return bad_request(f'{kind} in version "{version}" cannot be handled as a {wanted}: {why}')


def _check_name(obj: JsonObject, name: str) -> None:
    given = obj.setdefault("metadata", {}).setdefault("name", name)
    if given != name:
        raise bad_request(
            f"the name of the object ({given}) does not match the name on the URL ({name})"
        )


def _refuse_another_uid(
    resource: Resource, existing: Entry, old: JsonObject, metadata: JsonObject
) -> None:
    if metadata.get("uid") != old["metadata"]["uid"]:
        shown = metadata.get("uid", "")
        problem = invalid_value("metadata.uid", shown, "field is immutable")
        raise invalid(resource.group_kind, existing.name, [problem])


def _keep_system_fields(new: JsonObject, old: JsonObject) -> None:
    for field in (*_SYSTEM_FIELDS, "generation"):
        if field in old:
            new[field] = old[field]
        else:
            new.pop(field, None)


def _other_half_kept(
    resource: Resource, new: JsonObject, old: JsonObject, subresource: str
) -> JsonObject:
    """Keep what this endpoint does not write."""
    if subresource == "status":
        metadata = dict(new["metadata"] if resource in (PODS, NODES) else old["metadata"])
        if "ownerReferences" in old["metadata"]:
            metadata["ownerReferences"] = old["metadata"]["ownerReferences"]
        metadata.pop("resourceVersion", None)
        kept = {**old, "metadata": {**metadata}, "status": new.get("status") or {}}
        if resource is PODS:
            kept["status"].setdefault("qosClass", (old.get("status") or {}).get("qosClass"))
        return kept
    if subresource == "resize":
        return {**old, "spec": _resized(new["spec"], old["spec"])}
    if resource.status:
        if "status" in old:
            new["status"] = old["status"]
        else:
            new.pop("status", None)
    if resource is PODS:
        for field in ("priority", "preemptionPolicy"):
            if new["spec"].get(field) is None and field in old["spec"]:
                new["spec"][field] = old["spec"][field]
    return new


def _resized(new: JsonObject, old: JsonObject) -> JsonObject:
    result = dict(old)
    if "resources" in new:
        result["resources"] = new["resources"]
    for kind in ("containers", "initContainers"):
        wanted = {container["name"]: container for container in new.get(kind) or []}
        if kind in old:
            result[kind] = [
                {**c, "resources": wanted.get(c["name"], c).get("resources") or {}}
                for c in old[kind]
            ]
    return result


def _spec_of(obj: JsonObject) -> dict[str, Any]:
    return {key: value for key, value in obj.items() if key not in ("metadata", "status")}


def _is_finished(metadata: JsonObject) -> bool:
    """Whether the object waited only for finalizers that are now gone."""
    return (
        bool(metadata.get("deletionTimestamp"))
        and not metadata.get("finalizers")
        and metadata.get("deletionGracePeriodSeconds") == 0
    )
