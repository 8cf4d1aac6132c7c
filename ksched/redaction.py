"""Redaction of secrets in configurations, log lines and error messages.

``redact`` is for data, whose keys identify secrets, ``redact_text`` for prose and tracebacks,
``without_credentials`` for a URL used as a name. Everything that shows a configuration, a URL or an
exception from outside this project goes through one of them.

Redacted are: user and password, query and fragment of every URL, values whose key names a password,
token, key or the like, values of ``Authorization``, assignments like ``--token=...``, JSON web
tokens and private keys in PEM. Rather too much than too little: the original is in the file it
came from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

REDACTED: Final = "--- REDACTED ---"

_SECRET_KEY: Final = re.compile(
    r"""
    (?:^|[-_. ])
    (?: password | passwd | passphrase | pwd | tokens? | secrets? | credentials? | authorization
      | bearer | cookies? | signatures? | key[-_ ]?data
      | (?: api | access | account | auth | client | encryption | license | master | private
          | shared | signing | ssh ) [-_ ]? keys?
    )
    (?:$|[-_. ])
    """,
    re.VERBOSE | re.IGNORECASE,
)
# The location, name or lifetime of a secret, not the secret.
_ABOUT_A_SECRET: Final = re.compile(
    r"[-_. ](?:file|path|dir|name|namespace|ref|type|ttl|timeout|seconds|duration|count|enabled)$",
    re.IGNORECASE,
)
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

_SCHEME_NAMES: Final = ("earer", "EARER", "asic", "ASIC")
# Every repetition is bounded or starts at a character it cannot contain, so that the time is linear
# in the length of the text.
_IN_TEXT: Final = re.compile(
    r"""
      (?P<pem>-----BEGIN\ [A-Z ]*PRIVATE\ KEY-----.*?(?:-----END\ [A-Z ]*PRIVATE\ KEY-----|\Z))
    | (?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,20}://)(?P<rest>[^\s"'<>\\]*)
    | (?P<how>\b(?:Bearer|Basic)\s+)[A-Za-z0-9+/=._~-]{8,}
    | \beyJ[\w-]{8,4000}\.[\w-]+\.[\w-]*
    | (?P<question>\?)[\w.~%\[\]-]+=[^\s"'<>\\]*
    | (?<![^\s"',;()=])[^\s"'/@:,;()=]{1,99}:[^\s"'/@]{1,999}@(?!sha\d+:)(?=[\w.\[-])
    | (?<![\w-])(?P<assigned>[\w-]{2,80})=(?=[^\s"'&,;])
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
# Not in the pattern above: of ``a=b=c=d`` each value would be read up to the end of all.
_ASSIGNED_VALUE: Final = re.compile(r"[^\s\"'&,;]+")


def redact(content: Any, *, is_secret: bool = False) -> Any:
    """Return a copy of plain JSON data without secrets; all of it if it ``is_secret``."""
    if isinstance(content, Mapping):
        # Environment variables come as pairs: {"name": "TOKEN", "value": "..."}.
        is_pair = is_secret_key(str(content.get("name", "")))
        return {
            key: redact(
                value,
                is_secret=is_secret or is_secret_key(str(key)) or (is_pair and key == "value"),
            )
            for key, value in content.items()
        }
    if isinstance(content, list | tuple):
        return [redact(item, is_secret=is_secret) for item in content]
    if is_secret:
        return content if content in (None, "", True, False) else REDACTED
    return redact_text(content) if isinstance(content, str) else content


def is_secret_key(key: str) -> bool:
    """Whether a field of this name holds a secret; ``tokenFile`` only names its location."""
    words = _CAMEL.sub("_", key)
    return bool(_SECRET_KEY.search(words)) and not _ABOUT_A_SECRET.search(words)


def redact_text(text: str) -> str:
    """Return the text with its secrets replaced."""
    if not _may_have_secret(text):
        return text
    pieces, at = [], 0
    while match := _IN_TEXT.search(text, at):
        pieces.append(text[at : match.start()])
        at = match.end()
        if not match["assigned"]:
            pieces.append(_replacement(match))
            continue
        pieces.append(match[0])
        # The value of one that is no secret is looked at: it may be an address with a password.
        if is_secret_key(match["assigned"]) and (value := _ASSIGNED_VALUE.match(text, at)):
            pieces.append(REDACTED)
            at = value.end()
    return "".join(pieces) + text[at:]


def _may_have_secret(text: str) -> bool:
    # One by one: a loop over them takes three times as long, for every field of every log line.
    if "=" in text or "@" in text or "://" in text or "eyJ" in text or "-----BEGIN" in text:
        return True
    # The name of an authentication scheme is followed by a space; "basic" in a pod's name is not.
    has_name = any(name in text for name in _SCHEME_NAMES)
    return has_name and len(text.split(None, 1)) > 1


def _replacement(match: re.Match[str]) -> str:
    if match["scheme"]:
        return match["scheme"] + _redact_address(match["rest"])
    if match["pem"]:
        return REDACTED
    if match["question"]:
        return f"?{REDACTED}"
    if match[0].endswith("@"):
        return f"{REDACTED}@"
    return f"{match['how'] or ''}{REDACTED}"


def _redact_address(rest: str) -> str:
    """Redact what follows ``scheme://``; a password may contain a slash, so the last @ ends it."""
    address, separator, _ = _before_query(rest)
    credentials, at, place = address.rpartition("@")
    hidden = f"{REDACTED}@" if credentials or at else ""
    return f"{hidden}{place}{separator}{REDACTED if separator else ''}"


def _before_query(rest: str) -> tuple[str, str, str]:
    match = re.search(r"[?#]", rest)
    if match is None:
        return rest, "", ""
    return rest[: match.start()], match[0], rest[match.end() :]


def without_credentials(url: str) -> str:
    """Return a URL without user, password and query, to identify a server."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return redact_text(url)
    if not parts.netloc:
        return redact_text(url)
    place = parts.netloc.rpartition("@")[2]
    return SplitResult(parts.scheme, place, parts.path, "", "").geturl()
