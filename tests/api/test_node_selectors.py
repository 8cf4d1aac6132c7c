"""Node selector terms, node by node and value by value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ksched.api.label_selectors import InvalidSelector
from ksched.api.node_selectors import (
    NodeTerms,
    compile_node_selector,
    compile_preferred,
    compile_required,
    compile_term,
    parse_int64,
)
from ksched.api.objects import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
)
from ksched.testing import make_pod


def wanted(key: str, operator: str, *values: str) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(key=key, operator=operator, values=list(values))


def term(
    *expressions: NodeSelectorRequirement, fields: list[NodeSelectorRequirement] | None = None
) -> NodeSelectorTerm:
    return NodeSelectorTerm(match_expressions=list(expressions), match_fields=fields or [])


def terms(*all_terms: NodeSelectorTerm) -> NodeTerms:
    return compile_node_selector(NodeSelector(node_selector_terms=list(all_terms)))


LABELS = {"zone": "a", "cores": "8", "bare": ""}


@pytest.mark.parametrize(
    ("requirement", "matches"),
    [
        pytest.param(wanted("zone", "In", "a", "b"), True, id="in"),
        pytest.param(wanted("zone", "In", "b"), False, id="not in"),
        pytest.param(wanted("disk", "In", "a"), False, id="in, absent"),
        pytest.param(wanted("zone", "NotIn", "b"), True, id="notin"),
        pytest.param(wanted("zone", "NotIn", "a"), False, id="notin, is"),
        pytest.param(wanted("disk", "NotIn", "a"), True, id="notin, absent"),
        pytest.param(wanted("bare", "Exists"), True, id="exists"),
        pytest.param(wanted("disk", "Exists"), False, id="exists, absent"),
        pytest.param(wanted("disk", "DoesNotExist"), True, id="does not exist"),
        pytest.param(wanted("bare", "DoesNotExist"), False, id="does not exist, but does"),
        pytest.param(wanted("cores", "Gt", "7"), True, id="greater"),
        pytest.param(wanted("cores", "Gt", "8"), False, id="equal is not greater"),
        pytest.param(wanted("cores", "Lt", "9"), True, id="less"),
        pytest.param(wanted("cores", "Lt", "8"), False, id="equal is not less"),
        pytest.param(wanted("cores", "Gt", "0"), True, id="greater than zero"),
        pytest.param(wanted("cores", "Lt", "0"), False, id="less than zero"),
        pytest.param(wanted("zone", "Gt", "1"), False, id="no number"),
        pytest.param(wanted("disk", "Lt", "1"), False, id="no label to compare"),
    ],
)
def test_requirement(requirement: NodeSelectorRequirement, matches: bool) -> None:
    compiled = compile_term(term(requirement))
    assert compiled.problems == ()
    assert compiled.matches(LABELS, "n1") is matches
    (single,) = compiled.requirements
    assert single.key == requirement.key
    assert not single.is_field
    assert single.matches_value(LABELS.get(requirement.key)) is matches


@pytest.mark.parametrize(
    ("field", "matches"),
    [
        pytest.param(wanted("metadata.name", "In", "n1"), True, id="name"),
        pytest.param(wanted("metadata.name", "In", "n2"), False, id="other name"),
        pytest.param(wanted("metadata.name", "NotIn", "n2"), True, id="not the name"),
        pytest.param(wanted("metadata.name", "NotIn", "n1"), False, id="but the name"),
        pytest.param(wanted("spec.x", "In", "n1"), False, id="unknown field"),
        pytest.param(wanted("spec.x", "NotIn", "n1"), True, id="unknown field is not that"),
        pytest.param(wanted("spec.x", "In", ""), True, id="unknown field reads as empty"),
    ],
)
def test_field(field: NodeSelectorRequirement, matches: bool) -> None:
    compiled = compile_term(term(fields=[field]))
    assert compiled.problems == ()
    assert compiled.requirements[0].is_field
    assert compiled.matches({}, "n1") is matches


def test_terms_are_alternatives_and_requirements_add_up() -> None:
    either = terms(
        term(wanted("zone", "In", "a"), wanted("disk", "Exists")),
        term(wanted("zone", "In", "b")),
    )
    assert either.matches({"zone": "a", "disk": "x"}, "n1")
    assert either.matches({"zone": "b"}, "n1")
    assert not either.matches({"zone": "a"}, "n1")


def test_labels_and_fields_of_a_term_add_up() -> None:
    both = terms(term(wanted("zone", "In", "a"), fields=[wanted("metadata.name", "In", "n1")]))
    assert both.matches({"zone": "a"}, "n1")
    assert not both.matches({"zone": "a"}, "n2")
    assert not both.matches({"zone": "b"}, "n1")


def test_nothing_matches_an_empty_selector_or_term() -> None:
    assert not terms().matches(LABELS, "n1")
    assert not terms(term()).matches(LABELS, "n1")
    assert not compile_term(term()).matches(LABELS, "n1")
    assert terms(term(), term(wanted("zone", "Exists"))).matches(LABELS, "n1")
    assert terms(term()).problems == ()


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        pytest.param(
            term(wanted("zone", "Near", "a")),
            '.matchExpressions[0].operator: Unsupported value: "Near": supported values: "In", ',
            id="operator",
        ),
        pytest.param(term(wanted("zone", "In")), "values set can't be empty", id="no values"),
        pytest.param(term(wanted("zone", "Exists", "a")), "must be empty", id="too many values"),
        pytest.param(term(wanted("a b", "Exists")), "name part must", id="key"),
        pytest.param(term(wanted("zone", "In", "a b")), "a valid label must be", id="value"),
        pytest.param(term(wanted("n", "Gt", "x")), "must be an integer", id="no integer"),
        pytest.param(term(wanted("n", "Gt", "1", "2")), "exactly one value", id="two bounds"),
        pytest.param(term(wanted("n", "Lt")), "exactly one value", id="no bound"),
        pytest.param(term(wanted("n", "Lt", "-1")), "a valid label must be", id="negative bound"),
        pytest.param(
            term(wanted("n", "Gt", "9223372036854775808")), "must be an integer", id="too large"
        ),
        pytest.param(
            term(fields=[wanted("metadata.name", "In", "a", "b")]),
            ".matchFields[0].values: Invalid value: ['a', 'b']: must have one element",
            id="two names",
        ),
        pytest.param(
            term(fields=[wanted("metadata.name", "Exists")]),
            '.matchFields[0].operator: Unsupported value: "Exists": '
            'supported values: "In", "NotIn"',
            id="operator of a field",
        ),
    ],
)
def test_a_term_that_cannot_be_parsed_never_matches(bad: NodeSelectorTerm, problem: str) -> None:
    alone = terms(bad)
    assert len(alone.problems) == 1
    assert alone.problems[0].startswith("nodeSelectorTerms[0].match")
    assert problem in alone.problems[0]
    assert not alone.matches({**LABELS, "n": "5"}, "a")
    assert terms(bad, term(wanted("zone", "In", "a"))).matches(LABELS, "n1")


def test_all_problems_of_a_term_are_kept() -> None:
    bad = term(wanted("zone", "Near"), wanted("zone", "In"), fields=[wanted("x", "In")])
    assert len(compile_term(bad, "here").problems) == 3


def test_required_affinity_is_node_selector_and_terms() -> None:
    pod = make_pod().node_selector(disk="ssd").required_node_affinity(("zone", "In", ["a"]))
    required = compile_required(pod.obj().spec)
    assert required.matches({"disk": "ssd", "zone": "a"}, "n1")
    assert not required.matches({"zone": "a"}, "n1")
    assert not required.matches({"disk": "ssd"}, "n1")
    assert not required.empty
    assert required == compile_required(pod.obj().spec)
    assert hash(required) == hash(compile_required(pod.obj().spec))


def test_node_selector_values_are_taken_as_they_are() -> None:
    required = compile_required(make_pod().node_selector({"not a key": "no value"}).obj().spec)
    assert required.matches({"not a key": "no value"}, "n1")


def test_no_affinity_matches_all_and_affinity_without_terms_none() -> None:
    assert compile_required(make_pod().obj().spec).empty
    assert compile_required(make_pod().obj().spec).matches({}, "n1")
    path = "requiredDuringSchedulingIgnoredDuringExecution"
    empty = make_pod().merge({"spec": {"affinity": {"nodeAffinity": {path: {}}}}}).obj()
    assert not compile_required(empty.spec).empty
    assert not compile_required(empty.spec).matches({}, "n1")


def preferred(weight: int, preference: NodeSelectorTerm) -> PreferredSchedulingTerm:
    return PreferredSchedulingTerm(weight=weight, preference=preference)


def test_preferences_add_the_weights_of_what_matches() -> None:
    compiled = compile_preferred(
        [
            preferred(5, term(wanted("zone", "In", "a"))),
            preferred(7, term(fields=[wanted("metadata.name", "In", "n1")])),
            preferred(0, term(wanted("zone", "Nonsense"))),
            preferred(9, term()),
        ]
    )
    assert [weighted.weight for weighted in compiled.terms] == [5, 7]
    assert compiled.score({"zone": "a"}, "n1") == 12
    assert compiled.score({"zone": "a"}, "n2") == 5
    assert compiled.score({}, "n2") == 0


def test_a_preference_that_cannot_be_parsed_is_an_error() -> None:
    bad = [preferred(1, term(wanted("zone", "In"))), preferred(1, term(wanted("zone", "Near")))]
    with pytest.raises(InvalidSelector) as caught:
        compile_preferred(bad)
    assert str(caught.value).startswith("[[0].matchExpressions[0].values: Invalid value")
    assert '[1].matchExpressions[0].operator: Unsupported value: "Near"' in str(caught.value)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0), ("-7", -7), ("+7", 7), ("007", 7), ("", None), ("1.0", None), (" 1", None),
        ("1_0", None), ("٣", None), ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", None), ("-9223372036854775808", -(2**63)), ("9" * 5000, None),
    ],
)  # fmt: skip
def test_integers_are_read_as_go_reads_them(text: str, number: int | None) -> None:
    assert parse_int64(text) == number


def holds(each: NodeSelectorRequirement, labels: dict[str, str]) -> bool:
    """The rules, spelled out."""
    value = labels.get(each.key)
    match each.operator:
        case "In":
            return value is not None and value in each.values
        case "NotIn":
            return value is None or value not in each.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and value.isdigit() and int(value) > int(each.values[0])
        case _:
            return value is not None and value.isdigit() and int(value) < int(each.values[0])


names = st.sampled_from("ab")
values = st.sampled_from(["0", "1", "2", "x"])
requirements = st.one_of(
    st.builds(
        lambda key, operator, some: wanted(key, operator, *some),
        names,
        st.sampled_from(["In", "NotIn"]),
        st.lists(values, min_size=1, max_size=3),
    ),
    st.builds(wanted, names, st.sampled_from(["Exists", "DoesNotExist"])),
    st.builds(wanted, names, st.sampled_from(["Gt", "Lt"]), st.sampled_from("012")),
)


@given(
    st.lists(st.lists(requirements, max_size=3), max_size=3),
    st.dictionaries(names, values),
)
def test_agrees_with_the_rules(
    alternatives: list[list[NodeSelectorRequirement]], labels: dict[str, str]
) -> None:
    compiled = terms(*(term(*each) for each in alternatives))
    expected = any(each and all(holds(one, labels) for one in each) for each in alternatives)
    assert compiled.matches(labels, "n1") == expected
