"""Failures as a Kubernetes API server words them: ``metav1.Status`` with reason and details."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from ksched.errors import ApiError

OPTIMISTIC_LOCK = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


class StatusError(ApiError):
    """A request was rejected; the body of the response is ``status()``."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        retry_after = (details or {}).get("retryAfterSeconds")
        super().__init__(code, reason, message, retry_after)
        self.details, self.metadata = details, metadata or {}

    def status(self) -> dict[str, Any]:
        """Return the ``metav1.Status`` object that describes this failure."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        body["code"] = self.code
        return body


def success(code: int = 200, details: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the ``metav1.Status`` of a request that has no object to show."""
    body: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
    }
    if details is not None:
        body["details"] = details
    if code != 200:
        body["code"] = code
    return body


class GroupResource(NamedTuple):
    """A resource, or in messages about validation a kind, and its API group."""

    group: str
    resource: str

    def __str__(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource

    def details(self, name: str) -> dict[str, Any]:
        parts = {"name": name, "group": self.group, "kind": self.resource}
        return {key: value for key, value in parts.items() if value}


def not_found(what: GroupResource, name: str) -> StatusError:
    return StatusError(404, "NotFound", f'{what} "{name}" not found', what.details(name))


def already_exists(what: GroupResource, name: str) -> StatusError:
    return StatusError(409, "AlreadyExists", f'{what} "{name}" already exists', what.details(name))


def conflict(what: GroupResource, name: str, why: str = OPTIMISTIC_LOCK) -> StatusError:
    message = f'Operation cannot be fulfilled on {what} "{name}": {why}'
    return StatusError(409, "Conflict", message, what.details(name))


def forbidden(what: GroupResource, name: str, why: str) -> StatusError:
    who = f'{what} "{name}"' if name else str(what)
    return StatusError(403, "Forbidden", f"{who} is forbidden: {why}", what.details(name))


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def expired(message: str, continue_token: str = "") -> StatusError:
    metadata = {"continue": continue_token} if continue_token else None
    return StatusError(410, "Expired", message, metadata=metadata)


def method_not_allowed() -> StatusError:
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message, {})


def unsupported_media_type(accepted: Sequence[str]) -> StatusError:
    message = (
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(accepted)
    )
    return StatusError(415, "UnsupportedMediaType", message)


def too_many_requests(message: str, retry_after: int, cause: str, reason: str) -> StatusError:
    details: dict[str, Any] = {"causes": [{"reason": reason, "message": cause}]}
    if retry_after:
        details["retryAfterSeconds"] = retry_after
    return StatusError(429, "TooManyRequests", message, details)


def unprocessable() -> StatusError:
    """The error of a patch that cannot be applied; the real server gives no reason either."""
    message = "the server rejected our request due to an error in our request"
    return StatusError(422, "Invalid", message, {})


class FieldError(NamedTuple):
    """One thing that is wrong with an object."""

    type: str
    field: str
    body: str

    def __str__(self) -> str:
        return f"{self.field}: {self.body}"


def required(field: str, detail: str = "") -> FieldError:
    body = f"Required value: {detail}" if detail else "Required value"
    return FieldError("FieldValueRequired", field, body)


def invalid_value(field: str, value: object, detail: str) -> FieldError:
    return FieldError("FieldValueInvalid", field, f"Invalid value: {_shown(value)}: {detail}")


def not_supported(field: str, value: object, supported: Sequence[str]) -> FieldError:
    listed = ", ".join(f'"{choice}"' for choice in supported)
    body = f"Unsupported value: {_shown(value)}: supported values: {listed}"
    return FieldError("FieldValueNotSupported", field, body)


def forbidden_field(field: str, detail: str) -> FieldError:
    return FieldError("FieldValueForbidden", field, f"Forbidden: {detail}")


def duplicate(field: str, value: object) -> FieldError:
    return FieldError("FieldValueDuplicate", field, f"Duplicate value: {_shown(value)}")


def invalid(kind: GroupResource, name: str, errors: Sequence[FieldError]) -> StatusError:
    """Refuse an object that fails validation, naming every field."""
    listed = [str(error) for error in errors]
    text = listed[0] if len(listed) == 1 else f"[{', '.join(listed)}]"
    details = kind.details(name)
    details["causes"] = [
        {"reason": error.type, "message": error.body, "field": error.field} for error in errors
    ]
    return StatusError(422, "Invalid", f'{kind} "{name}" is invalid: {text}', details)


def _shown(value: object) -> str:
    return msgspec.json.encode(value).decode()
