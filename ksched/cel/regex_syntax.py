"""The compiler of patterns: RE2's syntax, as in Go's ``regexp``, to a program.

Not supported, unlike in Go: Unicode scripts (``\\p{Greek}``; general categories are), and programs
of more than ``LARGEST_PROGRAM`` instructions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ksched.cel.recursion import room_for
from ksched.cel.regex_program import (
    CharacterSet,
    Fragment,
    Instruction,
    Ranges,
    RegexError,
    assertion,
    either,
    one_of,
    quantified,
    sequence,
)

MOST_REPEATS: Final = 1000
DEEPEST: Final = 250
_FRAMES_PER_LEVEL = 8
_LAST = 0x10FFFF


@dataclass(frozen=True, slots=True)
class _Flags:
    fold: bool = False
    dot_all: bool = False
    lines: bool = False
    ungreedy: bool = False


_DIGIT: Ranges = ((48, 57),)
_WORD: Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACE: Ranges = ((9, 10), (12, 13), (32, 32))
_PERL = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_POSIX: dict[str, Ranges] = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": _DIGIT,
    "graph": ((33, 126),),
    "lower": ((97, 122),),
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "upper": ((65, 90),),
    "word": _WORD,
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}
_CATEGORIES = frozenset(
    [
        "Any",
        "C",
        "Cc",
        "Cf",
        "Co",
        "Cs",
        "L",
        "Ll",
        "Lm",
        "Lo",
        "Lt",
        "Lu",
        "M",
        "Mc",
        "Me",
        "Mn",
        "N",
        "Nd",
        "Nl",
        "No",
        "P",
        "Pc",
        "Pd",
        "Pe",
        "Pf",
        "Pi",
        "Po",
        "Ps",
        "S",
        "Sc",
        "Sk",
        "Sm",
        "So",
        "Z",
        "Zl",
        "Zp",
        "Zs",
    ]
)
_ESCAPES = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ ")


def _complement(ranges: Ranges) -> Ranges:
    found: list[tuple[int, int]] = []
    start = 0
    for low, high in sorted(ranges):
        if low > start:
            found.append((start, low - 1))
        start = max(start, high + 1)
    if start <= _LAST:
        found.append((start, _LAST))
    return tuple(found)


def program(pattern: str) -> list[Instruction]:
    """Compile a pattern; raises ``RegexError``."""
    parser = _Parser(pattern)
    instructions: list[Instruction] = []
    with room_for(DEEPEST * _FRAMES_PER_LEVEL):
        fragment = parser.alternatives(0)
        if parser.position < len(pattern):
            raise RegexError("unexpected )", pattern)
        fragment(instructions)
    instructions.append(Instruction("match"))
    return instructions


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self.position = 0
        self._flags = _Flags()
        self._empty_quotes = 0
        """``\\Q\\E`` pairs, each of which allows another repetition of a repetition."""

    def _peek(self) -> str:
        return self._pattern[self.position : self.position + 1]

    def _rest(self) -> str:
        return self._pattern[self.position :]

    def _accept(self, text: str) -> bool:
        if not self._pattern.startswith(text, self.position):
            return False
        self.position += len(text)
        return True

    def alternatives(self, depth: int) -> Fragment:
        if depth > DEEPEST:
            raise RegexError("expression nests too deeply", self._pattern)
        found = self._concatenation(depth)
        branches = [found]
        while self._accept("|"):
            branches.append(self._concatenation(depth))
        found = branches.pop()
        while branches:
            found = either(branches.pop(), found)
        return found

    def _concatenation(self, depth: int) -> Fragment:
        parts: list[Fragment] = []
        while self._peek() not in ("", "|", ")"):
            if self._accept("\\Q"):
                quoted = self._quoted()
                parts.extend(quoted)
                self._empty_quotes += not quoted
                if self._empty_quotes > DEEPEST:
                    raise RegexError("expression nests too deeply", self._pattern)
                if parts:
                    parts[-1] = self._quantified(parts[-1])
                continue
            atom = self._atom(depth)
            if atom is not None:
                parts.append(self._quantified(atom))
        return sequence(parts)

    def _quoted(self) -> list[Fragment]:
        text, _, _ = self._rest().partition("\\E")
        self.position = min(self.position + len(text) + 2, len(self._pattern))
        return [one_of(self._set(((ord(char), ord(char)),))) for char in text]

    def _quantified(self, atom: Fragment) -> Fragment:
        previous = -1
        while True:
            start = self.position
            bounds = self._bounds()
            if bounds is None:
                return atom
            greedy = not self._accept("?")
            if previous >= 0:
                where = self._pattern[previous : self.position]
                raise RegexError("invalid nested repetition operator", where)
            previous = start
            atom = quantified(atom, *bounds, greedy != self._flags.ungreedy)

    def _bounds(self) -> tuple[int, int | None] | None:
        for symbol, bounds in {"*": (0, None), "+": (1, None), "?": (0, 1)}.items():
            if self._accept(symbol):
                return bounds
        if self._peek() != "{":
            return None
        end = self._pattern.find("}", self.position)
        if end < 0:
            return None
        low, comma, high = self._pattern[self.position + 1 : end].partition(",")
        if not _is_count(low) or (high and not _is_count(high)):
            return None
        least = int(low)
        most = (int(high) if high else None) if comma else least
        if least > MOST_REPEATS or (most is not None and (most > MOST_REPEATS or least > most)):
            where = self._pattern[self.position : end + 1]
            raise RegexError("invalid repeat count", where)
        self.position = end + 1
        return least, most

    def _set(self, ranges: Ranges, negated: bool = False) -> CharacterSet:
        return CharacterSet(ranges, (), negated, self._flags.fold)

    def _atom(self, depth: int) -> Fragment | None:
        char = self._peek()
        if char == "(":
            return self._group(depth)
        if char == "[":
            return one_of(self._class())
        if char == "\\":
            return self._escape()
        if char in "*+?":
            self.position += 1
            where = char + ("?" if self._accept("?") else "")
            raise RegexError("missing argument to repetition operator", where)
        if char == "{" and self._bounds_ahead():
            start = self.position
            self._bounds()
            where = self._pattern[start : self.position]
            raise RegexError("missing argument to repetition operator", where)
        self.position += 1
        if char == ".":
            return one_of(self._set(() if self._flags.dot_all else ((10, 10),), negated=True))
        if char == "^":
            return assertion("line start" if self._flags.lines else "text start")
        if char == "$":
            return assertion("line end" if self._flags.lines else "text end")
        return one_of(self._set(((ord(char), ord(char)),)))

    def _bounds_ahead(self) -> bool:
        before = self.position
        found = self._bounds() is not None
        self.position = before
        return found

    def _group(self, depth: int) -> Fragment | None:
        start = self.position
        self.position += 1
        before = self._flags
        if self._accept("?"):
            if self._accept("P<") or self._accept("<"):
                self._group_name(start)
            elif self._group_flags(start):
                return None
        inner = self.alternatives(depth + 1)
        if not self._accept(")"):
            raise RegexError("missing closing )", self._pattern)
        self._flags = before
        return inner

    def _group_name(self, start: int) -> None:
        end = self._pattern.find(">", self.position)
        if end < 0:
            raise RegexError("invalid named capture", self._pattern[start:])
        name = self._pattern[self.position : end]
        if not name or not all(char.isascii() and (char.isalnum() or char == "_") for char in name):
            raise RegexError("invalid named capture", self._pattern[start : end + 1])
        self.position = end + 1

    def _group_flags(self, start: int) -> bool:
        """Parse ``i-s:`` or ``i)``; returns whether the group ended with its flags."""
        flags = self._flags
        value, seen = True, False
        names = {"i": "fold", "s": "dot_all", "m": "lines", "U": "ungreedy"}
        while True:
            char = self._peek()
            self.position += 1
            if char in names:
                flags = replace(flags, **{names[char]: value})
                seen = True
            elif char == "-" and value:
                value, seen = False, False
            elif char in (":", ")") and char and (value or seen):
                self._flags = flags
                return char == ")"
            else:
                if not char:
                    raise RegexError("missing closing )", self._pattern)
                where = self._pattern[start : self.position]
                raise RegexError("invalid or unsupported Perl syntax", where)

    def _escape(self) -> Fragment:
        start = self.position
        kind = self._pattern[start + 1 : start + 2]
        assertions = {"A": "text start", "z": "text end", "b": "word", "B": "no word"}
        if kind in assertions and kind:
            self.position += 2
            return assertion(assertions[kind])
        named = self._named_set()
        if named is not None:
            ranges, categories = named
            return one_of(CharacterSet(ranges, categories, False, self._flags.fold))
        code = self._escaped_character()
        return one_of(self._set(((code, code),)))

    def _named_set(self) -> tuple[Ranges, tuple[tuple[str, bool], ...]] | None:
        """Parse ``\\d``, ``\\W``, ``\\pL`` or ``\\P{Lu}``, if one is next."""
        kind = self._pattern[self.position + 1 : self.position + 2]
        if kind and kind.lower() in _PERL:
            self.position += 2
            ranges = _PERL[kind.lower()]
            return (ranges if kind.islower() else _complement(ranges)), ()
        if kind not in ("p", "P") or not kind:
            return None
        start = self.position
        self.position += 2
        if self._accept("{"):
            name, closing, _ = self._rest().partition("}")
            self.position += len(name) + 1
            if not closing:
                raise RegexError("invalid character class range", self._pattern[start:])
        else:
            name = self._peek()
            self.position += 1
        negated = (kind == "P") != name.startswith("^")
        if name.removeprefix("^") not in _CATEGORIES:
            where = self._pattern[start : self.position]
            raise RegexError("invalid character class range", where)
        return (), ((name.removeprefix("^"), negated),)

    def _escaped_character(self) -> int:
        start = self.position
        self.position += 1
        char = self._peek()
        if not char:
            raise RegexError("trailing backslash at end of expression", "")
        self.position += 1
        if char in _ESCAPES:
            return _ESCAPES[char]
        if char in _PUNCTUATION or ord(char) >= 128:
            if ord(char) < 128:
                return ord(char)
        elif char == "x":
            code = self._hexadecimal()
            if code is not None:
                return code
        elif char == "0" or (char in "1234567" and self._peek() in tuple("01234567")):
            digits = char
            while len(digits) < 3 and self._peek() in tuple("01234567"):
                digits += self._peek()
                self.position += 1
            return int(digits, 8)
        raise RegexError("invalid escape sequence", self._pattern[start : self.position])

    def _hexadecimal(self) -> int | None:
        if self._accept("{"):
            digits, closing, _ = self._rest().partition("}")
            complete = bool(closing)
            self.position += len(digits) + 1
        else:
            digits = self._rest()[:2]
            complete = len(digits) == 2
            self.position += len(digits)
        if not complete or not _is_hexadecimal(digits):
            return None
        return int(digits, 16) if int(digits, 16) <= _LAST else None

    def _class(self) -> CharacterSet:
        start = self.position
        self.position += 1
        negated = self._accept("^")
        ranges: list[tuple[int, int]] = []
        categories: list[tuple[str, bool]] = []
        first = True
        while first or self._peek() != "]":
            if not self._peek():
                raise RegexError("missing closing ]", self._pattern[start:])
            if self._accept("[:"):
                ranges.extend(self._posix())
            elif self._peek() == "\\" and (named := self._named_set()) is not None:
                ranges.extend(named[0])
                categories.extend(named[1])
            else:
                ranges.append(self._range(start))
            first = False
        self.position += 1
        return CharacterSet(tuple(ranges), tuple(categories), negated, self._flags.fold)

    def _posix(self) -> Ranges:
        start = self.position - 2
        name, closing, _ = self._rest().partition(":]")
        ranges = _POSIX.get(name.removeprefix("^"))
        if not closing or ranges is None:
            where = self._pattern[start : self.position + len(name) + 2]
            raise RegexError("invalid character class range", where)
        self.position += len(name) + 2
        return _complement(ranges) if name.startswith("^") else ranges

    def _range(self, class_start: int) -> tuple[int, int]:
        start = self.position
        low = self._class_character(class_start)
        after = self._pattern[self.position + 1 : self.position + 2]
        if self._peek() != "-" or after in ("]", ""):
            return low, low
        self.position += 1
        high = self._class_character(class_start)
        if high < low:
            where = self._pattern[start : self.position]
            raise RegexError("invalid character class range", where)
        return low, high

    def _class_character(self, class_start: int) -> int:
        if not self._peek():
            raise RegexError("missing closing ]", self._pattern[class_start:])
        if self._peek() == "\\":
            return self._escaped_character()
        self.position += 1
        return ord(self._pattern[self.position - 1])


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 9


def _is_hexadecimal(text: str) -> bool:
    return bool(text) and len(text) <= 8 and all(char in "0123456789abcdefABCDEF" for char in text)
