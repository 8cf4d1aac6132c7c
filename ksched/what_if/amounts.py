"""Amounts of resources as a person writes them."""

from __future__ import annotations

from typing import Final

CPU: Final = "cpu"
_BYTES: Final = ("memory", "ephemeral-storage")
_UNITS: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi")


def amount(resource: str, number: int) -> str:
    """``number`` as in a prediction: cpu in thousandths, everything else in its own unit."""
    if resource == CPU:
        return _short(number / 1000)
    if resource not in _BYTES and not resource.startswith("hugepages-"):
        return str(number)
    value, unit = float(number), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{_short(value)}{_UNITS[unit]}"


def percent(part: int, whole: int) -> int:
    """Rounded up, so that what is not empty does not look so."""
    return -(-100 * part // whole) if whole else 0


def _short(value: float) -> str:
    return (
        f"{value:.1f}".removesuffix(".0") if value >= 10 else f"{value:.2f}".rstrip("0").rstrip(".")
    )
