"""The ring of recent decisions."""

from __future__ import annotations

from ksched.scheduling.decisions import Decision, DecisionLog, Result


def decision(pod: str, attempts: int = 1) -> Decision:
    return Decision(
        at=0.0,
        pod=pod,
        uid=pod,
        profile="default-scheduler",
        result=Result.SCHEDULED,
        node_name="n1",
        message="",
        attempts=attempts,
        evaluated_nodes=1,
        feasible_nodes=1,
        duration_seconds=0.0,
        algorithm_seconds=0.0,
        waited_seconds=0.0,
    )


def test_the_newest_decisions_are_kept_oldest_first() -> None:
    log = DecisionLog(length=3)
    for number in range(5):
        log.record(decision(f"p{number}"))
    assert [one.pod for one in log] == ["p2", "p3", "p4"]
    assert len(log) == 3


def test_decisions_about_a_pod_are_found() -> None:
    log = DecisionLog()
    for attempts, pod in enumerate(["a", "b", "a"]):
        log.record(decision(pod, attempts))
    assert [one.attempts for one in log.of("a")] == [0, 2]
    assert log.of("nobody") == []


def test_observers_hear_of_what_comes_after_them() -> None:
    log, heard = DecisionLog(), list[str]()
    log.record(decision("early"))
    log.observe(lambda one: heard.append(one.pod))
    log.record(decision("late"))
    assert heard == ["late"]


def test_a_decision_made_while_they_are_read_does_not_disturb_the_reader() -> None:
    log = DecisionLog(length=2)
    log.record(decision("a"))
    log.record(decision("b"))
    for one in log:
        log.record(decision(f"{one.pod}-again"))
    assert [one.pod for one in log] == ["a-again", "b-again"]
