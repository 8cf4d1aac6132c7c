"""Normalization of raw scores to the range 0 to 100."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ksched.framework.interface import MAX_NODE_SCORE


def default_normalize(scores: NDArray[np.int64], *, reverse: bool = False) -> NDArray[np.int64]:
    """Scale non-negative scores so that the highest becomes 100, or with ``reverse`` 0.

    If all are zero, all stay zero, or with ``reverse`` become 100. Exact with the integer division
    of ``plugins/helper/normalize_score.go: DefaultNormalizeScore`` (v1.36).
    """
    highest = scores.max(initial=0)
    if highest == 0:
        return np.full_like(scores, MAX_NODE_SCORE) if reverse else scores
    scaled: NDArray[np.int64] = MAX_NODE_SCORE * scores // highest
    return MAX_NODE_SCORE - scaled if reverse else scaled
