"""Go durations: the strings of the API (``1m30s``) and the seconds that ksched computes with."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, PlainSerializer, ValidationInfo
from pydantic_core import PydanticCustomError

# Passed as validation context when the data come from a file. Python code may pass a duration as a
# number of seconds; in a file a bare number is rejected, as in kube-scheduler, because its unit is
# ambiguous.
FROM_FILE: Final = {"from_file": True}

_NANOSECONDS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_TERM: Final = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_DURATION: Final = re.compile(rf"([+-]?)((?:{_TERM.pattern})+)")
_LONGEST: Final = 200
"""In characters. Annotations have durations too, and a longer text would take long to refuse."""


def parse_duration(text: str) -> float:
    """Convert a Go duration to seconds; raises ``ValueError`` if invalid."""
    if text.lstrip("+-") == "0" and len(text) <= 2:
        return 0.0
    match = _DURATION.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise ValueError(f"invalid duration {text[:_LONGEST]!r}")
    nanoseconds = 0
    for number, unit in _TERM.findall(match[2]):
        whole, _, fraction = number.partition(".")
        scale = _NANOSECONDS[unit]
        # Integer arithmetic: 0.1s is exactly 100ms, whatever a float makes of it.
        nanoseconds += int(whole or 0) * scale
        nanoseconds += int(fraction or 0) * scale // 10 ** len(fraction)
    if nanoseconds >= 2**63:
        raise ValueError(f"invalid duration {text!r}: longer than 292 years")
    return (-nanoseconds if match[1] == "-" else nanoseconds) / 10**9


def format_duration(seconds: float) -> str:
    """Format seconds as Go does: ``500ms``, ``15s``, ``1m30s``, ``1h0m0s``."""
    nanoseconds = round(seconds * 10**9)
    sign, nanoseconds = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if nanoseconds == 0:
        return "0s"
    if nanoseconds < 10**9:
        unit = next(u for u in ("ms", "µs", "ns") if nanoseconds >= _NANOSECONDS[u])
        return f"{sign}{_decimal(nanoseconds, _NANOSECONDS[unit])}{unit}"
    minutes, rest = divmod(nanoseconds, 60 * 10**9)
    text = f"{_decimal(rest, 10**9)}s"
    if minutes:
        hours, minutes = divmod(minutes, 60)
        text = f"{minutes}m{text}"
        if hours:
            text = f"{hours}h{text}"
    return sign + text


def _decimal(value: int, scale: int) -> str:
    whole, fraction = divmod(value, scale)
    digits = str(fraction).rjust(len(str(scale)) - 1, "0").rstrip("0")
    return f"{whole}.{digits}" if digits else str(whole)


def _decode(value: Any, info: ValidationInfo) -> float:
    if isinstance(value, str):
        try:
            return parse_duration(value)
        except ValueError as error:
            raise PydanticCustomError("duration", "{text}", {"text": str(error)}) from None
    if isinstance(value, int | float) and not isinstance(value, bool) and info.context is None:
        return float(value)
    raise PydanticCustomError("duration", 'must be a duration such as "15s"')


# Whole seconds and fractions; a Go duration string in files.
Seconds = Annotated[
    float, BeforeValidator(_decode), PlainSerializer(format_duration, return_type=str)
]
