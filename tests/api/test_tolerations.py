"""Taints and tolerations."""

from __future__ import annotations

import pytest

from ksched.api.objects import Taint, Toleration
from ksched.api.tolerations import (
    NO_EXECUTE,
    NO_SCHEDULE,
    PREFER_NO_SCHEDULE,
    UNSCHEDULABLE_TAINT,
    count_intolerable_prefer_no_schedule,
    find_untolerated,
    tolerates,
)

GPU = Taint(key="gpu", value="yes", effect=NO_SCHEDULE)


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        pytest.param(Toleration(key="gpu", value="yes"), True, id="equal is the default"),
        pytest.param(Toleration(key="gpu", operator="Equal", value="yes"), True, id="equal"),
        pytest.param(Toleration(key="gpu", value="no"), False, id="other value"),
        pytest.param(Toleration(key="cpu", value="yes"), False, id="other key"),
        pytest.param(Toleration(key="gpu", operator="Exists"), True, id="exists"),
        pytest.param(Toleration(operator="Exists"), True, id="exists without a key is everything"),
        pytest.param(Toleration(value="yes"), True, id="no key, equal value"),
        pytest.param(Toleration(), False, id="no key, other value"),
        pytest.param(
            Toleration(key="gpu", operator="Exists", effect=NO_SCHEDULE), True, id="same effect"
        ),
        pytest.param(
            Toleration(key="gpu", operator="Exists", effect=NO_EXECUTE), False, id="other effect"
        ),
        pytest.param(Toleration(key="gpu", operator="Lt", value="9"), False, id="unknown operator"),
    ],
)
def test_toleration_covers_taint(toleration: Toleration, tolerated: bool) -> None:
    assert tolerates(toleration, GPU) is tolerated


def test_first_untolerated_taint_is_found() -> None:
    soft = Taint(key="soft", effect=PREFER_NO_SCHEDULE)
    evict = Taint(key="evict", effect=NO_EXECUTE)
    taints = [soft, GPU, evict]

    assert find_untolerated(taints, []) is GPU
    assert find_untolerated(taints, [Toleration(key="gpu", operator="Exists")]) is evict
    assert find_untolerated(taints, [Toleration(operator="Exists")]) is None
    assert find_untolerated(taints, [], {PREFER_NO_SCHEDULE}) is soft
    assert find_untolerated([soft], []) is None


def test_only_soft_taints_are_counted() -> None:
    taints = [
        Taint(key="a", effect=PREFER_NO_SCHEDULE),
        Taint(key="b", effect=PREFER_NO_SCHEDULE),
        GPU,
    ]
    hard = Toleration(key="a", operator="Exists", effect=NO_SCHEDULE)
    soft = Toleration(key="a", operator="Exists", effect=PREFER_NO_SCHEDULE)

    assert count_intolerable_prefer_no_schedule(taints, []) == 2
    assert count_intolerable_prefer_no_schedule(taints, [hard]) == 2
    assert count_intolerable_prefer_no_schedule(taints, [soft]) == 1
    assert count_intolerable_prefer_no_schedule(taints, [Toleration(operator="Exists")]) == 0


def test_cordon_is_tolerated_by_its_key_or_by_everything() -> None:
    key = "node.kubernetes.io/unschedulable"
    assert tolerates(Toleration(key=key, operator="Exists"), UNSCHEDULABLE_TAINT)
    assert tolerates(Toleration(key=key, effect=NO_SCHEDULE), UNSCHEDULABLE_TAINT)
    assert not tolerates(Toleration(key=key, value="x"), UNSCHEDULABLE_TAINT)
    assert not tolerates(
        Toleration(key=key, operator="Exists", effect=NO_EXECUTE), UNSCHEDULABLE_TAINT
    )
