"""YAML as the Kubernetes tools read it (sigs.k8s.io/yaml); duplicate keys are reported.

YAML 1.1 booleans (``yes``, ``on``), but no dates and no base-60 numbers: ``12:30:00`` is a string.
What cannot be written in JSON cannot be configuration either.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final, NamedTuple

import yaml

from ksched.errors import ConfigError

_TRUE: Final = frozenset(["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"])
_FALSE: Final = frozenset(
    ["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"]
)
_INT: Final = re.compile(r"[-+]?(0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_MERGE: Final = "tag:yaml.org,2002:merge"
_PREFIX: Final = "tag:yaml.org,2002:"
_PLAIN: Final = "plain"

MAX_VALUES: Final = 100_000
"""Of a document. A few lines of aliases to aliases stand for more than fits into memory."""

MAX_DEPTH: Final = 100


class _Loader(yaml.CSafeLoader):
    """Does not resolve plain scalars: PyYAML's numbers and dates differ from Kubernetes'."""

    yaml_implicit_resolvers: dict[str | None, list[tuple[str, re.Pattern[str]]]] = {  # noqa: RUF012
        "<": [(_MERGE, re.compile(r"<<$"))],
        None: [(_PLAIN, re.compile(r""))],
    }


class Document(NamedTuple):
    """JSON-like data; of a duplicate key it has the last value."""

    data: Any
    duplicates: tuple[str, ...] = ()
    """A warning for each duplicate key, with its line."""


def read_yaml(text: str) -> Document:
    """Parse one YAML document; raises ``ConfigError`` naming the invalid lines."""
    try:
        _check_depth(text)
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}: " if mark else ""
        raise ConfigError([f"yaml: {line}{error.problem or error.context}"]) from None
    except yaml.YAMLError as error:
        raise ConfigError([f"yaml: {error}"]) from None
    if node is None:
        return Document(None)
    reader = _Reader()
    try:
        data = reader.construct(node)
    except RecursionError:
        # By aliases, which are not nested where they are written.
        raise ConfigError(["yaml: nested too deeply"]) from None
    if reader.problems:
        raise ConfigError([*reader.duplicates, *reader.problems])
    return Document(data, tuple(reader.duplicates))


def _check_depth(text: str) -> None:
    """Refuse what the composer, which recurses in C, would not survive."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                assert event.start_mark is not None
                line = event.start_mark.line + 1
                raise ConfigError([f"line {line}: nested deeper than {MAX_DEPTH} levels"])
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


class _Reader:
    """Converts nodes to data and collects problems."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.duplicates: list[str] = []
        self._open: set[int] = set()
        self._values = 0

    def construct(self, node: yaml.Node) -> Any:
        self._values += 1
        if self._values > MAX_VALUES:
            text = f"more than {MAX_VALUES} values, those of aliases counted every time"
            raise ConfigError([_at(node, text)])
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if id(node) in self._open:
            self._refuse(node, "anchor contains itself")
            return None
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node)
            return [self.construct(item) for item in node.value]
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: yaml.MappingNode) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                merged = {**self._merged(value_node), **merged}
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                self._refuse(key_node, "a key must be a scalar")
                continue
            key = key_node.value
            if key in own:
                self.duplicates.append(_at(key_node, f'key "{key}" already set in map'))
            own[key] = self.construct(value_node)
        return {**merged, **own}

    def _merged(self, node: yaml.Node) -> dict[str, Any]:
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        merged: dict[str, Any] = {}
        for source in sources:
            if isinstance(source, yaml.MappingNode):
                for key, value in self.construct(source).items():
                    merged.setdefault(key, value)
            else:
                self._refuse(source, "map merge requires map or sequence of maps as the value")
        return merged

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        text, tag = node.value, node.tag.removeprefix(_PREFIX)
        if tag == _PLAIN:
            return plain_value(text)
        if tag == "str":
            return text
        value = plain_value(text)
        # An explicit tag may only confirm what the text is.
        kinds = {"int": int, "float": (int, float), "bool": bool, "null": type(None)}
        if tag not in kinds or not isinstance(value, kinds[tag]):  # type: ignore[arg-type]
            self._refuse(node, f"cannot decode its value as {node.tag}")
        return value

    def _refuse(self, node: yaml.Node, problem: str) -> None:
        self.problems.append(_at(node, problem))


def _at(node: yaml.Node, problem: str) -> str:
    return f"line {node.start_mark.line + 1}: {problem}"


def plain_value(text: str) -> Any:
    """Resolve a plain scalar: null, a boolean, a number, or its text."""
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _INT.fullmatch(text):
        return _integer(text.replace("_", ""), text)
    if _FLOAT.fullmatch(text) and math.isfinite(number := float(text)):
        # JSON has one kind of number: 16.0 in the file is 16 in the API.
        return int(number) if number.is_integer() else number
    return text


def _integer(digits: str, text: str) -> int | str:
    sign, digits = (-1, digits[1:]) if digits[0] == "-" else (1, digits.lstrip("+"))
    is_octal = len(digits) > 1 and digits[0] == "0" and digits[1] not in "box"
    try:
        return sign * int(digits, 8 if is_octal else 0)
    except ValueError:
        return text  # a prefix without digits, or more digits than Python converts
