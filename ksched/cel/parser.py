"""The parser: tokens to a syntax tree, with macros expanded.

Recursive descent for nesting, a loop for chains of operators. Depth is bounded as in cel-go.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from ksched.cel.errors import Issues
from ksched.cel.lexer import END, Token, tokens, unescape
from ksched.cel.recursion import room_for
from ksched.cel.syntax_tree import (
    Call,
    Entry,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    Select,
    StructLiteral,
)
from ksched.cel.values import MAX_INT, MAX_UINT, Uint

DEEPEST = 250
"""Limit of nesting, and of operators in one chain, as in cel-go."""
LONGEST = 100_000
"""Limit of the characters of an expression, as in cel-go."""

_FRAMES_PER_LEVEL = 16
_RESERVED = frozenset(
    [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ]
)
_STARTS = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, "
    "BYTES, IDENTIFIER}"
)
_RELATIONS = frozenset({"<", "<=", ">=", ">", "==", "!=", "in"})
_SUMS = frozenset("+-")
_PRODUCTS = frozenset("*/%")
_CLOSING = frozenset(")]:")
_MAY_FOLLOW = _RELATIONS | {END, *"+-*/%?:)],}", "&&", "||"}
_FUNCTIONS = {"in": "@in"}

Macro = Callable[[int, Node | None, list[Node]], Node | None]
"""Expands a call (position, target, arguments); ``None`` if it is not a macro after all."""
MacroKey = tuple[str, int, bool]
"""Name, number of arguments, whether there is a target."""


class MacroError(Exception):
    """The arguments of a macro are invalid."""

    def __init__(self, position: int, message: str) -> None:
        super().__init__(message)
        self.position = position
        self.message = message


class _SyntaxProblem(Exception):
    """Parsing stops; the issue is recorded."""


def parse(text: str, macros: Mapping[MacroKey, Macro], issues: Issues) -> Node | None:
    """Return the tree of a text, or ``None`` if there are issues."""
    if len(text) > LONGEST:
        size = f"size: {len(text)}, limit {LONGEST}"
        issues.add(-1, f"expression code point size exceeds limit: {size}")
        return None
    with room_for(DEEPEST * _FRAMES_PER_LEVEL):
        parser = _Parser(tokens(text, issues), macros, issues)
        try:
            root = parser.whole()
        except _SyntaxProblem:
            return None
    return None if issues else root


class _Parser:
    def __init__(
        self, source: list[Token], macros: Mapping[MacroKey, Macro], issues: Issues
    ) -> None:
        self._tokens = source
        self._next = 0
        self._macros = macros
        self._issues = issues
        self._depths = {"expression": 0, "relation": 0, "calculation": 0}

    def whole(self) -> Node:
        root = self._expression()
        self._expect(END, END)
        return root

    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _take(self) -> Token:
        token = self._tokens[self._next]
        self._next += 1
        return token

    def _accept(self, kind: str) -> Token | None:
        return self._take() if self._tokens[self._next].kind == kind else None

    def _expect(self, kind: str, wanted: str | None = None) -> Token:
        token = self._peek()
        if token.kind != kind:
            self._fail(token, f"Syntax error: {self._surprise(token, kind, wanted)}")
        return self._take()

    def _surprise(self, token: Token, kind: str, wanted: str | None) -> str:
        """Return ANTLR's message, which depends on the adjacent tokens."""
        wanted = wanted or f"'{kind}'"
        if token.kind != END and self._tokens[self._next + 1].kind == kind:
            return f"extraneous input '{token.text}' expecting {wanted}"
        if kind in _CLOSING and token.kind in _MAY_FOLLOW:
            return f"missing {wanted} at '{token.text}'"
        return f"mismatched input '{token.text}' expecting {wanted}"

    def _fail(self, token: Token, message: str) -> None:
        self._issues.add(token.position, message)
        raise _SyntaxProblem

    def _enter(self, rule: str) -> None:
        """Count a level of a grammar rule; right operands are one level deeper."""
        self._depths[rule] += 1
        if self._depths[rule] > DEEPEST:
            self._issues.add(-1, f"expression recursion limit exceeded: {DEEPEST}")
            raise _SyntaxProblem

    def _expression(self) -> Node:
        self._enter("expression")
        condition = self._logic("||", "_||_")
        if (question := self._accept("?")) is not None:
            when_true = self._logic("||", "_||_")
            self._expect(":")
            when_false = self._expression()
            condition = Call(question.position, "_?_:_", None, [condition, when_true, when_false])
        self._depths["expression"] -= 1
        return condition

    def _logic(self, operator: str, function: str) -> Node:
        operand = self._relation() if operator == "&&" else self._logic("&&", "_&&_")
        if self._peek().kind != operator:
            return operand
        terms = [operand]
        positions: list[int] = []
        while (token := self._accept(operator)) is not None:
            positions.append(token.position)
            terms.append(self._relation() if operator == "&&" else self._logic("&&", "_&&_"))
        return Call(positions[len(positions) // 2], function, None, terms)

    def _relation(self) -> Node:
        self._enter("relation")
        left = self._chain(self._sum, _RELATIONS, "relation")
        self._depths["relation"] -= 1
        return left

    def _sum(self) -> Node:
        self._enter("calculation")
        left = self._chain(self._product, _SUMS, "calculation")
        self._depths["calculation"] -= 1
        return left

    def _product(self) -> Node:
        return self._chain(self._unary, _PRODUCTS, "calculation")

    def _chain(self, operand: Callable[[], Node], operators: frozenset[str], rule: str) -> Node:
        """Parse operands of left-associative operators."""
        left = operand()
        length = 0
        while self._peek().kind in operators:
            operator = self._take()
            length = self._longer(length)
            self._enter(rule)
            right = operand()
            self._depths[rule] -= 1
            function = _FUNCTIONS.get(operator.kind, f"_{operator.kind}_")
            left = Call(operator.position, function, None, [left, right])
        return left

    def _longer(self, length: int) -> int:
        if length == DEEPEST:
            self._issues.add(-1, "max recursion depth exceeded")
            raise _SyntaxProblem
        return length + 1

    def _unary(self) -> Node:
        first = self._peek()
        if first.kind == "!":
            count = self._repeated("!")
            operand = self._member()
            return operand if count % 2 == 0 else Call(first.position, "!_", None, [operand])
        if first.kind == "-":
            if self._tokens[self._next + 1].kind in ("NUM_INT", "NUM_FLOAT"):
                return self._member()
            count = self._repeated("-")
            operand = self._member()
            return operand if count % 2 == 0 else Call(first.position, "-_", None, [operand])
        return self._member()

    def _repeated(self, operator: str) -> int:
        count = 0
        while self._accept(operator) is not None:
            count += 1
        return count

    def _member(self) -> Node:
        node = self._primary()
        length = 0
        while True:
            token = self._peek()
            if token.kind == ".":
                length = self._longer(length)
                node = self._selection(node)
            elif token.kind == "[":
                length = self._longer(length)
                self._take()
                optional = self._accept("?") is not None
                index = self._expression()
                self._expect("]")
                function = "_[?_]" if optional else "_[_]"
                node = Call(token.position, function, None, [node, index])
            else:
                return node

    def _selection(self, operand: Node) -> Node:
        dot = self._take()
        if self._accept("?") is not None:
            name = self._field()
            return Call(dot.position, "_?._", None, [operand, Literal(name.position, name.text)])
        name = self._field()
        if self._peek().kind != "(" or name.kind != "IDENTIFIER":
            return Select(dot.position, operand, name.text)
        opening = self._take()
        return self._call(opening.position, name.text, operand, self._arguments(")"))

    def _field(self) -> Token:
        token = self._peek()
        if token.kind == "ESC_IDENTIFIER":
            self._issues.add(token.position, "unsupported syntax: '`'")
            return self._take()
        if token.kind != "IDENTIFIER":
            message = f"Syntax error: no viable alternative at input '.{token.text}'"
            self._fail(token, message)
        return self._take()

    def _arguments(self, closing: str) -> list[Node]:
        arguments: list[Node] = []
        if self._accept(closing) is not None:
            return arguments
        while True:
            arguments.append(self._expression())
            if self._accept(closing) is not None:
                return arguments
            if self._peek().kind != ",":
                self._expect(closing)
            self._take()

    def _call(self, position: int, name: str, target: Node | None, args: list[Node]) -> Node:
        macro = self._macros.get((name, len(args), target is not None))
        if macro is not None:
            try:
                expanded = macro(position, target, args)
            except MacroError as error:
                self._issues.add(error.position, error.message)
                return Literal(position, False)
            if expanded is not None:
                return expanded
        return Call(position, name, target, args)

    def _primary(self) -> Node:
        token = self._peek()
        if token.kind == "(":
            self._take()
            inner = self._expression()
            self._expect(")")
            return inner
        if token.kind == "[":
            return self._list()
        if token.kind == "{":
            return self._map()
        if token.kind in (".", "IDENTIFIER"):
            return self._name()
        return self._literal()

    def _name(self) -> Node:
        dot = "." if self._accept(".") is not None else ""
        token = self._expect("IDENTIFIER", "IDENTIFIER")
        if (message := self._message(dot, token)) is not None:
            return message
        if token.text in _RESERVED:
            self._issues.add(token.position, f"reserved identifier: {token.text}")
        if (opening := self._accept("(")) is not None:
            return self._call(opening.position, dot + token.text, None, self._arguments(")"))
        return Ident(token.position, dot + token.text)

    def _message(self, dot: str, first: Token) -> Node | None:
        """Parse ``a.b.C{field: value}``, if the next tokens are one."""
        ahead = self._next
        names = [first.text]
        while self._tokens[ahead].kind == "." and self._tokens[ahead + 1].kind == "IDENTIFIER":
            names.append(self._tokens[ahead + 1].text)
            ahead += 2
        if self._tokens[ahead].kind != "{":
            return None
        self._next = ahead
        opening = self._take()
        fields: list[tuple[str, Node]] = []
        while self._accept("}") is None:
            self._accept("?")
            name = self._field()
            self._expect(":")
            fields.append((name.text, self._expression()))
            if self._peek().kind != "}":
                self._expect(",")
        return StructLiteral(opening.position, dot + ".".join(names), fields)

    def _list(self) -> Node:
        opening = self._take()
        elements: list[Node] = []
        optional: set[int] = set()
        while self._accept("]") is None:
            if self._accept("?") is not None:
                optional.add(len(elements))
            elements.append(self._expression())
            if self._peek().kind != "]":
                self._expect(",", "{']', ','}")
        return ListLiteral(opening.position, elements, frozenset(optional))

    def _map(self) -> Node:
        opening = self._take()
        entries: list[Entry] = []
        while self._accept("}") is None:
            optional = self._accept("?") is not None
            key = self._expression()
            self._expect(":")
            entries.append(Entry(key, self._expression(), optional))
            if self._peek().kind != "}":
                self._expect(",", "{'}', ','}")
        return MapLiteral(opening.position, entries)

    def _no_start(self, token: Token) -> str:
        """Return ANTLR's message about a token with which no expression starts."""
        wanted = _STARTS
        if self._tokens[self._next - 1].kind == "(" and self._is_call(self._next - 1):
            wanted = _STARTS.replace("'(', ", "'(', ')', ")
        follows = self._tokens[self._next + 1].kind if token.kind != END else END
        problem = "extraneous" if follows in _FIRST else "mismatched"
        return f"{problem} input '{token.text}' expecting {wanted}"

    def _is_call(self, opening: int) -> bool:
        return opening > 0 and self._tokens[opening - 1].kind == "IDENTIFIER"

    def _literal(self) -> Node:
        token = self._peek()
        sign = "-" if token.kind == "-" else ""
        if sign:
            self._take()
        number = self._peek()
        if number.kind not in _LITERALS or (sign and number.kind not in ("NUM_INT", "NUM_FLOAT")):
            self._fail(number, f"Syntax error: {self._no_start(number)}")
        self._take()
        try:
            value = _LITERALS[number.kind](sign + number.text)
        except ValueError as error:
            self._issues.add(token.position, str(error))
            value = None
        return Literal(token.position, value)


def _integer(text: str, name: str) -> int:
    digits = text.removeprefix("-").rstrip("uU")
    if len(digits) > 400:
        raise ValueError(f"invalid {name} literal")
    magnitude = int(digits[2:], 16) if digits.startswith("0x") else int(digits)
    return -magnitude if text[0] == "-" else magnitude


def _int(text: str) -> int:
    value = _integer(text, "int")
    if not -MAX_INT - 1 <= value <= MAX_INT:
        raise ValueError("invalid int literal")
    return value


def _uint(text: str) -> Uint:
    value = _integer(text, "uint")
    if value > MAX_UINT:
        raise ValueError("invalid uint literal")
    return Uint(value)


def _double(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError("invalid double literal")
    return value


_FIRST = frozenset(
    {*"[{(.-!", "true", "false", "null", "NUM_FLOAT", "NUM_INT", "NUM_UINT", "STRING", "BYTES"}
    | {"IDENTIFIER"}
)
_LITERALS: Mapping[str, Callable[[str], object]] = {
    "NUM_INT": _int,
    "NUM_UINT": _uint,
    "NUM_FLOAT": _double,
    "STRING": lambda text: unescape(text, as_bytes=False),
    "BYTES": lambda text: unescape(text[1:], as_bytes=True).encode("latin-1"),
    "true": lambda text: True,
    "false": lambda text: False,
    "null": lambda text: None,
}
