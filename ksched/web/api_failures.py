"""Failures as Kubernetes' components send them: an object of the kind Status."""

from __future__ import annotations

from typing import Any


def failure_status(code: int, reason: str, message: str) -> dict[str, Any]:
    """Return the content of a response with this HTTP code."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
