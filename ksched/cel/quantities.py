"""Kubernetes quantities as values, and the functions on them."""

from __future__ import annotations

from functools import lru_cache

from ksched.api.quantity import NANOS, to_nanos
from ksched.cel import static_types as types
from ksched.cel.declarations import Library, fixed_cost
from ksched.cel.errors import EvaluationError
from ksched.cel.standard_functions import first_traversal
from ksched.cel.values import MAX_INT, OpaqueValue, Value, no_such_overload

LIBRARY = Library()
QUANTITY = types.struct("kubernetes.Quantity")

_FORMAT = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
_SUFFIX = "unable to parse quantity's suffix"
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_MOST_DIGITS = 18
_LONGEST_EXPONENT = 20
_LONGEST_KEPT = 64
"""Characters of a text whose quantity is cached: a computed one may be very long."""


class Quantity(OpaqueValue):
    """An exact amount.

    ``scale`` is the decimal exponent of apimachinery's short form, or ``None`` for its long form,
    which ``AsInt64`` does not convert. A sum has another Go type than a parsed quantity, so it is
    invalid as the right operand of ``==``.
    """

    __slots__ = ("is_sum", "nanos", "scale")
    type_name = "kubernetes.Quantity"

    def __init__(self, nanos: int, scale: int | None, *, is_sum: bool = False) -> None:
        self.nanos = nanos
        self.scale = scale
        self.is_sum = is_sum

    def equals(self, other: Value) -> bool:
        if type(other) is not Quantity or other.is_sum:
            raise no_such_overload()
        return self.nanos == other.nanos

    def integer(self) -> int | None:
        """The result of ``AsInt64``."""
        if self.scale is None or self.scale < 0:
            return None
        units = self.nanos // NANOS
        return units if -MAX_INT - 1 <= units <= MAX_INT else None


def parse_quantity(text: str) -> Quantity:
    """Parse a quantity; raises ``EvaluationError`` with apimachinery's message."""
    return _cached(text) if len(text) <= _LONGEST_KEPT else _parse(text)


def _parse(text: str) -> Quantity:
    if text != text.strip():
        raise EvaluationError(_FORMAT)
    try:
        nanos = to_nanos(text)
    except ValueError as error:
        raise EvaluationError(_SUFFIX if "unknown unit" in str(error) else _FORMAT) from None
    return Quantity(nanos, _scale(text))


_cached = lru_cache(maxsize=4096)(_parse)


def _scale(text: str) -> int | None:
    """Return the exponent of the short form, if apimachinery uses it for this text."""
    number = text.lstrip("+-")
    digits = len(number) - len(number.lstrip("0123456789"))
    whole, rest = number[:digits], number[digits:]
    fraction = ""
    if rest.startswith("."):
        tail = rest[1:]
        fraction = tail[: len(tail) - len(tail.lstrip("0123456789"))]
        rest = tail[len(fraction) :]
    whole = whole.lstrip("0") or "0"
    if rest in _BINARY:
        precision = 15 - len(whole) - int(_BINARY[rest] * 3 / 10) - 1
        return 0 if not fraction and precision >= 0 else None
    exponent = _DECIMAL.get(rest)
    if exponent is None:
        if len(rest) > _LONGEST_EXPONENT:
            raise EvaluationError(_SUFFIX)
        exponent = int(rest[1:])
    scale = exponent - len(fraction)
    if _MOST_DIGITS - len(whole) - len(fraction) < 0 or scale < -9:
        return None
    return scale


def quantity_sum(left: Quantity, right: Quantity) -> Quantity:
    nanos = left.nanos + right.nanos
    if left.scale is None or right.scale is None:
        return Quantity(nanos, None, is_sum=True)
    if not left.nanos:
        return Quantity(nanos, right.scale, is_sum=True)
    scale = left.scale if not right.nanos else min(left.scale, right.scale)
    value = nanos // 10 ** (scale + 9)
    return Quantity(nanos, scale if abs(value) <= MAX_INT else None, is_sum=True)


def _negated(operand: Quantity) -> Quantity:
    return Quantity(-operand.nanos, operand.scale)


def _of_int(number: int) -> Quantity:
    return Quantity(number * NANOS, 0)


def _is_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except EvaluationError:
        return False
    return True


def _as_integer(operand: Quantity) -> int:
    number = operand.integer()
    if number is None:
        raise EvaluationError("cannot convert value to integer")
    return number


def _as_float(operand: Quantity) -> float:
    return operand.nanos / NANOS


def _compare(left: Quantity, right: Quantity) -> int:
    return (left.nanos > right.nanos) - (left.nanos < right.nanos)


def _sign(operand: Quantity) -> int:
    return (operand.nanos > 0) - (operand.nanos < 0)


def _declare() -> None:
    q, one = QUANTITY, fixed_cost(1)
    declare = LIBRARY.overload
    text = (types.STRING,)
    declare("quantity", "string_to_quantity", text, q, parse_quantity, cost=first_traversal)
    declare(
        "isQuantity", "is_quantity_string", text, types.BOOL, _is_quantity, cost=first_traversal
    )
    declare("sign", "quantity_sign", (q,), types.INT, _sign, cost=one)
    member = {"member": True, "cost": one}
    declare(
        "isGreaterThan",
        "quantity_is_greater_than",
        (q, q),
        types.BOOL,
        lambda left, right: left.nanos > right.nanos,
        **member,  # type: ignore[arg-type]
    )
    declare(
        "isLessThan",
        "quantity_is_less_than",
        (q, q),
        types.BOOL,
        lambda left, right: left.nanos < right.nanos,
        **member,  # type: ignore[arg-type]
    )
    declare("compareTo", "quantity_compare_to", (q, q), types.INT, _compare, member=True, cost=one)
    declare("asApproximateFloat", "quantity_get_float", (q,), types.DOUBLE, _as_float, member=True)
    declare("asInteger", "quantity_get_int", (q,), types.INT, _as_integer, member=True)
    declare(
        "isInteger",
        "quantity_is_integer",
        (q,),
        types.BOOL,
        lambda operand: operand.integer() is not None,
        member=True,
    )
    declare("add", "quantity_add", (q, q), q, quantity_sum, member=True)
    declare(
        "add",
        "quantity_add_int",
        (q, types.INT),
        q,
        lambda left, right: quantity_sum(left, _of_int(right)),
        member=True,
    )
    declare(
        "sub",
        "quantity_sub",
        (q, q),
        q,
        lambda left, right: quantity_sum(left, _negated(right)),
        member=True,
    )
    declare(
        "sub",
        "quantity_sub_int",
        (q, types.INT),
        q,
        lambda left, right: quantity_sum(left, _of_int(-right)),
        member=True,
    )
    LIBRARY.type_names[QUANTITY.name] = QUANTITY


_declare()
