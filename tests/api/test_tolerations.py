"""Taints and tolerations."""

from __future__ import annotations

import pytest

from ksched.api.objects import Taint, Toleration
from ksched.api.tolerations import (
    NO_EXECUTE,
    NO_SCHEDULE,
    PREFER_NO_SCHEDULE,
    UNSCHEDULABLE_TAINT,
    Tolerations,
    count_intolerable_prefer_no_schedule,
    find_untolerated,
)

NONE = Tolerations(())
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
    assert Tolerations([toleration]).cover(GPU) is tolerated
    others = [Toleration(key=f"other-{number}", operator="Exists") for number in range(3)]
    assert Tolerations([*others, toleration]).cover(GPU) is tolerated


def test_first_untolerated_taint_is_found() -> None:
    soft = Taint(key="soft", effect=PREFER_NO_SCHEDULE)
    evict = Taint(key="evict", effect=NO_EXECUTE)
    taints = [soft, GPU, evict]

    assert find_untolerated(taints, NONE) is GPU
    assert (
        find_untolerated(taints, Tolerations([Toleration(key="gpu", operator="Exists")])) is evict
    )
    assert find_untolerated(taints, Tolerations([Toleration(operator="Exists")])) is None
    assert find_untolerated(taints, NONE, {PREFER_NO_SCHEDULE}) is soft
    assert find_untolerated([soft], NONE) is None


def test_only_soft_taints_are_counted() -> None:
    taints = [
        Taint(key="a", effect=PREFER_NO_SCHEDULE),
        Taint(key="b", effect=PREFER_NO_SCHEDULE),
        GPU,
    ]
    hard = Toleration(key="a", operator="Exists", effect=NO_SCHEDULE)
    soft = Toleration(key="a", operator="Exists", effect=PREFER_NO_SCHEDULE)

    assert count_intolerable_prefer_no_schedule(taints, NONE) == 2
    assert count_intolerable_prefer_no_schedule(taints, Tolerations([hard])) == 2
    assert count_intolerable_prefer_no_schedule(taints, Tolerations([soft])) == 1
    assert (
        count_intolerable_prefer_no_schedule(taints, Tolerations([Toleration(operator="Exists")]))
        == 0
    )


def test_cordon_is_tolerated_by_its_key_or_by_everything() -> None:
    key = "node.kubernetes.io/unschedulable"
    assert Tolerations([Toleration(key=key, operator="Exists")]).cover(UNSCHEDULABLE_TAINT)
    assert Tolerations([Toleration(key=key, effect=NO_SCHEDULE)]).cover(UNSCHEDULABLE_TAINT)
    assert not Tolerations([Toleration(key=key, value="x")]).cover(UNSCHEDULABLE_TAINT)
    evicting = Toleration(key=key, operator="Exists", effect=NO_EXECUTE)
    assert not Tolerations([evicting]).cover(UNSCHEDULABLE_TAINT)
