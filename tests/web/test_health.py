"""Health as kubelets and people ask for it."""

from __future__ import annotations

import pytest

from ksched.web.health import Health


def healthy():
    return ""


def broken():
    return "not yet"


@pytest.mark.parametrize(
    ("checks", "asked", "is_healthy", "text"),
    [
        pytest.param({"a": healthy}, {}, True, "ok", id="healthy is short"),
        pytest.param(
            {"a": healthy},
            {"verbose": True},
            True,
            "[+]ping ok\n[+]a ok\nreadyz check passed\n",
            id="verbose names every check",
        ),
        pytest.param(
            {"a": healthy, "b": broken},
            {},
            False,
            "[+]ping ok\n[+]a ok\n[-]b failed: not yet\nreadyz check failed\n",
            id="failure is explained unasked",
        ),
        pytest.param(
            {"a": healthy, "b": broken}, {"exclude": ["b"]}, True, "ok", id="excluded failure"
        ),
        pytest.param(
            {"b": broken},
            {"exclude": ["b"], "verbose": True},
            True,
            "[+]ping ok\n[+]b excluded: ok\nreadyz check passed\n",
            id="exclusion is shown",
        ),
    ],
)
def test_report(checks, asked, is_healthy, text):
    assert Health("readyz", checks).report(**asked) == (is_healthy, text)


def test_single_check_can_be_asked():
    health = Health("readyz", {"a": healthy, "b": broken})

    assert health.report_one("a") == (True, "ok")
    assert health.report_one("b") == (False, "not yet")
    assert "ping" in health
    assert "c" not in health
