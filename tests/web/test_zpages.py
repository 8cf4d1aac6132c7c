"""/flagz and /statusz: what they show, in which representation, and to whom 406.

Covers ``ksched.web.content_negotiation`` and ``ksched.web.api_failures`` too. That kube-scheduler
answers the same is tested in tests/real/test_zpages.py.
"""

from __future__ import annotations

import json

import pytest
import yaml

from ksched import __version__
from ksched.web.zpages import flagz, statusz, wants_indentation

FLAGS = {"v": "2", "leader-elect": "true", "master": ""}
STARTED = 1_700_000_000.0
AS = "g=config.k8s.io;v=v1beta1;as=Flagz"
NOT_ACCEPTABLE = (
    "only the following media types are accepted: application/json, application/yaml, text/plain"
)


def page(accept: str = "", **options):
    return flagz(FLAGS).answer(accept, **options)


def status(uptime: float, accept: str = ""):
    paths = ["/", "/metrics", "/metrics/slis", "/debug/queue", "/healthz/{check}"]
    return statusz(STARTED, lambda: STARTED + uptime, paths).answer(accept)


def test_flags_are_sorted_lines_after_a_warning() -> None:
    answer = page()
    assert (answer.status, answer.content_type) == (200, "text/plain; charset=utf-8")
    lines = answer.body.decode().split("\n")
    assert lines[:2] == ["", "ksched flagz"]
    assert lines[2].startswith("Warning: This endpoint is not meant to be machine parseable")
    assert lines[3:] == ["leader-elect=true", "master=", "v=2", ""]


def test_status_shows_start_versions_and_paths() -> None:
    text = status(3 * 3600 + 4 * 60 + 5.9).body.decode()
    assert text.startswith("\nksched statusz\nWarning: ")
    lines = dict(line.split(": ", 1) for line in text.split("\n\n")[1].splitlines())
    assert lines.pop("Started").endswith(" 2023")
    assert lines.pop("Python version").startswith("3.")
    assert lines == {
        "Up": "3 hr 04 min 05 sec",
        "Binary version": __version__,
        "Emulation version": "1.36",
        "Paths": "/debug /healthz /metrics",
    }


def test_clock_that_went_back_is_no_negative_uptime() -> None:
    assert "Up: 0 hr 00 min 00 sec" in status(-100).body.decode()


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (" ", "text/plain"),
        ("*/*", "text/plain"),
        ("*", "text/plain"),
        ("text/*", "text/plain"),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "text/plain"),
        ("application/json, text/plain;q=0.1", "text/plain"),
        (f"application/json;{AS}", "application/json"),
        (f"application/yaml;{AS}", "application/yaml"),
        (f"application/*;{AS}", "application/json"),
        (f"*/*;{AS}", "application/json"),
        (f"text/plain;q=0.5,application/json;{AS}", "application/json"),
        (f"text/plain,application/json;{AS};q=0.9", "text/plain"),
        (f"text/plain;q=nonsense, application/yaml; {AS.replace(';', ' ; ')}", "application/yaml"),
        (f"text/plain;q=nan,application/yaml;{AS}", "application/yaml"),
        (f"application/json;{AS};unknown=1;=;a=b=c", "application/json"),
    ],
)
def test_representation_is_negotiated(accept: str, content_type: str) -> None:
    answer = page(accept)
    assert answer.status == 200
    assert answer.content_type.partition(";")[0] == content_type


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("application/json", "application/json"),
        ("application/yaml", "application/yaml"),
        ("application/*", "application/json"),
        ("text/html", "application/json"),
        ("text", "application/json"),
        ("text/plain/x", "application/json"),
        (",;,;=,", "application/json"),
        ("text/plain;as=Flagz", "application/json"),
        (f"application/json;{AS};stream=watch", "application/json"),
        (f"application/json;{AS};sv=v1", "application/json"),
        ("application/json;g=config.k8s.io;v=v1beta1;as=Statusz", "application/json"),
        ("application/json;g=config.k8s.io;v=v2;as=Flagz", "application/json"),
        ("application/json;v=v1beta1;as=Flagz", "application/json"),
        ("application/vnd.kubernetes.protobuf", "application/json"),
    ],
)
def test_what_does_not_exist_is_not_acceptable(accept: str, content_type: str) -> None:
    answer = page(accept)
    assert (answer.status, answer.content_type) == (406, content_type)
    content = yaml.safe_load(answer.body)
    assert (content["kind"], content["code"], content["reason"]) == ("Status", 406, "NotAcceptable")
    assert content["message"] == NOT_ACCEPTABLE


def test_structured_flags_are_a_versioned_object() -> None:
    answer = page(f"application/json;{AS}")
    assert answer.content_type == f"application/json;{AS}"
    assert answer.headers == {}
    assert json.loads(answer.body) == {
        "kind": "Flagz",
        "apiVersion": "config.k8s.io/v1beta1",
        "metadata": {"name": "ksched"},
        "flags": FLAGS,
    }
    as_yaml = page(f"application/yaml;{AS}")
    assert yaml.safe_load(as_yaml.body) == json.loads(answer.body)


def test_structured_status_is_a_versioned_object() -> None:
    answer = status(61.5, "application/json;g=config.k8s.io;v=v1beta1;as=Statusz")
    content = json.loads(answer.body)
    assert content.pop("goVersion").startswith("python3.")
    assert content == {
        "kind": "Statusz",
        "apiVersion": "config.k8s.io/v1beta1",
        "metadata": {"name": "ksched"},
        "startTime": "2023-11-14T22:13:20Z",
        "uptimeSeconds": 61,
        "binaryVersion": __version__,
        "emulationVersion": "1.36",
        "paths": ["/debug", "/healthz", "/metrics"],
    }


def test_old_version_is_served_with_a_warning() -> None:
    answer = page(f"application/json;{AS.replace('v1beta1', 'v1alpha1')}")
    assert json.loads(answer.body)["apiVersion"] == "config.k8s.io/v1alpha1"
    assert answer.headers["Warning"].startswith('299 - "This version of the flagz endpoint')


def test_json_is_indented_for_people() -> None:
    accept = f"application/json;{AS}"
    assert page(accept).body.count(b"\n") == 1
    assert page(accept, is_pretty=True).body.startswith(b'{\n  "kind": "Flagz"')
    assert page(f"{accept};pretty=1").body.startswith(b'{\n  "kind": "Flagz"')


@pytest.mark.parametrize(
    ("pretty", "user_agent", "expected"),
    [
        (None, "curl/8.5.0", True),
        (None, "Mozilla/5.0 (X11; Linux x86_64)", True),
        (None, "Prometheus/3.0", False),
        ("1", "Prometheus/3.0", True),
        ("false", "curl/8.5.0", False),
        ("", "curl/8.5.0", True),
    ],
)
def test_who_gets_indentation(pretty: str | None, user_agent: str, expected: bool) -> None:
    assert wants_indentation(pretty, user_agent) is expected
