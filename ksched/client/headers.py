"""The headers of a response, as they arrived: of most responses none is ever read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

_CONTENT_ENCODING: Final = b"content-encoding"
_LENGTH: Final = len(_CONTENT_ENCODING)

Pairs = Sequence[tuple[bytes, bytes]]


class Headers(Mapping[str, str]):
    """By lower-case name; decoded when the first one is looked up."""

    __slots__ = ("_known", "_pairs")

    def __init__(self, pairs: Pairs) -> None:
        self._pairs = pairs
        self._known: dict[str, str] | None = None

    def __getitem__(self, name: str) -> str:
        return self._decoded()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._decoded())

    def __len__(self) -> int:
        return len(self._decoded())

    def _decoded(self) -> dict[str, str]:
        if self._known is None:
            # The last of several with one name counts.
            self._known = {
                name.decode("latin-1").lower(): value.decode("latin-1")
                for name, value in self._pairs
            }
        return self._known


def content_encoding(pairs: Pairs) -> str:
    """The encoding of a body, in lower case."""
    encoding = "identity"
    for name, value in pairs:
        if len(name) == _LENGTH and name.lower() == _CONTENT_ENCODING:
            encoding = value.decode("latin-1").lower()
    return encoding
