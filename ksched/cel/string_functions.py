"""Functions of strings: cel-go's extension (version 2), Kubernetes' ``find``."""

from __future__ import annotations

from math import ceil

from ksched.cel import in_pieces
from ksched.cel import static_types as types
from ksched.cel.arithmetic import LONGEST_LIST, bounded
from ksched.cel.declarations import Library
from ksched.cel.errors import CostExceeded, EvaluationError
from ksched.cel.regex_program import RegexError
from ksched.cel.regular_expressions import Regex, compile_regex
from ksched.cel.standard_functions import first_traversal, regex_cost
from ksched.cel.values import Value, describe, size_of

LIBRARY = Library()
_SPACES = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
_LOWER = {code: code + 32 for code in range(65, 91)}
_UPPER = {code: code - 32 for code in range(97, 123)}
_QUOTED = str.maketrans(
    {
        "\a": "\\a",
        "\b": "\\b",
        "\f": "\\f",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "\v": "\\v",
        "\\": "\\\\",
        '"': '\\"',
    }
)


def _out_of_range(index: int) -> EvaluationError:
    return EvaluationError(f"index out of range: {index}")


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise _out_of_range(index)
    return text[index : index + 1]


def _index_of(text: str, part: str, offset: int = 0) -> int:
    if not part:
        return offset
    if offset < 0:
        raise _out_of_range(offset)
    return text.find(part, offset) if offset < len(text) else -1


def _last_index_of(text: str, part: str) -> int:
    if not part:
        return len(text)
    if len(text.encode()) < len(part.encode()):
        return -1
    return _last_index_of_offset(text, part, len(text) - 1)


def _last_index_of_offset(text: str, part: str, offset: int) -> int:
    if not part:
        return offset
    if offset < 0:
        raise _out_of_range(offset)
    if offset >= len(text):
        return -1
    # Not ``rfind``, which takes quadratic time.
    head = text[: offset + len(part)]
    found = head[::-1].find(part[::-1])
    return -1 if found < 0 else len(head) - len(part) - found


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    found = text.count(old) if old else len(text) + 1
    times = found if count < 0 else min(found, count)
    bounded(len(text) + times * (len(new) - len(old)))
    return text.replace(old, new, times) if times else text


def _split(text: str, separator: str, count: int = -1) -> list[str]:
    if count == 0:
        return []
    if not separator:
        if not text:
            return []
        if count < 0 or count > len(text):
            return in_pieces.characters(text)
        return [*in_pieces.characters(text[: count - 1]), text[count - 1 :]]
    parts = in_pieces.split(text, separator, count - 1 if count > 0 else -1)
    if len(parts) > LONGEST_LIST:
        raise CostExceeded
    return parts


def _substring(text: str, start: int, end: int | None = None) -> str:
    if end is None:
        if not 0 <= start <= len(text):
            raise _out_of_range(start)
        return text[start:]
    if start > end:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    if not 0 <= start <= len(text):
        raise _out_of_range(start)
    if not 0 <= end <= len(text):
        raise _out_of_range(end)
    return text[start:end]


def _join(parts: list[Value], separator: str = "") -> str:
    for part in parts:
        if type(part) is not str:
            raise EvaluationError(f"join: invalid input: {describe(part)}")
    bounded(in_pieces.total_length(parts) + len(parts) * len(separator))
    return in_pieces.join(parts, separator)


def _trim(text: str) -> str:
    return in_pieces.strip(text, _SPACES)


def _quote(text: str) -> str:
    return f'"{in_pieces.translate(text, _QUOTED)}"'


def _regex(pattern: str) -> Regex:
    try:
        return compile_regex(pattern)
    except RegexError as error:
        raise EvaluationError(f"Illegal regex: {error}") from None


def _find(text: str, pattern: str) -> str:
    return _regex(pattern).find(text)


def _find_all(text: str, pattern: str, most: int = -1) -> list[str]:
    return _regex(pattern).find_all(text, most)


def twice(args: list[Value], result: Value) -> int:
    """The cost of reading the first operand twice."""
    return ceil(size_of(args[0]) * 0.2)


def _rounded_down(args: list[Value], result: Value) -> int:
    return int(len(args[0].encode()) * 0.1)


def _result_traversal(args: list[Value], result: Value) -> int:
    return ceil(size_of(result) * 0.2)


def _declare() -> None:
    text, number, texts = types.STRING, types.INT, types.list_of(types.STRING)
    once, floor = first_traversal, _rounded_down
    rows = [
        ("charAt", "string_char_at_int", (text, number), text, _char_at, None),
        ("indexOf", "string_index_of_string", (text, text), number, _index_of, floor),
        ("indexOf", "string_index_of_string_int", (text, text, number), number, _index_of, floor),
        ("lastIndexOf", "string_last_index_of_string", (text, text), number, _last_index_of, floor),
        (
            *("lastIndexOf", "string_last_index_of_string_int", (text, text, number)),
            *(number, _last_index_of_offset, floor),
        ),
        (
            *("lowerAscii", "string_lower_ascii", (text,), text),
            *(lambda operand: in_pieces.translate(operand, _LOWER), once),
        ),
        (
            *("upperAscii", "string_upper_ascii", (text,), text),
            *(lambda operand: in_pieces.translate(operand, _UPPER), once),
        ),
        ("replace", "string_replace_string_string", (text, text, text), text, _replace, twice),
        (
            *("replace", "string_replace_string_string_int", (text, text, text, number)),
            *(text, _replace, twice),
        ),
        ("split", "string_split_string", (text, text), texts, _split, twice),
        ("split", "string_split_string_int", (text, text, number), texts, _split, twice),
        ("substring", "string_substring_int", (text, number), text, _substring, once),
        ("substring", "string_substring_int_int", (text, number, number), text, _substring, once),
        ("trim", "string_trim", (text,), text, _trim, once),
        ("join", "list_join", (texts,), text, _join, _result_traversal),
        ("join", "list_join_string", (texts, text), text, _join, _result_traversal),
        ("find", "string_find_string", (text, text), text, _find, regex_cost),
        ("findAll", "string_find_all_string", (text, text), texts, _find_all, regex_cost),
        (
            *("findAll", "string_find_all_string_int", (text, text, number)),
            *(texts, _find_all, regex_cost),
        ),
    ]
    for name, overload, args, result, implementation, cost in rows:
        LIBRARY.overload(name, overload, args, result, implementation, member=True, cost=cost)  # type: ignore[arg-type]
    LIBRARY.overload("strings.quote", "strings_quote", (text,), text, _quote, cost=once)


_declare()
