"""Syntax of names of labels, annotations and resources, and of label values.

The rules and messages follow apimachinery (``util/validation``, v1.36).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.ASCII)
_DNS_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_SUBDOMAIN = re.compile(rf"{_DNS_LABEL}(\.{_DNS_LABEL})*", re.ASCII)

DNS_SUBDOMAIN_PATTERN = _DNS_SUBDOMAIN.pattern
NAME_PATTERN = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_LABEL_VALUE = re.compile(rf"(?:{NAME_PATTERN})?", re.ASCII)

_CHARACTERS = (
    "consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character"
)


@lru_cache(maxsize=4096)
def qualified_name_problems(name: str) -> tuple[str, ...]:
    """Return what is wrong with ``[prefix/]name``; empty if valid."""
    prefix, slash, name_part = name.rpartition("/")
    if "/" in prefix:
        return (
            f"a qualified name must {_CHARACTERS} "
            "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
        )
    problems = []
    if slash and not prefix:
        problems.append("prefix part must be non-empty")
    elif slash and len(prefix) > 253:
        problems.append("prefix part must be no more than 253 bytes")
    elif slash and _DNS_SUBDOMAIN.fullmatch(prefix) is None:
        problems.append(
            "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric "
            "characters, '-' or '.', and must start and end with an alphanumeric character"
        )
    if not name_part:
        problems.append("name part must be non-empty")
    elif len(name_part) > 63:
        problems.append("name part must be no more than 63 bytes")
    if _NAME.fullmatch(name_part) is None:
        problems.append(f"name part must {_CHARACTERS}")
    return tuple(problems)


def are_label_values(values: Iterable[str]) -> bool:
    """Whether ``label_value_problems`` would find nothing in any of them; there may be many."""
    return all(map(_LABEL_VALUE.fullmatch, values))


@lru_cache(maxsize=4096)
def label_value_problems(value: str) -> tuple[str, ...]:
    """Return what is wrong with a label's value; empty if valid."""
    problems = []
    if len(value) > 63:
        problems.append("must be no more than 63 bytes")
    if value and _NAME.fullmatch(value) is None:
        problems.append(f"a valid label must be an empty string or {_CHARACTERS}")
    return tuple(problems)
