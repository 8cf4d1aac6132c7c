"""Texts made of reasons are kube-scheduler's, up to a bound."""

from __future__ import annotations

from ksched.framework.diagnosis import Diagnosis
from ksched.framework.status import MESSAGE_LIMIT, joined, unschedulable


def test_a_text_below_the_bound_is_all_of_its_reasons() -> None:
    reasons = {f"Insufficient example.com/r{number:03}": 5 for number in range(100)}
    counted = ", ".join(f"5 {reason}" for reason in reasons)

    message = Diagnosis(num_all_nodes=5, reasons=reasons).message

    assert message == f"0/5 nodes are available: {counted}."


def test_what_is_beyond_the_bound_is_counted() -> None:
    reasons = {f"Insufficient example.com/r{number:05}": 5 for number in range(20_000)}

    message = Diagnosis(num_all_nodes=5, reasons=reasons).message

    assert message.startswith("0/5 nodes are available: 5 Insufficient example.com/r00000, ")
    told = message.count("Insufficient")
    assert message.endswith(f", and {20_000 - told} more.")
    assert MESSAGE_LIMIT - 100 < len(message) < MESSAGE_LIMIT + 100
    assert len(unschedulable(*reasons).message) < MESSAGE_LIMIT + 100


def test_a_single_reason_is_cut() -> None:
    assert joined(["x" * 20_000]) == "x" * (MESSAGE_LIMIT - 3) + "..."


def test_a_last_reason_that_is_too_long_is_cut_and_not_left_out() -> None:
    preemption = "preemption: 0/3 nodes are available: " + "1 Insufficient cpu, " * 1000

    message = joined(["no new claims to deallocate", preemption])

    assert message.startswith(f"no new claims to deallocate, {preemption[:100]}")
    assert message.endswith("...")
    assert len(message) == MESSAGE_LIMIT
