"""Expressions that would take all time, memory or stack are refused or stopped.

Covers ksched.cel.recursion and ksched.cel.cost_bounds.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise

import pytest

from ksched.cel import CompileError, EvaluationError
from ksched.cel.cost_bounds import cost_bound
from ksched.cel.recursion import room_for
from ksched.clock import cpu_seconds
from ksched.devices.device_selectors import COST_LIMIT, compile_device_selector, device_environment
from lab.cel_expressions import DEVICES
from lab.cel_twin import view

DEVICE = view(DEVICES[0])
STOPPED = "operation cancelled: actual cost limit exceeded"


def nested(opening: str, inner: str, closing: str, depth: int) -> str:
    return opening * depth + inner + closing * depth


def folds(macro: str, inner: str, depth: int) -> str:
    return nested(f"[1,2,3,4,5,6,7,8].{macro}(x, ", inner, ")", depth)


def bindings(first: str, step: str, inner: str, count: int) -> str:
    """``step`` makes each value from the one before, ``@``."""
    names = ["first", *(f"v{index}" for index in range(count))]
    opening = "".join(
        f"cel.bind({after}, {step.replace('@', before)}, " for before, after in pairwise(names)
    )
    return f"cel.bind(first, {first}, {opening}{inner.replace('@', names[-1])}{')' * (count + 1)}"


def long_text(character: str, steps: int) -> str:
    """An expression for a text of a thousand times ten to the power of ``steps`` characters."""
    return f"'{character * 1000}'" + f".replace('{character}', '{character * 10}')" * steps


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param(nested("(", "true", ")", 249), id="parentheses"),
        pytest.param(nested("!(", "true", ")", 248), id="negations"),
        pytest.param(nested("true && (false || (", "true", "))", 120), id="logic"),
        pytest.param(nested("[1].all(x, ", "true", ")", 248), id="folds"),
        pytest.param(nested("dyn(1 == ", "1", ")", 124) + " == true", id="relations"),
        pytest.param(nested("(1 + 1 * ", "1", ")", 83) + " == 1", id="arithmetic"),
        pytest.param("device.attributes.a" + ".?b" * 200 + ".hasValue()", id="selections"),
        pytest.param("+".join(["1"] * 249) + " == 249", id="sum"),
        pytest.param(" || ".join(["false"] * 1000) + " || true", id="alternatives"),
        pytest.param(nested("[", "", "]", 200) + " == " + nested("[", "", "]", 200), id="lists"),
        pytest.param("[" + "1," * 3000 + "].all(x, x == 1)", id="long list"),
    ],
)
def test_what_is_deep_or_long_still_works(expression: str) -> None:
    limit = sys.getrecursionlimit()
    assert compile_device_selector(expression).matches(DEVICE) in (True, False)
    assert sys.getrecursionlimit() == limit


@pytest.mark.parametrize(
    "expression",
    [
        nested("(", "true", ")", 5000),
        nested("[", "", "]", 5000) + " == []",
        "+".join(["1"] * 5000) + " == 1",
        "device" + ".a" * 4000,
        "false ? true : " * 600 + "true",
    ],
)
def test_what_is_too_deep_is_refused(expression: str) -> None:
    with pytest.raises(
        CompileError, match=r"recursion limit exceeded: 250|max recursion depth exceeded"
    ):
        compile_device_selector(expression)


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param(folds("all", "true", 40), id="all in all"),
        pytest.param(folds("exists", "false", 40), id="exists in exists"),
        pytest.param(folds("map", "1", 30) + " == []", id="map in map"),
        pytest.param("optional.of(1)" + ".optMap(x, x)" * 60 + ".hasValue()", id="optMap chain"),
        pytest.param(bindings("[1]", "@ + @", "@.size() > 0", 60), id="doubled list"),
        pytest.param(bindings("'aaaa'", "@ + @", "@.size() > 0", 60), id="doubled string"),
        pytest.param("'aaaaaaaaaa'" + ".replace('a', 'aaaaaaaaaa')" * 50 + " == ''", id="replace"),
        pytest.param("lists.range(999999999999).size() > 1", id="range"),
        pytest.param("lists.range(100000).map(x, lists.range(100000)).size() > 1", id="ranges"),
        pytest.param("lists.range(100000).sort().size() > 1", id="sort"),
        pytest.param("lists.range(100000).distinct().size() > 1", id="distinct"),
        pytest.param("lists.range(100000).all(x, x in lists.range(1000))", id="search"),
        pytest.param(
            "lists.range(10000).exists(x, lists.range(10000).exists(y, x / 0 == y))", id="errors"
        ),
        pytest.param(f"{long_text('a', 2)}.findAll('a*b|a').size() > 1", id="all matches"),
    ],
)
def test_what_is_too_dear_is_stopped(expression: str) -> None:
    selector = compile_device_selector(expression)
    with pytest.raises(EvaluationError) as raised:
        selector.matches(DEVICE)
    assert str(raised.value) == STOPPED


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        pytest.param(f"double({long_text('1', 2)} + 'x')", "type conversion error", id="double"),
        pytest.param(f"double({long_text('1', 2)} + '.1e5.5')", "type conversion", id="exponent"),
        pytest.param(f"quantity({long_text('1', 2)} + 'e1.5')", "must match", id="quantity"),
        pytest.param(f"quantity('1e' + {long_text('1', 2)})", "suffix", id="large exponent"),
        pytest.param(
            f"cel.bind(s, {long_text('a', 2)}, s.lastIndexOf('ab' + s.substring(0, 50000))) == -1",
            "",
            id="last index",
        ),
    ],
)
def test_a_function_on_a_long_text_takes_linear_time(expression: str, answer: str) -> None:
    """Other threads do not run meanwhile, the event loop's neither."""
    selector = compile_device_selector(
        expression if not answer else f"{expression} == {expression.split('(')[0]}('1')"
    )
    began = cpu_seconds()
    if answer:
        with pytest.raises(EvaluationError, match=answer):
            selector.matches(DEVICE)
    else:
        assert selector.matches(DEVICE)
    assert cpu_seconds() - began < 0.1


