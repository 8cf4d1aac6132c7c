"""The lexer: text to tokens."""

from __future__ import annotations

import re
from typing import NamedTuple

from ksched.cel.errors import Issues


class Token(NamedTuple):
    """``kind`` is the text itself for operators and keywords, otherwise the token's class."""

    kind: str
    text: str
    position: int


END = "<EOF>"
KEYWORDS = frozenset({"in", "true", "false", "null"})

_ESCAPE = (
    r"""\\(?:[abfnrtv"'\\?`]|[0-3][0-7][0-7]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"""
)
_STRING = rf"""
    [rR](?:\"\"\"(?:(?!\"\"\").)*\"\"\"|'''(?:(?!''').)*'''|"[^"\n\r]*"|'[^'\n\r]*')
    | \"\"\"(?:{_ESCAPE}|(?!\"\"\")[^\\])*\"\"\" | '''(?:{_ESCAPE}|(?!''')[^\\])*'''
    | "(?:{_ESCAPE}|[^\\"\n\r])*" | '(?:{_ESCAPE}|[^\\'\n\r])*'
"""
_TOKEN = re.compile(
    rf"""
    (?P<blank>[\t\x20\r\n\f]+|//[^\n]*)
    | (?P<BYTES>[bB](?:{_STRING}))
    | (?P<STRING>{_STRING})
    | (?P<NUM_FLOAT>[0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
    | (?P<NUM_UINT>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])
    | (?P<NUM_INT>0x[0-9a-fA-F]+|[0-9]+)
    | (?P<IDENTIFIER>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<ESC_IDENTIFIER>`[A-Za-z0-9_.\-/\x20]+`)
    | (?P<operator>==|!=|<=|>=|&&|\|\||[<>\[\](){{}}.,\-!?:+*/%])
    """,
    re.VERBOSE | re.DOTALL,
)
# An unterminated string, as far as it is valid.
_BROKEN_STRING = re.compile(
    rf"""[bBrR]{{0,2}}(?:"(?:{_ESCAPE}|[^\\"\n\r])*|'(?:{_ESCAPE}|[^\\'\n\r])*)""", re.VERBOSE
)


def tokens(text: str, issues: Issues) -> list[Token]:
    """Return all tokens of a text, the last one ``END``; invalid characters become issues."""
    found: list[Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            position = _skip_unknown(text, position, issues)
            continue
        kind, token = match.lastgroup or "", match.group()
        if kind == "operator" or token in KEYWORDS:
            found.append(Token(token, token, position))
        elif kind != "blank":
            found.append(Token(kind, token, position))
        position = match.end()
    found.append(Token(END, END, len(text)))
    return found


def _skip_unknown(text: str, position: int, issues: Issues) -> int:
    broken = _BROKEN_STRING.match(text, position)
    end = position + 1
    if broken is not None:
        end = min(broken.end() + 1, len(text))
        if text[broken.end() : end] == "\\":
            end = min(end + 1, len(text))
    elif text[position] in "=&|":
        end = min(position + 2, len(text))
    issues.add(position, f"Syntax error: token recognition error at: '{text[position:end]}'")
    return end


_SIMPLE = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    **{char: char for char in "\\'\"`?"},
}


def unescape(token: str, *, as_bytes: bool) -> str:
    """Return the characters of a string token; those of a bytes token as Latin-1.

    Raises ``ValueError`` for invalid escapes.
    """
    raw = token[0] in "rR"
    body = (token[1:] if raw else token).replace("\r\n", "\n").replace("\r", "\n")
    quotes = 3 if len(body) >= 6 and body[:3] in ("'''", '"""') else 1
    body = body[quotes:-quotes]
    if as_bytes:
        return _unescape(body, raw, as_bytes=True)
    return _unescape(body, raw, as_bytes=False)


def _unescape(body: str, raw: bool, *, as_bytes: bool) -> str:
    if raw or "\\" not in body:
        return body.encode().decode("latin-1") if as_bytes else body
    parts: list[str] = []
    position = 0
    while position < len(body):
        char = body[position]
        if char != "\\":
            parts.append(char.encode().decode("latin-1") if as_bytes else char)
            position += 1
            continue
        kind = body[position + 1]
        if kind in _SIMPLE:
            parts.append(_SIMPLE[kind])
            position += 2
            continue
        length = {"x": 2, "X": 2, "u": 4, "U": 8}.get(kind, 0)
        if length:
            code = int(body[position + 2 : position + 2 + length], 16)
            if as_bytes and kind in "uU":
                raise ValueError("unable to unescape string")
        else:
            length = 2
            code = int(body[position + 1 : position + 4], 8)
        if not as_bytes and (code > 0x10FFFF or 0xD800 <= code <= 0xDFFF):
            raise ValueError("invalid unicode code point")
        parts.append(chr(code))
        position += 2 + length
    return "".join(parts)
