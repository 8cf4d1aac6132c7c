"""plugins/helper/normalize_score.go: DefaultNormalizeScore."""

from __future__ import annotations

import numpy as np
import pytest

from ksched.framework import default_normalize


@pytest.mark.parametrize(
    ("raw", "reverse", "normalized"),
    [
        pytest.param([0, 30, 60], False, [0, 50, 100], id="the highest becomes 100"),
        pytest.param([0, 1, 3], True, [100, 67, 0], id="reversed, the highest becomes 0"),
        pytest.param([1, 2, 3], False, [33, 66, 100], id="quotients are cut off"),
        pytest.param([1, 2, 3], True, [67, 34, 0], id="reversed, after they are cut off"),
        pytest.param([0, 0], False, [0, 0], id="all zero stays zero"),
        pytest.param([0, 0], True, [100, 100], id="reversed, all zero is perfect"),
        pytest.param([], True, [], id="no nodes"),
    ],
)
def test_scores_are_scaled_to_one_hundred(
    raw: list[int], reverse: bool, normalized: list[int]
) -> None:
    scores = default_normalize(np.array(raw, np.int64), reverse=reverse)

    assert scores.tolist() == normalized
    assert scores.dtype == np.int64
