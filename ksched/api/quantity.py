"""Kubernetes quantities (``100m``, ``1.5Gi``, ``1e3``) as exact numbers.

Accepts what apimachinery accepts (``resource.ParseQuantity``, v1.36) and rounds as it does: to a
billionth at the finest, and away from zero, so that a small request never becomes none. Amounts
beyond an int64 are clamped to the nearest int64.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from ksched.api.objects import Quantity

MAX_INT64 = 2**63 - 1
NANOS = 10**9
"""Nano units in one unit: the finest step of a quantity."""

_NANOS_PER_MILLI = 10**6
_MAX_NANOS = MAX_INT64 * NANOS

# The number may be empty: kube-scheduler reads "m" and "-" as zero. Possessive, because the suffix
# may begin with digits too: a long text that is no quantity would take quadratic time.
_SYNTAX = re.compile(r"([+-]?)([0-9]*+)(?:\.([0-9]*+))?([eEinumkKMGTP]*+[-+]?[0-9]*+)", re.ASCII)
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)", re.ASCII)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}

# Beyond these every number that fits in a message is saturated or rounded to one nano anyway;
# without them "1e999999999" would exhaust the memory.
_LARGEST_EXPONENT = 10_000

# Python refuses to read numbers of more than 4300 digits.
_MOST_DIGITS = 4000

_LONGEST_KEPT = 64
"""Characters of a text that is remembered: in a custom resource it may have a million."""


def parse_quantity(quantity: Quantity) -> int | Fraction:
    """Return the exact number of units; an int where it is whole.

    Raises ``ValueError`` naming the text that is not a quantity.
    """
    nanos = to_nanos(quantity)
    whole, rest = divmod(nanos, NANOS)
    return Fraction(nanos, NANOS) if rest else whole


def value(quantity: Quantity) -> int:
    """Return whole units, rounded away from zero (``Quantity.Value``)."""
    return units_from_nanos(to_nanos(quantity))


def milli_value(quantity: Quantity) -> int:
    """Return thousandths, rounded away from zero (``Quantity.MilliValue``)."""
    return millis_from_nanos(to_nanos(quantity))


def to_nanos(quantity: Quantity) -> int:
    """Return the exact number of nano units, the form in which quantities are summed.

    Sum before rounding: two halves of a byte are one byte, not two.
    """
    if type(quantity) is str:
        return _parse(quantity) if len(quantity) <= _LONGEST_KEPT else _read(quantity)
    if isinstance(quantity, bool):
        raise ValueError(f"{quantity!r} is not a quantity")
    if isinstance(quantity, int):
        return _saturate(quantity * NANOS)
    return _parse(str(quantity))


def units_from_nanos(nanos: int) -> int:
    """Round a sum of nano units away from zero to an int64 number of units."""
    units = -(-nanos // NANOS) if nanos >= 0 else nanos // NANOS
    return units if -MAX_INT64 <= units <= MAX_INT64 else clamp_to_int64(units)


def millis_from_nanos(nanos: int) -> int:
    """Round a sum of nano units away from zero to an int64 number of thousandths."""
    return clamp_to_int64(_divide_away_from_zero(nanos, _NANOS_PER_MILLI))


def clamp_to_int64(number: int) -> int:
    """Return the nearest int64."""
    return max(-MAX_INT64 - 1, min(number, MAX_INT64))


@lru_cache(maxsize=16384)
def _parse(text: str) -> int:
    return _read(text)


def _read(text: str) -> int:
    text = text.strip()
    match = _SYNTAX.fullmatch(text)
    if not text or match is None:
        problem = "is not a quantity: wanted a number with a unit, such as 100m"
        raise ValueError(f"{text[:_LONGEST_KEPT]!r} {problem}")
    sign, whole, fraction, suffix = match.group(1), match.group(2), match.group(3) or "", match[4]
    digits, left_out = _leading_digits(whole + fraction)
    exponent = left_out + 9 - len(fraction)
    if suffix in _BINARY:
        nanos = _scale(digits << _BINARY[suffix], exponent)
    else:
        nanos = _scale(digits, _exponent(text, suffix) + exponent)
    return -_saturate(nanos) if sign == "-" else _saturate(nanos)


def _leading_digits(digits: str) -> tuple[int, int]:
    """Return a number, rounded up to its first digits, and how many digits were omitted."""
    digits = digits.lstrip("0")
    rest = digits[_MOST_DIGITS:]
    return int(digits[:_MOST_DIGITS] or "0") + bool(rest.strip("0")), len(rest)


def _exponent(text: str, suffix: str) -> int:
    exponent = _DECIMAL.get(suffix)
    if exponent is not None:
        return exponent
    match = _EXPONENT.fullmatch(suffix)
    if match is None:
        unit = suffix[:_LONGEST_KEPT]
        raise ValueError(f"{text[:_LONGEST_KEPT]!r} is not a quantity: unknown unit {unit!r}")
    if len(match[1]) > _MOST_DIGITS:
        return -_LARGEST_EXPONENT if match[1][0] == "-" else _LARGEST_EXPONENT
    return int(match[1])


def _scale(digits: int, exponent: int) -> int:
    """Return ``digits * 10**exponent``, rounded up."""
    exponent = max(-_LARGEST_EXPONENT, min(exponent, _LARGEST_EXPONENT))
    if exponent >= 0:
        return digits * int(10**exponent)
    return _divide_away_from_zero(digits, int(10**-exponent))


def _divide_away_from_zero(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor) if dividend >= 0 else dividend // divisor


def _saturate(nanos: int) -> int:
    return max(-_MAX_NANOS, min(nanos, _MAX_NANOS))
