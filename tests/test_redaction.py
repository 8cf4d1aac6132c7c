from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ksched.redaction import REDACTED, is_secret_key, redact, redact_text, without_credentials


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://me:hunter2@x:8443/a", f"https://{REDACTED}@x:8443/a"),
        ("https://hunter2@x/a", f"https://{REDACTED}@x/a"),
        ("http://me:hun/ter2@x/a", f"http://{REDACTED}@x/a"),
        ("http://x/a?token=hunter2&b=1", f"http://x/a?{REDACTED}"),
        ("http://x/a#hunter2", f"http://x/a#{REDACTED}"),
        ("socks5://me:hunter2@[::1]:1080", f"socks5://{REDACTED}@[::1]:1080"),
        ("me:hunter2@x:8443", f"{REDACTED}@x:8443"),
        ("filter?token=hunter2", f"filter?{REDACTED}"),
        ("got 'http://me:hunter2@x' at 'http://y'", f"got 'http://{REDACTED}@x' at 'http://y'"),
        ("Authorization: Bearer hunter2hunter2", f"Authorization: Bearer {REDACTED}"),
        ("Basic\thunter2hunter2", f"Basic\t{REDACTED}"),
        ("aws --token=hunter2 get", f"aws --token={REDACTED} get"),
        ("--master=https://me:hunter2@x", f"--master=https://{REDACTED}@x"),
        ("a=b=http://x/?q=hunter2", f"a=b=http://x/?{REDACTED}"),
        ("proxy=me:hunter2@x:80, token=a", f"proxy={REDACTED}@x:80, token={REDACTED}"),
        ("AWS_SECRET_ACCESS_KEY=hunter2", f"AWS_SECRET_ACCESS_KEY={REDACTED}"),
        ("got eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln.", f"got {REDACTED}."),
        (
            "a\n-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----\nb",
            f"a\n{REDACTED}\nb",
        ),
        ("-----BEGIN PRIVATE KEY-----\nhunter2", REDACTED),
    ],
)
def test_secrets_in_text_are_replaced(text, shown):
    assert redact_text(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "0/3 nodes are available: 3 Insufficient cpu.",
        "https://fpga.kube-system.svc:8443/scheduler",
        "nginx:1.25@sha256:abcdef0123456789",
        "WATCH /api/v1/pods: connection lost",
        "topology.kubernetes.io/zone=a",
        "default/basic-web-0",
        "cannot reach 127.0.0.1:6443: [Errno 111] Connection refused",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    ],
)
def test_ordinary_text_stays(text):
    assert redact_text(text) == text


@pytest.mark.parametrize(
    "key",
    [
        "token",
        "password",
        "dbPassword",
        "API_KEY",
        "apiKey",
        "x-api-key",
        "keyData",
        "client-key-data",
        "secret",
        "bearerToken",
        "clientSecret",
        "aws_secret_access_key",
        "Authorization",
        "tokens",
    ],
)
def test_keys_of_secrets(key):
    assert is_secret_key(key)


@pytest.mark.parametrize(
    "key",
    [
        "key",
        "topologyKey",
        "keyFile",
        "tokenFile",
        "secretName",
        "tokenTTL",
        "certData",
        "name",
        "monkeys",
        "tokenizer",
    ],
)
def test_keys_of_what_may_be_shown(key):
    assert not is_secret_key(key)


def test_data_are_searched_to_the_leaves():
    content = {
        "url": "http://me:hunter2@x/?token=hunter2",
        "credentials": {"user": "me", "deep": ["hunter2", 2, None, ""]},
        "password": 12345,
        "env": [{"name": "TOKEN", "value": "hunter2"}, {"name": "HOME", "value": "/root"}],
        "args": ("--password=hunter2", "plain"),
        "weight": 3,
    }
    shown = redact(content)

    assert "hunter2" not in str(shown)
    assert "12345" not in str(shown)
    assert shown["credentials"] == {"user": REDACTED, "deep": [REDACTED, REDACTED, None, ""]}
    assert shown["env"][1] == {"name": "HOME", "value": "/root"}
    assert (shown["args"][1], shown["weight"]) == ("plain", 3)
    assert content["password"] == 12345, "the original is left alone"
    assert redact("hunter2", is_secret=True) == REDACTED


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://me:hunter2@x:8443/a?token=hunter2#f", "https://x:8443/a"),
        ("me:hunter2@x", f"{REDACTED}@x"),
        ("http://[x", "http://[x"),
    ],
)
def test_address_as_a_name(url, name):
    assert without_credentials(url) == name


WORD = st.text(st.sampled_from("abcXYZ019-._~!$%"), min_size=1, max_size=12)


@given(user=WORD, password=WORD, query=WORD, around=st.text(max_size=20))
def test_no_password_of_any_url_survives(user, password, query, around):
    secret, asked = f"{password}hunter2", f"{query}hunter3"
    text = redact_text(f"{around} https://{user}:{secret}@host/path?{asked} {around}")
    assert "hunter2" not in text
    assert "hunter3" not in text
    assert redact_text(text) == redact_text(redact_text(text))


@pytest.mark.parametrize(
    "text",
    [
        *("a:" * 50_000, "x-" * 50_000, "://" * 50_000, "a" * 100_000),
        *("ab=" * 400_000, "ab=a/b:c" * 100_000, "ab=eyJaaaaaaaa." * 100_000),
    ],
)
def test_long_text_costs_no_more_than_its_length(text):
    """A pattern that looks back over the whole text would take minutes here."""
    assert len(redact_text(text)) <= len(text) + 100_000