@pytest.mark.parametrize(
    ("text", "part", "index"),
    [("abcabc", "abc", 3), ("abcab", "abc", 0), ("ab", "abc", -1), ("aaa", "aa", 1), ("ab", "", 2)],
)
def test_the_last_index_is_found(text: str, part: str, index: int) -> None:
    assert compile_device_selector(f"'{text}'.lastIndexOf('{part}') == {index}").matches(DEVICE)
    last = text.rfind(part, 0, 1 + len(part)) if part else 1
    assert compile_device_selector(f"'{text}'.lastIndexOf('{part}', 1) == {last}").matches(DEVICE)


def test_values_that_hold_each_other_many_times_are_compared_once() -> None:
    """2**60 comparisons otherwise."""
    assert compile_device_selector(bindings("[1]", "[@, @]", "@ == @", 60)).matches(DEVICE)
    two = bindings("[1]", "[@, @]", "@", 60), bindings("[2]", "[@, @]", "@", 60)
    assert compile_device_selector(f"{two[0]} == {two[0]}").matches(DEVICE)
    assert not compile_device_selector(f"{two[0]} == {two[1]}").matches(DEVICE)
    assert compile_device_selector(bindings("{1: 1}", "{1: @, 2: @}", "@ == @", 60)).matches(DEVICE)
    of = bindings("optional.of(1)", "optional.of([@, @])", "@ == @", 60)
    assert compile_device_selector(of).matches(DEVICE)


@pytest.mark.parametrize(
    "inner", ["dyn([1])[?0] == [?dyn(@)][0]", "@.flatten(70) == []", "{1: 1}[dyn(@)] == 1"]
)
def test_values_that_hold_each_other_many_times_are_not_written_out(inner: str) -> None:
    with pytest.raises(EvaluationError) as raised:
        compile_device_selector(bindings("[1]", "[@, @]", inner, 60)).matches(DEVICE)
    assert str(raised.value) == STOPPED


def test_a_pattern_on_a_known_text_is_stopped_when_it_is_evaluated() -> None:
    selector = compile_device_selector(f"'{'a' * 3000}'.matches('{'a*' * 3000}b')")
    with pytest.raises(EvaluationError, match=STOPPED):
        selector.matches(DEVICE)


def test_the_limit_of_frames_stays_while_another_thread_needs_it() -> None:
    before = sys.getrecursionlimit()
    with ExitStack() as deep, ExitStack() as deeper:
        deep.enter_context(room_for(2000))
        deeper.enter_context(room_for(9000))
        deep.close()
        assert sys.getrecursionlimit() >= 9000
    assert sys.getrecursionlimit() == before


def test_threads_evaluate_deep_expressions_at_a_time() -> None:
    selector = compile_device_selector(nested("[1].all(x, ", "true", ")", 248))
    shallow = compile_device_selector(nested("[1].all(x, ", "true", ")", 60))
    with ThreadPoolExecutor(4) as pool:
        answers = pool.map(lambda one: one.matches(DEVICE), [selector, shallow] * 50)
        assert all(answers)


def test_types_do_not_grow_without_bound() -> None:
    with pytest.raises(CompileError, match="a type has more than"):
        compile_device_selector(bindings("1", "{@: @}", "true", 100))


def test_nothing_absorbs_the_limit() -> None:
    selector = compile_device_selector(f"true in [{folds('all', 'true', 40)} || true]")
    with pytest.raises(EvaluationError, match=STOPPED):
        selector.matches(DEVICE)


@pytest.mark.parametrize(
    ("expression", "bounded"),
    [
        ('device.driver == "x"', True),
        ('device.attributes["a"].b.lowerAscii().matches("^.*a100.*$")', True),
        ('device.attributes["a"].b in ["x", "y"]', True),
        ("device.attributes.all(d, d != 'x')", True),
        ("device.attributes.all(d, device.attributes.all(e, d != e))", False),
        ("device.attributes.map(d, d).size() == 2", True),
        ("device.attributes['a'].transformMap(k, v, v)['a'] == 2", True),
        ("optional.of(1)" + ".optMap(x, x)" * 5 + ".hasValue()", True),
        ("optional.of(1)" + ".optMap(x, x)" * 20 + ".hasValue()", False),
        ('(device.driver + "x").size() > 1', False),
        ("device.driver.matches(device.driver)", False),
    ],
)
def test_costs_are_counted_only_where_no_bound_is_known(expression: str, bounded: bool) -> None:
    bound = cost_bound(device_environment(True).check(expression).root)
    assert (bound is not None and bound <= COST_LIMIT) == bounded
