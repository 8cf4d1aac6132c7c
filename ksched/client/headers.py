"""The headers of a response: hardly any is ever read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

UNREAD: Final = frozenset(
    (
        b"Audit-Id",
        b"Cache-Control",
        b"Content-Length",
        b"Content-Type",
        b"Date",
        b"Warning",
        b"X-Kubernetes-Pf-Flowschema-Uid",
        b"X-Kubernetes-Pf-Prioritylevel-Uid",
    )
)
"""What an API server sends with a good answer; nothing here reads any of them."""


class Headers(Mapping[str, str]):
    """Headers as they came, by their names in lower case; decoded when one is read."""

    __slots__ = ("_fields",)

    def __init__(self, fields: dict[bytes, bytes]) -> None:
        self._fields = fields

    def _decoded(self) -> dict[str, str]:
        return {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in self._fields.items()
        }

    def __getitem__(self, name: str) -> str:
        return self._decoded()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._decoded())

    def __len__(self) -> int:
        return len(self._decoded())
