"""Resource quantities as the server writes them back: one spelling for each amount.

``1000m`` is stored as ``1``, ``1024Mi`` as ``1Gi``, the number 2 as ``2``. The suffix family
(decimal, binary, exponent) is the writer's.
"""

from __future__ import annotations

from functools import lru_cache

from ksched.api.quantity import NANOS, to_nanos

_DECIMAL_SUFFIXES = {-3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_BINARY_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")

PATTERN_MESSAGE = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)


@lru_cache(maxsize=4096)
def canonical_quantity(text: str) -> str:
    """Return the server's spelling, rounded up to thousandths; raises ``ValueError``."""
    try:
        nanos = to_nanos(text)
    except ValueError:
        raise ValueError(PATTERN_MESSAGE) from None
    if not text.strip("+-."):
        raise ValueError(PATTERN_MESSAGE)
    millis = _divide_up(nanos, NANOS // 1000)
    if text.endswith("i") and abs(millis) >= 1024 * 1000:
        return _binary(_divide_up(millis, 1000))
    return _decimal(millis, exponent_form=text[-1].isdigit() and "e" in text.lower())


def _divide_up(amount: int, unit: int) -> int:
    """Divide, rounding away from zero."""
    return -(-amount // unit) if amount >= 0 else amount // unit


def _binary(value: int) -> str:
    power = 0
    while value % 1024 == 0 and power < len(_BINARY_SUFFIXES) - 1:
        value, power = value // 1024, power + 1
    return f"{value}{_BINARY_SUFFIXES[power]}"


def _decimal(millis: int, exponent_form: bool) -> str:
    if millis == 0:
        return "0"
    mantissa, exponent = millis, -3
    while mantissa % 1000 == 0 and exponent < 18:
        mantissa, exponent = mantissa // 1000, exponent + 3
    if exponent_form:
        return f"{mantissa}e{exponent}" if exponent else str(mantissa)
    return f"{mantissa}{_DECIMAL_SUFFIXES[exponent]}"
