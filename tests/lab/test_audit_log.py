"""The checker of several schedulers must see what it is there for."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lab.audit_log import AuditLog, LeaseWrite

A, B = "127.0.0.2", "127.0.0.3"


def stamp(second: float) -> str:
    return datetime.fromtimestamp(1e9 + second, UTC).isoformat()


def bind(source: str, pod: str, began: float, ended: float, code: int = 201) -> dict[str, Any]:
    return {
        "objectRef": {"resource": "pods", "subresource": "binding", "name": pod},
        "user": {"username": "ksched"},
        "sourceIPs": [source],
        "requestReceivedTimestamp": stamp(began),
        "stageTimestamp": stamp(ended),
        "responseStatus": {"code": code},
    }


def write(
    source: str, began: float, ended: float, holder: str | None = None, name: str = "ksched"
) -> dict[str, Any]:
    holder = source if holder is None else holder
    return {
        **bind(source, "", began, ended, 200),
        "objectRef": {"resource": "leases"},
        "requestObject": {"metadata": {"name": name}, "spec": {"holderIdentity": holder}},
    }


Log = Callable[..., AuditLog]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    def of(*entries: dict[str, Any]) -> AuditLog:
        log = AuditLog(tmp_path, "ksched")
        path = Path(log.flags[1].partition("=")[2])
        path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
        return log

    return of


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param([], id="nothing happened"),
        pytest.param(
            [write(A, 0, 1), bind(A, "p", 2, 4), bind(A, "q", 3, 5)], id="one replica, two at once"
        ),
        pytest.param(
            [write(A, 0, 1), bind(A, "p", 2, 3), write(B, 4, 5), bind(B, "q", 6, 7)],
            id="one after the other",
        ),
        pytest.param(
            [write(A, 0, 1), bind(A, "p", 2, 3, code=504), write(B, 4, 5), bind(B, "p", 6, 7)],
            id="tried again by the next",
        ),
        pytest.param(
            [write(A, 0, 1), write(B, 4, 6), bind(B, "p", 5.5, 5.7)],
            id="bound before the answer to the lease is logged",
        ),
        pytest.param(
            [write(A, 0, 1), write(B, 1, 2, name="other"), bind(A, "p", 3, 4)],
            id="another lease is nobody's business",
        ),
    ],
)
def test_accepts(log: Log, entries: list[dict[str, Any]]) -> None:
    assert log(*entries).problems() == []


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        pytest.param(
            [write(A, 0, 1), bind(A, "p", 2, 3), bind(A, "p", 4, 5)],
            "p: bound 2 times",
            id="bound twice",
        ),
        pytest.param(
            [write(A, 0, 1), bind(A, "p", 2, 5), write(B, 3, 4), bind(B, "q", 4.5, 6)],
            f"q is bound by {B} while {A} binds p",
            id="two binders",
        ),
        pytest.param(
            [write(A, 0, 1), write(B, 2, 3), bind(A, "p", 4, 5)],
            f"p is bound by {A}, the lease is with {{'{B}'}}",
            id="after the lease was taken",
        ),
        pytest.param(
            [write(A, 0, 1), write(A, 2, 3, holder=""), bind(A, "p", 4, 5)],
            f"p is bound by {A}, the lease is with nobody",
            id="after the lease was given back",
        ),
        pytest.param(
            [bind(A, "p", 4, 5)], f"p is bound by {A}, the lease is with nobody", id="no lease"
        ),
    ],
)
def test_complains(log: Log, entries: list[dict[str, Any]], problem: str) -> None:
    assert log(*entries).problems() == [problem]


def test_half_a_line_is_read_when_it_is_whole(log: Log, tmp_path: Path) -> None:
    audit = log(write(A, 0, 1), write(A, 2, 3))
    path = tmp_path / "audit.log"
    text = path.read_text()
    path.write_text(text[:-20])
    assert len(audit.lease_writes()) == 1
    path.write_text(text)

    assert audit.lease_writes()[1] == LeaseWrite(1e9 + 2, 1e9 + 3, A, A)


def test_what_is_forbidden_is_told(log: Log) -> None:
    asked = {"verb": "list", "requestURI": "/api/v1/secrets"}
    no_object = {key: value for key, value in bind(A, "", 2, 3).items() if key != "objectRef"}
    audit = log({**bind(A, "", 0, 1, code=403), **asked}, no_object)

    assert audit.refusals() == [(1e9 + 1, "list", "/api/v1/secrets")]
    assert audit.binds() == []
