"""RE2 in linear time.

Covers ksched.cel.regular_expressions, ksched.cel.regex_syntax and ksched.cel.regex_program.

What matches is in ``upstream_answers.jsonl`` too; here are the choice of a match and the bounds.
"""

from __future__ import annotations

import pytest

from ksched.cel.regex_program import LARGEST_PROGRAM, RegexError
from ksched.cel.regular_expressions import MOST_STEPS, compile_regex


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("a|ab", "xab", "a"),
        ("(?:a|ab)(?:c|bcd)", "abcd", "abcd"),
        ("a*?", "aaa", ""),
        ("a+?", "aaa", "a"),
        ("(?U)a+", "aaa", "a"),
        ("a{2,3}", "aaaa", "aaa"),
        ("(?i)ÉT", "été", "ét"),
        (r"\bgpu\b", "my gpu!", "gpu"),
        (r"[^\d\s]+", "12 ab", "ab"),
        (r"\pL+", "1é2", "é"),
        (r"(?s)a.b", "a\nb", "a\nb"),
        ("a.b", "a\nb", ""),
        ("(?m)^b$", "a\nb\nc", "b"),
        ("b$", "b\n", ""),
        (r"\x{e9}", "é", "é"),
        (r"[[:alpha:]-]+", "1a-b", "a-b"),
        (r"\Qa.b\E", "a.b", "a.b"),
        (r"\Qab\E+", "abbab", "abb"),
        (r"x\Q\E*", "xxy", "xx"),
        ("x*", "", ""),
    ],
)
def test_finds_what_re2_finds(pattern: str, text: str, found: str) -> None:
    assert compile_regex(pattern).find(text) == found


def test_finds_all_without_overlap() -> None:
    assert compile_regex("a*").find_all("baac", -1) == ["", "aa", ""]
    assert compile_regex("[0-9]").find_all("1a2b3", 2) == ["1", "2"]


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(", "missing closing ): `(`"),
        (")", "unexpected ): `)`"),
        ("[a", "missing closing ]: `[a`"),
        ("*", "missing argument to repetition operator: `*`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("[b-a]", "invalid character class range: `b-a`"),
        (r"\1", r"invalid escape sequence: `\1`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("a\\", "trailing backslash at end of expression: ``"),
    ],
)
def test_refuses_in_go_s_words(pattern: str, problem: str) -> None:
    with pytest.raises(RegexError) as raised:
        compile_regex(pattern)
    assert str(raised.value) == f"error parsing regexp: {problem}"


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|a)*b", "(a|aa)+$b", "a*" * 30 + "b"])
def test_nested_repetition_takes_linear_time(pattern: str) -> None:
    """``re`` would need 2**64 steps for some of these."""
    regex = compile_regex(pattern)
    assert not regex.matches("a" * 64)
    assert regex.steps <= len("a" * 65) * 200 <= MOST_STEPS


def test_a_program_is_bounded() -> None:
    with pytest.raises(RegexError, match="expression too large"):
        compile_regex("a{1000}" * (LARGEST_PROGRAM // 1000 + 1))


@pytest.mark.parametrize(
    "pattern",
    [
        "(" * 250 + "a" + "|b)*" * 250,
        "(" * 200 + "a" + r"|b)*\Q\E*" * 200,
        "a" + r"\Q\E*" * 250,
    ],
)
def test_patterns_nest_deeply(pattern: str) -> None:
    assert compile_regex(pattern).matches("a")


@pytest.mark.parametrize("pattern", ["(" * 2000 + "a" + ")" * 2000, "a" + r"\Q\E*" * 2000])
def test_patterns_that_nest_too_deeply_are_refused(pattern: str) -> None:
    with pytest.raises(RegexError, match="expression nests too deeply"):
        compile_regex(pattern)
