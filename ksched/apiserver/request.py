"""A parsed request: resource, name, verb and parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote

import msgspec
import yaml

from ksched.apiserver import protobuf
from ksched.apiserver.served_resources import JsonObject, Resource, ServedResources
from ksched.apiserver.status_errors import StatusError, bad_request, invalid_value
from ksched.transport import JSON


class Request(NamedTuple):
    """One HTTP request, however it arrived. ``path`` carries the query."""

    method: str
    path: str
    body: bytes = b""
    content_type: str = JSON
    accept: str = "*/*"
    user: str = "system:admin"


class Target(NamedTuple):
    """What a path points at."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


@dataclass(slots=True)
class Call:
    """A request about a resource, with its query and body understood."""

    request: Request
    target: Target
    query: Mapping[str, str] = field(default_factory=dict)

    @property
    def resource(self) -> Resource:
        return self.target.resource

    @property
    def is_dry_run(self) -> bool:
        return self.query.get("dryRun") == "All"

    def flag(self, name: str) -> bool:
        return self.query.get(name, "") in ("true", "1", "True")

    def number(self, name: str) -> int | None:
        text = self.query.get(name, "")
        if not text:
            return None
        try:
            return int(text)
        except ValueError:
            raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None

    def version(self) -> int | None:
        """Return the requested ``resourceVersion``; ``None`` if there is none."""
        text = self.query.get("resourceVersion", "")
        if not text:
            return None
        if not text.isdecimal():
            problem = f'strconv.ParseUint: parsing "{text}": invalid syntax'
            field = invalid_value("resourceVersion", text, problem)
            raise bad_request(f"invalid resource version: {field}")
        return int(text)

    def body(self) -> JsonObject:
        """Decode the body, which must be one object."""
        try:
            return decode_object(self.request.body, self.request.content_type)
        except ValueError as error:
            kind = self.resource.kind
            raise bad_request(
                f"the object provided is unrecognized (must be of type {kind}): {error}"
            ) from error


def decode_object(body: bytes, content_type: str) -> JsonObject:
    """Decode a JSON, YAML or protobuf object; raises ``ValueError`` when it is none."""
    if content_type.startswith(protobuf.MEDIA_TYPE):
        return protobuf.decode_protobuf(body)
    decoded = decode_body(body, content_type)
    if not isinstance(decoded, dict):
        raise ValueError("couldn't get version/kind; json parse error: the body is no object")
    return decoded


def decode_body(body: bytes, content_type: str) -> Any:
    """Decode a JSON or YAML body; raises ``ValueError`` when it cannot be parsed."""
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        problem: Exception = error
    if "yaml" in content_type:
        try:
            return yaml.load(body, yaml.CSafeLoader)
        except yaml.YAMLError as error:
            problem = error
    raise ValueError(f"couldn't get version/kind; json parse error: {problem}")


def parse_target(path: str, resources: ServedResources) -> Target | None:
    """Find the resource a path (without query) points at; ``None`` when it is not served."""
    parts = path.strip("/").split("/")
    if "%" in path:
        parts = [unquote(part) for part in parts]
    if parts[0] == "api":
        group, rest = "", parts[1:]
    elif parts[0] == "apis" and len(parts) > 1:
        group, rest = parts[1], parts[2:]
    else:
        return None
    if len(rest) < 2:
        return None
    version, rest = rest[0], rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    resource = resources.get(group, version, rest[0])
    if resource is None or len(rest) > 3 or bool(namespace) > resource.namespaced:
        return None
    name, subresource = (*rest[1:], "", "")[:2]
    if name and resource.namespaced and not namespace:
        return None
    return Target(resource, namespace, name, subresource)


_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


def verb_and_resource(request: Request, resources: ServedResources) -> tuple[str, str]:
    """Return the verb and resource of a request as Kubernetes' audit log names them."""
    path, _, query = request.path.partition("?")
    return describe(request.method, parse_target(path, resources), query)


def describe(method: str, target: Target | None, query: str) -> tuple[str, str]:
    if target is None:
        return method.lower(), ""
    resource = target.resource.plural
    if target.subresource:
        resource = f"{resource}/{target.subresource}"
    if method in _VERBS:
        return _VERBS[method], resource
    if method == "DELETE":
        return ("delete" if target.name else "deletecollection"), resource
    if target.name:
        return "get", resource
    is_watch = "watch=" in query and parse_query(query).get("watch") in ("1", "true", "True")
    return ("watch" if is_watch else "list"), resource


def parse_query(text: str) -> dict[str, str]:
    return dict(parse_qsl(text, keep_blank_values=True)) if text else {}


def no_such_path() -> StatusError:
    """The error of a path that is not served."""
    message = "the server could not find the requested resource"
    return StatusError(404, "NotFound", message, {})
