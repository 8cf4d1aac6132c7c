"""Headers of responses, looked up by name however they were written."""

from __future__ import annotations

import pytest

from ksched.client.headers import Headers, content_encoding

PAIRS = [(b"Retry-After", b"3"), (b"Audit-Id", b"\xe9"), (b"retry-after", b"5")]


def test_headers_are_found_by_their_names_in_lower_case() -> None:
    headers = Headers(PAIRS)
    assert headers == {"retry-after": "5", "audit-id": "\u00e9"}
    assert headers.get("date") is None
    assert "Retry-After" not in headers


@pytest.mark.parametrize(
    ("pairs", "wanted"),
    [
        (PAIRS, "identity"),
        ([(b"Content-Encoding", b"GZIP")], "gzip"),
        ([(b"content-encoding", b"gzip"), (b"Content-encoding", b"br")], "br"),
    ],
)
def test_the_encoding_of_a_body(pairs: list[tuple[bytes, bytes]], wanted: str) -> None:
    assert content_encoding(pairs) == wanted
