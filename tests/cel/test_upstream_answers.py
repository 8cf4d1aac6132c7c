"""Device selectors answer as Kubernetes' own packages do.

``upstream_answers.jsonl`` holds what ``k8s.io/dynamic-resource-allocation/cel`` v0.36 said about
the expressions of ``expressions.txt`` and about generated ones (``lab.cel_oracle`` records it).
Covers the whole way of an expression: ksched.cel.lexer, ksched.cel.parser, ksched.cel.macros,
ksched.cel.checker,
ksched.cel.unification, ksched.cel.static_types, ksched.cel.syntax_tree, ksched.cel.planner,
ksched.cel.folds, ksched.cel.lookups, ksched.cel.arithmetic, ksched.cel.conversions,
ksched.cel.declarations, ksched.cel.environment, ksched.cel.errors, ksched.cel.list_functions,
ksched.cel.optional_functions, ksched.cel.standard_functions, ksched.cel.string_functions,
ksched.cel.time_functions, ksched.cel.values, ksched.cel.versions, ksched.cel.quantities,
ksched.devices.device_selectors.
"""

from __future__ import annotations

import json
from pathlib import Path

from lab.cel_expressions import DEVICES
from lab.cel_twin import disagreement

ANSWERS = [
    json.loads(line)
    for line in (Path(__file__).parent / "upstream_answers.jsonl").read_text().splitlines()
]


def test_every_recorded_answer() -> None:
    problems = [
        f"{answer['expression']}\n    {problem}"
        for answer in ANSWERS
        if (problem := disagreement(answer["expression"], DEVICES, answer)) is not None
    ]
    assert not problems, f"{len(problems)} of {len(ANSWERS)}:\n" + "\n".join(problems[:20])


def test_the_table_has_answers_of_every_sort() -> None:
    results = [one for answer in ANSWERS for one in answer.get("results", [])]
    assert len(ANSWERS) >= 1500
    assert sum("compileError" in answer for answer in ANSWERS) >= 100
    assert sum("error" in one for one in results) >= 500
    assert sum(one.get("matches", False) for one in results) >= 500
