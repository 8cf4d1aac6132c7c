"""Semantic versions as values, and the functions on them."""

from __future__ import annotations

from functools import lru_cache
from string import ascii_letters, digits

from ksched.cel import static_types as types
from ksched.cel.declarations import Library, fixed_cost
from ksched.cel.errors import EvaluationError
from ksched.cel.standard_functions import first_traversal
from ksched.cel.values import MAX_UINT, OpaqueValue, Value, no_such_overload

LIBRARY = Library()
SEMVER = types.struct("kubernetes.Semver")

_NUMBERS = frozenset(digits)
_IDENTIFIER = frozenset(digits + ascii_letters + "-")
_LONGEST_CACHED = 64
"""Characters of a text whose version is cached: a computed one may be very long."""
Identifier = tuple[bool, int, str]
"""Whether it is alphanumeric, its number, its text: numbers sort first."""


class Semver(OpaqueValue):
    """A version; comparison ignores its build metadata."""

    __slots__ = ("_order", "major", "minor", "patch")
    type_name = "kubernetes.Semver"

    def __init__(
        self, major: int, minor: int, patch: int, prerelease: tuple[Identifier, ...]
    ) -> None:
        self.major = major
        self.minor = minor
        self.patch = patch
        self._order = (major, minor, patch, not prerelease, prerelease)

    def equals(self, other: Value) -> bool:
        if type(other) is not Semver:
            raise no_such_overload()
        return self._order == other._order

    def unhashable(self) -> str | None:
        return "internal error: runtime error: hash of unhashable type cel.Semver"

    def compare(self, other: Semver) -> int:
        return (self._order > other._order) - (self._order < other._order)


def _number(text: str, name: str) -> int:
    if not _NUMBERS.issuperset(text):
        raise EvaluationError(f'Invalid character(s) found in {name} number "{text}"')
    if len(text) > 1 and text[0] == "0":
        message = f'{name.capitalize()} number must not contain leading zeroes "{text}"'
        raise EvaluationError(message)
    return _unsigned(text)


def _unsigned(text: str) -> int:
    if not text:
        raise EvaluationError('strconv.ParseUint: parsing "": invalid syntax')
    if len(text) > 20 or int(text) > MAX_UINT:
        raise EvaluationError(f'strconv.ParseUint: parsing "{text}": value out of range')
    return int(text)


def _prerelease(text: str) -> Identifier:
    if not text:
        raise EvaluationError("Prerelease is empty")
    if _NUMBERS.issuperset(text):
        if len(text) > 1 and text[0] == "0":
            message = "Numeric PreRelease version must not contain leading zeroes"
            raise EvaluationError(f'{message} "{text}"')
        return False, _unsigned(text), ""
    if not _IDENTIFIER.issuperset(text):
        raise EvaluationError(f'Invalid character(s) found in prerelease "{text}"')
    return True, 0, text


def _check_build(text: str) -> None:
    if not text:
        raise EvaluationError("Build meta data is empty")
    if not _IDENTIFIER.issuperset(text):
        raise EvaluationError(f'Invalid character(s) found in build meta data "{text}"')


def parse_semver(text: str) -> Semver:
    """Parse a version; raises ``EvaluationError`` with the message of blang/semver."""
    return _cached(text) if len(text) <= _LONGEST_CACHED else _parse(text)


def _parse(text: str) -> Semver:
    if not text:
        raise EvaluationError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise EvaluationError("No Major.Minor.Patch elements found")
    major, minor = _number(parts[0], "major"), _number(parts[1], "minor")
    rest, plus, build = parts[2].partition("+")
    patch, minus, prerelease = rest.partition("-")
    number = _number(patch, "patch")
    identifiers = tuple(map(_prerelease, prerelease.split("."))) if minus else ()
    if plus:
        for one in build.split("."):
            _check_build(one)
    return Semver(major, minor, number, identifiers)


_cached = lru_cache(maxsize=4096)(_parse)


def _normalized(text: str) -> str:
    """Remove a leading v and zeros; add missing minor and patch numbers."""
    parts = text.removeprefix("v").split(".", 2)
    for index, part in enumerate(parts):
        if len(part) > 1:
            trimmed = part.lstrip("0")
            parts[index] = trimmed if trimmed[:1] in tuple(digits) else f"0{trimmed}"
    if len(parts) < 3:
        if "+" in parts[-1] or "-" in parts[-1]:
            message = "short version cannot contain PreRelease/Build meta data"
            raise EvaluationError(message)
        parts += ["0"] * (3 - len(parts))
    return ".".join(parts)


def semver(text: str, normalize: bool = False) -> Semver:
    return parse_semver(_normalized(text) if normalize else text)


def is_semver(text: str, normalize: bool = False) -> bool:
    try:
        semver(text, normalize)
    except EvaluationError:
        return False
    return True


def _declare() -> None:
    version, declare, one = SEMVER, LIBRARY.overload, fixed_cost(1)
    text, pair = (types.STRING,), (types.STRING, types.BOOL)
    declare("semver", "string_to_semver", text, version, semver, cost=first_traversal)
    declare("semver", "string_bool_to_semver", pair, version, semver, cost=first_traversal)
    declare("isSemver", "is_semver_string", text, types.BOOL, is_semver, cost=first_traversal)
    declare("isSemver", "is_semver_string_bool", pair, types.BOOL, is_semver, cost=first_traversal)
    both = (version, version)
    declare(
        "isGreaterThan",
        "semver_is_greater_than",
        both,
        types.BOOL,
        lambda left, right: left.compare(right) > 0,
        member=True,
        cost=one,
    )
    declare(
        "isLessThan",
        "semver_is_less_than",
        both,
        types.BOOL,
        lambda left, right: left.compare(right) < 0,
        member=True,
        cost=one,
    )
    declare("compareTo", "semver_compare_to", both, types.INT, Semver.compare, member=True)
    for name in ("major", "minor", "patch"):
        declare(name, f"semver_{name}", (version,), types.INT, _field(name), member=True, cost=one)
    LIBRARY.type_names[SEMVER.name] = SEMVER


def _field(name: str):  # type: ignore[no-untyped-def]
    def read(version: Semver) -> int:
        return int(getattr(version, name))

    return read


_declare()
