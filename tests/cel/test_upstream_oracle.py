"""Generated selectors against Kubernetes' own packages, where they can be built."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.cel_expressions import DEVICES, expressions
from lab.cel_oracle import BUILD_SECONDS, CannotBuild, ask, build
from lab.cel_twin import disagreement

COUNT = 3000


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return build(tmp_path_factory.mktemp("cel-go"))
    except CannotBuild as error:
        pytest.skip(f"{error}: tests/cel_go cannot be built")


@pytest.mark.real
@pytest.mark.timeout(BUILD_SECONDS)
@pytest.mark.parametrize("seed", [1001, 1002, 1003])
def test_generated_expressions(program: Path, seed: int) -> None:
    asked = expressions(seed, COUNT)
    problems = [
        f"{one}\n    {problem}"
        for one, answer in zip(asked, ask(program, asked), strict=True)
        if "Syntax error" not in answer.get("compileError", "")
        and (problem := disagreement(one, DEVICES, answer)) is not None
    ]
    assert not problems, f"{len(problems)} of {COUNT}:\n" + "\n".join(problems[:20])
