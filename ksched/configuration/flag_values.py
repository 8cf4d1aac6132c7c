"""The command line as ``/flagz`` shows it: every flag with its value, written as Go's flags do.

Values are those of the flags, not of the configuration file; secrets in them are redacted.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ksched.configuration.durations import format_duration
from ksched.redaction import is_secret_key, redact

DURATION: Final = "DURATION"
"""The ``metavar`` of flags whose values are durations."""


def flag_values(
    declared: Iterable[argparse.Action], flags: argparse.Namespace, defaults: Mapping[str, Any]
) -> dict[str, str]:
    """Return the values by name; ``defaults`` are those of flags that were not given.

    kube-scheduler: convertNamedFlagSetToFlags.
    """
    values: dict[str, str] = {}
    for flag in declared:
        value = getattr(flags, flag.dest)
        if value is None:
            value = defaults.get(flag.dest)
        name = max(flag.option_strings, key=len).lstrip("-")
        text = _shown(value, is_duration=flag.metavar == DURATION)
        # The group of a flag, not the header.
        is_secret = is_secret_key(name.removeprefix("authorization-"))
        values[name] = redact(text, is_secret=is_secret)
    return values


def _shown(value: Any, *, is_duration: bool = False) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if is_duration:
        return format_duration(value)
    if isinstance(value, list) and isinstance(value[0], tuple):  # given several times
        value = tuple(item for part in value for item in part)
    elif isinstance(value, list) and not isinstance(value[0], Mapping):
        return f"[{';'.join(map(_shown, value))}]"
    elif isinstance(value, list):
        value = {key: item for part in value for key, item in part.items()}
    if isinstance(value, Mapping):
        return ",".join(f"{key}={_shown(value[key])}" for key in sorted(value))
    if isinstance(value, tuple):
        return f"[{','.join(map(_shown, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)
