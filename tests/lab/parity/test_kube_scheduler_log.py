from __future__ import annotations

from pathlib import Path

from lab.parity.kube_scheduler_log import ScoreLog

PREFIX = "I1116 03:41:24.888309   20534 schedule_one.go:982]"


def scored(pod: str, plugin: str, node: str, score: int) -> str:
    fields = f'pod="{pod}" plugin="{plugin}" node="{node}" score={score}'
    return f'{PREFIX} "Plugin scored node for pod" {fields}\n'


def total(pod: str, node: str, score: int) -> str:
    text = "Calculated node's final score for pod"
    return f'{PREFIX} "{text}" pod="{pod}" node="{node}" score={score}\n'


def test_scores_are_read_as_they_are_written(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("noise\n" + scored("a/web", "Fit", "n1", 5) + scored("a/db", "Fit", "n1", 1))
    scores = ScoreLog(log)
    assert scores.take("a/other") == ({}, {})

    line = scored("a/web", "Image", "n1", 2)
    with log.open("a") as file:
        file.write(line[:30])
    assert scores.take("a/db") == ({"n1": {"Fit": 1}}, {})
    with log.open("a") as file:
        file.write(line[30:] + scored("a/web", "Fit", "n2", 7) + total("a/web", "n1", 7))

    assert scores.take("a/web") == ({"n1": {"Fit": 5, "Image": 2}, "n2": {"Fit": 7}}, {"n1": 7})
    assert scores.take("a/web") == ({}, {})
