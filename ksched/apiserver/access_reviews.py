"""TokenReview and SubjectAccessReview, of a server without authentication and authorization.

As for the listener, a token is its user's name; every user may do everything. Tests name the
exceptions.
"""

from __future__ import annotations

import msgspec

from ksched.apiserver.request import Request, decode_body
from ksched.apiserver.served_resources import JsonObject
from ksched.apiserver.status_errors import bad_request
from ksched.transport import JSON, Response

TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
REVIEWS = (TOKEN_REVIEWS, ACCESS_REVIEWS)


class AccessReviews:
    """Answers reviews; they are not stored."""

    def __init__(self) -> None:
        self.invalid_tokens: set[str] = set()
        """Tokens that are refused."""
        self.denied_users: set[str] = set()
        """Names of users who may do nothing."""

    def handle(self, request: Request, path: str) -> Response:
        try:
            review = decode_body(request.body, request.content_type.partition(";")[0].strip())
        except ValueError as error:
            raise bad_request(f"error decoding body: {error}") from error
        spec = review.get("spec") or {}
        status = self._token(spec) if path == TOKEN_REVIEWS else self._access(spec)
        body = msgspec.json.encode({**review, "status": status})
        return Response(201, {"Content-Type": JSON}, body)

    def _token(self, spec: JsonObject) -> JsonObject:
        token = spec.get("token", "")
        if not token or token in self.invalid_tokens:
            return {"user": {}, "error": "invalid bearer token"}
        user = {"username": token, "groups": ["system:authenticated"]}
        return {"authenticated": True, "user": user}

    def _access(self, spec: JsonObject) -> JsonObject:
        return {"allowed": spec.get("user", "") not in self.denied_users}
