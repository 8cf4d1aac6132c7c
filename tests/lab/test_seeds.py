from __future__ import annotations

import pytest

from lab.seeds import asked_seeds


@pytest.mark.parametrize(
    ("asked", "seeds"),
    [
        pytest.param("", [0, 1], id="the default"),
        pytest.param("4", [0, 1, 2, 3], id="so many"),
        pytest.param("7,3", [7, 3], id="just these"),
        pytest.param("7,", None, id="a hole"),
        pytest.param("1000-1002,5", [1000, 1001, 1002, 5], id="a range and one more"),
    ],
)
def test_seeds_are_asked_for_in_one_variable(asked: str, seeds: list[int] | None) -> None:
    if seeds is None:
        with pytest.raises(ValueError, match="invalid literal"):
            asked_seeds(2, {"SEEDS": asked})
    else:
        assert asked_seeds(2, {"SEEDS": asked}) == seeds


def test_without_the_variable_the_first_few_are_played() -> None:
    assert asked_seeds(3, {}) == [0, 1, 2]
