"""Label selectors: meaning, equality, refusal."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ksched.api.label_selectors import (
    EVERYTHING,
    NOTHING,
    InvalidSelector,
    compile_selector,
    from_match_labels,
)
from ksched.api.label_syntax import (
    are_label_values,
    label_value_problems,
    qualified_name_problems,
)
from ksched.api.objects import LabelSelector, LabelSelectorRequirement


def expression(key: str, operator: str, *values: str) -> LabelSelectorRequirement:
    return LabelSelectorRequirement(key=key, operator=operator, values=list(values))


def selector(*expressions: LabelSelectorRequirement, **labels: str) -> LabelSelector:
    return LabelSelector(match_labels=labels, match_expressions=list(expressions))


@pytest.mark.parametrize(
    ("wanted", "labels", "matches"),
    [
        pytest.param(None, {}, False, id="no selector selects nothing"),
        pytest.param(selector(), {}, True, id="an empty one selects everything"),
        pytest.param(selector(), {"a": "1"}, True, id="also what has labels"),
        pytest.param(selector(a="1"), {"a": "1", "b": "2"}, True, id="label equal"),
        pytest.param(selector(a="1"), {"a": "2"}, False, id="label differs"),
        pytest.param(selector(a="1"), {}, False, id="label absent"),
        pytest.param(selector(a=""), {"a": ""}, True, id="empty value"),
        pytest.param(selector(a=""), {}, False, id="absent is not empty"),
        pytest.param(selector(a="1", b="2"), {"a": "1"}, False, id="all must hold"),
        pytest.param(selector(expression("a", "In", "1", "2")), {"a": "2"}, True, id="in"),
        pytest.param(selector(expression("a", "In", "1", "2")), {"a": "3"}, False, id="not in"),
        pytest.param(selector(expression("a", "NotIn", "1")), {"a": "2"}, True, id="notin"),
        pytest.param(selector(expression("a", "NotIn", "1")), {"a": "1"}, False, id="notin, is"),
        pytest.param(selector(expression("a", "NotIn", "1")), {}, True, id="notin, absent"),
        pytest.param(selector(expression("a", "Exists")), {"a": ""}, True, id="exists"),
        pytest.param(selector(expression("a", "Exists")), {"b": ""}, False, id="exists, absent"),
        pytest.param(selector(expression("a", "DoesNotExist")), {}, True, id="does not exist"),
        pytest.param(selector(expression("a", "DoesNotExist")), {"a": ""}, False, id="but does"),
        pytest.param(
            selector(expression("a", "Exists"), expression("a", "NotIn", "1")),
            {"a": "1"},
            False,
            id="labels and expressions together",
        ),
    ],
)
def test_selects(wanted: LabelSelector | None, labels: dict[str, str], matches: bool) -> None:
    assert compile_selector(wanted).matches(labels) is matches


def test_only_the_selector_of_everything_is_empty() -> None:
    assert compile_selector(selector()).empty
    assert not compile_selector(None).empty
    assert not compile_selector(selector(a="1")).empty
    assert compile_selector(selector()) == EVERYTHING
    assert compile_selector(None) == NOTHING
    assert EVERYTHING != NOTHING


def test_equal_meaning_is_equal() -> None:
    one = compile_selector(selector(expression("b", "NotIn", "y", "x"), a="1"))
    other = compile_selector(
        selector(
            expression("b", "NotIn", "x", "y", "x"),
            expression("a", "In", "1"),
            expression("a", "In", "1"),
        )
    )
    assert one == other
    assert hash(one) == hash(other)
    assert str(one) == "a in (1),b notin (x,y)"
    assert one != compile_selector(selector(a="1"))
    assert compile_selector(selector(expression("a", "Exists"))) != compile_selector(
        selector(expression("a", "DoesNotExist"))
    )


def test_labels_are_added_for_match_label_keys() -> None:
    base = compile_selector(selector(app="web"))
    assert base.with_labels({"hash": "1"}) == from_match_labels({"app": "web", "hash": "1"})
    assert not base.with_labels({"hash": "1"}).matches({"app": "web"})
    assert base.with_labels({}) == base
    assert EVERYTHING.with_labels({"a": "1"}).matches({"a": "1"})
    assert NOTHING.with_labels({"a": "1"}) == NOTHING


def test_intersection_selects_what_both_select() -> None:
    web, stable = from_match_labels({"app": "web"}), from_match_labels({"track": "stable"})
    assert web.intersection(stable).matches({"app": "web", "track": "stable"})
    assert not web.intersection(stable).matches({"app": "web"})
    assert web.intersection(EVERYTHING) == web
    assert web.intersection(NOTHING) == NOTHING


@pytest.mark.parametrize(
    ("wanted", "complaint"),
    [
        pytest.param(
            expression("a", "bad"), '"bad" is not a valid label selector operator', id="operator"
        ),
        pytest.param(
            expression("a", "Gt", "1"), '"Gt" is not a valid label selector operator', id="gt"
        ),
        pytest.param(expression("a", "In"), "values set can't be empty", id="in without values"),
        pytest.param(expression("a", "NotIn"), "values set can't be empty", id="notin without"),
        pytest.param(
            expression("a", "Exists", "1"),
            'matchExpressions[0].values: Invalid value: ["1"]: values set must be empty',
            id="exists with values",
        ),
        pytest.param(
            expression("a b", "Exists"),
            'matchExpressions[0].key: Invalid value: "a b": name part must consist of',
            id="key",
        ),
        pytest.param(
            expression("a", "In", "x", "-"),
            'matchExpressions[0].values[1][a]: Invalid value: "-": a valid label must be',
            id="value",
        ),
        pytest.param(expression("", "In"), "name part must be non-empty", id="two problems"),
    ],
)
def test_bad_requirement_is_refused(wanted: LabelSelectorRequirement, complaint: str) -> None:
    with pytest.raises(InvalidSelector) as caught:
        compile_selector(selector(wanted))
    assert complaint in str(caught.value)


def test_bad_match_labels_are_refused_but_not_in_a_plain_map() -> None:
    with pytest.raises(InvalidSelector, match="a valid label must be"):
        compile_selector(LabelSelector(match_labels={"a": "no spaces"}))
    assert from_match_labels({"a": "no spaces"}).matches({"a": "no spaces"})


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("app", None),
        ("example.com/app", None),
        ("A_b.c-9", None),
        ("a" * 63, None),
        (f"{'a' * 253}/b", None),
        ("", "name part must be non-empty"),
        ("example.com/", "name part must be non-empty"),
        ("/app", "prefix part must be non-empty"),
        ("a/b/c", "a qualified name must"),
        ("-a", "must start and end"),
        ("a-", "must start and end"),
        ("ä", "must start and end"),
        ("a" * 64, "no more than 63"),
        (f"{'a' * 254}/b", "no more than 253"),
        ("Example.com/app", "lowercase RFC 1123 subdomain"),
        ("example..com/app", "lowercase RFC 1123 subdomain"),
    ],
)
def test_qualified_names(name: str, problem: str | None) -> None:
    found = "; ".join(qualified_name_problems(name))
    assert (problem in found) if problem else not found


@pytest.mark.parametrize(
    ("value", "fine"),
    [
        ("", True),
        ("1.2_3", True),
        ("x" * 63, True),
        ("x" * 64, False),
        ("a b", False),
        ("a\n", False),
    ],
)
def test_label_values(value: str, fine: bool) -> None:
    assert (not label_value_problems(value)) is fine


names = st.sampled_from("abc")
values = st.sampled_from("xyz")
requirements = st.one_of(
    st.builds(
        lambda key, operator, values: expression(key, operator, *values),
        names,
        st.sampled_from(["In", "NotIn"]),
        st.lists(values, min_size=1, max_size=3),
    ),
    st.builds(expression, names, st.sampled_from(["Exists", "DoesNotExist"])),
)
selectors = st.builds(
    lambda labels, expressions: LabelSelector(match_labels=labels, match_expressions=expressions),
    st.dictionaries(names, values, max_size=2),
    st.lists(requirements, max_size=3),
)
label_sets = st.dictionaries(names, values)


def holds(wanted: LabelSelector, labels: Mapping[str, str]) -> bool:
    """The rules, spelled out."""
    if any(key not in labels or labels[key] != value for key, value in wanted.match_labels.items()):
        return False
    for each in wanted.match_expressions:
        if each.operator == "In" and (
            each.key not in labels or labels[each.key] not in each.values
        ):
            return False
        if each.operator == "NotIn" and each.key in labels and labels[each.key] in each.values:
            return False
        if each.operator == "Exists" and each.key not in labels:
            return False
        if each.operator == "DoesNotExist" and each.key in labels:
            return False
    return True


@given(selectors, label_sets)
def test_agrees_with_the_rules(wanted: LabelSelector, labels: dict[str, str]) -> None:
    assert compile_selector(wanted).matches(labels) == holds(wanted, labels)


@given(selectors, selectors, label_sets)
def test_equal_selectors_select_the_same(
    one: LabelSelector, other: LabelSelector, labels: dict[str, str]
) -> None:
    first, second = compile_selector(one), compile_selector(other)
    if first == second:
        assert first.matches(labels) == second.matches(labels)
    assert first.intersection(second).matches(labels) == (
        holds(one, labels) and holds(other, labels)
    )


@given(st.lists(st.text(st.sampled_from("aZ9-_. \n\u00e9"), max_size=4) | st.just("x" * 63)))
def test_many_values_are_checked_like_single_ones(values: list[str]) -> None:
    assert are_label_values(values) is not any(label_value_problems(value) for value in values)
    assert not are_label_values([*values, "x" * 64])
