from __future__ import annotations

from typing import Any

import pytest

from ksched.configuration.yaml_reading import MAX_VALUES, read_yaml
from ksched.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("yes", True, id="YAML 1.1 boolean"),
        pytest.param("y", True, id="one letter"),
        pytest.param("Off", False, id="capital"),
        pytest.param("'on'", "on", id="quoted"),
        pytest.param("!!str on", "on", id="tagged as a string"),
        pytest.param("12:30:00", "12:30:00", id="no base 60"),
        pytest.param("2001-01-01", "2001-01-01", id="no dates"),
        pytest.param("010", 8, id="octal"),
        pytest.param("-0x10", -16, id="hexadecimal"),
        pytest.param("0b11", 3, id="binary"),
        pytest.param("0b_", "0b_", id="a prefix without digits is text"),
        pytest.param("1_000", 1000, id="underscores"),
        pytest.param("16.0", 16, id="JSON has one kind of number"),
        pytest.param("1e3", 1000, id="exponent without dot"),
        pytest.param(".5", 0.5, id="leading dot"),
        pytest.param("1e999", "1e999", id="no number that is not finite"),
        pytest.param("~", None, id="null"),
        pytest.param("[a, [b]]", ["a", ["b"]], id="flow"),
        pytest.param("{1: a}", {"1": "a"}, id="keys are strings"),
    ],
)
def test_scalars_are_read_as_kubernetes_reads_them(text: str, value: Any) -> None:
    read = read_yaml(f"key: {text}").data
    assert read == {"key": value}
    assert type(read["key"]) is type(value)


def test_a_merge_key_gives_way_to_own_keys() -> None:
    text = "base: &b {x: 1, y: 2}\nderived:\n  <<: *b\n  x: 3\n"
    assert read_yaml(text).data["derived"] == {"x": 3, "y": 2}


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        pytest.param(
            "a: 1\na: !!int x",
            (
                'line 2: key "a" already set in map',
                "line 2: cannot decode its value as tag:yaml.org,2002:int",
            ),
            id="with duplicate keys",
        ),
        pytest.param("a: [1\n", ("yaml: line 2: did not find expected ',' or ']'",), id="syntax"),
        pytest.param("a: &x [*x]", ("line 1: anchor contains itself",), id="endless"),
        pytest.param(
            "a: !!python/object:os.system x",
            ("line 1: cannot decode its value as tag:yaml.org,2002:python/object:os.system",),
            id="foreign tag",
        ),
        pytest.param(
            "a: !!int x",
            ("line 1: cannot decode its value as tag:yaml.org,2002:int",),
            id="wrong tag",
        ),
        pytest.param("a: 1\n---\nb: 1\n", ("yaml: line 2: but found another document",), id="two"),
        pytest.param("[a]: 1", ("line 1: a key must be a scalar",), id="odd key"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(text: str, problems: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        read_yaml(text)
    assert caught.value.problems == problems


def test_duplicate_keys_are_all_told_and_the_last_value_counts() -> None:
    data, duplicates = read_yaml("a: 1\nb: {c: 1, c: 2}\na: 3\n")
    assert data == {"a": 3, "b": {"c": 2}}
    assert duplicates == (
        'line 2: key "c" already set in map',
        'line 3: key "a" already set in map',
    )


def test_an_empty_file_is_null() -> None:
    assert read_yaml("# nothing\n").data is None


def test_aliases_of_aliases_are_not_expanded_without_end() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for number in range(1, 30):
        lines.append(f"a{number}: &a{number} [{', '.join([f'*a{number - 1}'] * 10)}]")
    with pytest.raises(ConfigError) as caught:
        read_yaml("\n".join(lines))
    [problem] = caught.value.problems
    assert problem.endswith("more than 100000 values, those of aliases counted every time")
    assert problem.startswith("line ")


@pytest.mark.parametrize(("start", "end"), [("[", "]"), ("{a: ", "}")])
def test_deep_nesting_is_refused_before_it_is_composed(start: str, end: str) -> None:
    """The composer recurses in C: 30,000 levels end the process."""
    with pytest.raises(ConfigError) as caught:
        read_yaml("a:\n  " + start * 30_000 + end * 30_000)
    assert caught.value.problems == ("line 2: nested deeper than 100 levels",)


def test_deep_nesting_by_aliases_is_refused() -> None:
    lines = ["- &a0 [x]"]
    lines += [f"- &a{n} {'[' * 90}*a{n - 1}{']' * 90}" for n in range(1, 40)]
    with pytest.raises(ConfigError, match="nested too deeply"):
        read_yaml("\n".join(lines))


def test_a_hundred_levels_are_read() -> None:
    data = read_yaml("[" * 100 + "]" * 100).data
    depth = 0
    while data is not None:
        depth, data = depth + 1, data[0] if data else None
    assert depth == 100


def test_the_first_of_merged_maps_counts() -> None:
    text = "x: &x {a: 1, b: 1}\ny: &y {b: 2, c: 2}\nz: {<<: [*x, *y], c: 3}\n"
    assert read_yaml(text).data["z"] == {"a": 1, "b": 1, "c": 3}


def test_many_values_are_read() -> None:
    assert len(read_yaml("- x\n" * (MAX_VALUES - 1)).data) == MAX_VALUES - 1
