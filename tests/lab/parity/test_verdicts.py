from __future__ import annotations

import pytest

from lab.parity.scenario import Report
from lab.parity.verdicts import Decision, Outcome, differences

AHEAD = {"n1": {"Fit": 50, "Image": 2}, "n2": {"Fit": 40, "Image": 2}}
TIED = {"n1": {"Fit": 50}, "n2": {"Fit": 50}}
NO_ROOM = "0/2 nodes are available: 2 Insufficient cpu."


@pytest.mark.parametrize(
    ("theirs", "ours", "complaint"),
    [
        pytest.param(Outcome("n1"), Outcome("n1"), "", id="the only node"),
        pytest.param(Outcome("n1"), Outcome("n2"), "n2 is not among the best: n1", id="another"),
        pytest.param(
            Outcome("n1", scores=TIED), Outcome("n2", scores=TIED), "", id="a tie is free"
        ),
        pytest.param(
            Outcome("n1", scores=AHEAD),
            Outcome("n2", scores=AHEAD),
            "n2 is not among the best",
            id="not the best",
        ),
        pytest.param(
            Outcome("n1", scores=AHEAD),
            Outcome("n1", scores={**AHEAD, "n2": {"Fit": 41, "Image": 2}}),
            "the scores of n2 differ",
            id="right for the wrong reason",
        ),
        pytest.param(
            Outcome("n1", scores=AHEAD),
            Outcome("n1", scores={**AHEAD, "n3": {"Fit": 0, "Image": 0}}),
            "the scores of n3 differ",
            id="feasible for one only",
        ),
        pytest.param(
            Outcome("n1", scores={"n1": {"Fit": 1, "DynamicResources": 0}}),
            Outcome("n1", scores={"n1": {"Fit": 1}}),
            "",
            id="devices are set aside",
        ),
        pytest.param(Outcome("n1"), Outcome(message=NO_ROOM), "only one", id="we found none"),
        pytest.param(Outcome(message=NO_ROOM), Outcome("n1"), "only one", id="they found none"),
        pytest.param(Outcome(message=NO_ROOM), Outcome(message=NO_ROOM), "", id="same reason"),
        pytest.param(
            Outcome(message=NO_ROOM),
            Outcome(message=NO_ROOM.replace("2 In", "1 In")),
            "the messages differ",
            id="other counts",
        ),
        pytest.param(
            Outcome(message=f"{NO_ROOM} no new claims to deallocate, preemption: none."),
            Outcome(message=f"{NO_ROOM} preemption: none."),
            "",
            id="claims are set aside",
        ),
        pytest.param(
            Outcome(message=f"{NO_ROOM} preemption: none."),
            Outcome(message=f"{NO_ROOM} preemption: some."),
            "the messages differ",
            id="preemption is not",
        ),
        pytest.param(
            Outcome(message='pvc "x" not found. not found'),
            Outcome(message='pvc "x" not found. preemption: not helpful.'),
            "",
            id="rejected at PreFilter",
        ),
    ],
)
def test_what_counts_as_the_same_decision(theirs: Outcome, ours: Outcome, complaint: str) -> None:
    found = differences(theirs, ours)

    assert len(found) == bool(complaint)
    assert all(complaint in line for line in found)


def test_a_difference_tells_seed_pod_verdicts_and_scores() -> None:
    report = Report(seed=17)
    same = Decision(Outcome("n1"), Outcome("n1"))
    other = Decision(Outcome("n1", scores=AHEAD), Outcome("n2", scores=TIED))
    none = Decision(Outcome(message=NO_ROOM), Outcome(message=NO_ROOM))
    assert report.add(0, {"metadata": {"name": "same"}}, same)
    assert not report.add(4, {"metadata": {"name": "web"}}, other)
    assert report.add(5, {}, none)

    assert (report.decisions, report.bound, report.messages) == (3, 2, [NO_ROOM])
    [text] = report.disagreements
    assert text.splitlines() == [
        "seed 17, decision 4: n2 is not among the best: n1",
        "the scores of n1 differ: {'Fit': 50, 'Image': 2} and {'Fit': 50}",
        "the scores of n2 differ: {'Fit': 40, 'Image': 2} and {'Fit': 50}",
        'pod: {"metadata": {"name": "web"}}',
        "kube-scheduler: bound to n1",
        'kube-scheduler:      52 n1  {"Fit": 50, "Image": 2}',
        'kube-scheduler:      42 n2  {"Fit": 40, "Image": 2}',
        "ksched:         bound to n2",
        'ksched:              50 n1  {"Fit": 50}',
        'ksched:              50 n2  {"Fit": 50}',
    ]
