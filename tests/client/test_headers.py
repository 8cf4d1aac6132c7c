"""Headers are decoded when they are read, and one that matters is found however it is written."""

from __future__ import annotations

import pytest

from ksched.client.headers import UNREAD, Headers


def test_headers_are_read_by_their_names_in_lower_case() -> None:
    headers = Headers({b"Retry-After": b"7", b"X-Name": "é".encode("latin-1")})
    assert dict(headers) == {"retry-after": "7", "x-name": "é"}
    assert len(headers) == 2
    assert "Retry-After" not in headers
    with pytest.raises(KeyError):
        headers["date"]


def test_what_frames_an_answer_or_changes_its_body_is_never_left_unread() -> None:
    assert not {b"content-encoding", b"transfer-encoding"} & {one.lower() for one in UNREAD}
