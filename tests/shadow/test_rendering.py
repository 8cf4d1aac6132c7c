"""The report as text, as metrics and for programs."""

from __future__ import annotations

import asyncio
import urllib.request

import msgspec
import pytest

from ksched.shadow.rendering import line, render
from ksched.shadow.report import Difference, Outcome, Report
from ksched.shadow.shadow_metrics import ShadowMetrics
from ksched.shadow.suspicion import LEAST_EXPLAINED, Suspicion
from ksched.web.metrics_server import serving_metrics

PROFILE = "default-scheduler"
REAL = Difference(
    "default/web",
    PROFILE,
    "n1",
    "n2",
    Outcome.DIFFERENT,
    "ImageLocality",
    "n2 scores 310, n1 300; of that ImageLocality 10 and 0",
)
LAG = Difference(
    "default/api", PROFILE, "n2", "n1", Outcome.STATE_LAG, lag="before the bind of x/y"
)


class ShadowLike:
    def __init__(self, report):
        self.report, self.held, self.is_following = report, 3, True


def filled(*differences):
    report, suspicion = Report(), Suspicion(["ImageLocality disabled"])
    report.watch(PROFILE, suspicion)
    report.agree(PROFILE, Outcome.SAME_NODE)
    report.agree(PROFILE, Outcome.EQUAL_SCORE)
    for one in differences:
        best = dict.fromkeys(one.variants, 1)
        suspicion.differ(best, 50, is_lag=one.outcome is Outcome.STATE_LAG)
        report.differ(one)
    return report


def test_agreement_and_causes_are_counted():
    text = render(filled(REAL, LAG).summary())
    assert text.startswith("4 decisions judged, 2 alike (50.0 %); 0 by configuration, 1 different")
    assert "1  decided alike on a state a moment away" in text
    assert "default/web  n1    n2      ImageLocality  n2 scores 310" in text


def test_nothing_different_is_said_so():
    report = filled(LAG)
    report.skip("the comparison fell behind")
    text = render(report.summary())
    assert "3 decisions judged" in text
    assert "every difference has a cause outside of the scheduler's choice" in text
    assert "1  the comparison fell behind" in text
    assert not report.summary().is_different


def test_no_decisions():
    assert render(Report().summary()) == "no decisions were judged"


def test_a_configuration_is_named_and_earlier_differences_are_put_down_to_it():
    known = msgspec.structs.replace(REAL, variants=frozenset([0]))
    report = filled(*[known] * LEAST_EXPLAINED)
    seen: list[Difference] = []
    report.observer = seen.append
    report.differ(known)
    summary = report.summary()
    assert summary.outcomes["configuration"] == LEAST_EXPLAINED + 1
    assert "decides as with ImageLocality disabled: 6 decisions, noticed after 7." in render(
        summary
    )
    assert [one.outcome for one in seen] == [Outcome.CONFIGURATION]
    assert summary.is_different


def test_a_difference_is_one_line():
    assert line(LAG) == ("default/api: live n2, shadow n1 (state_lag) before the bind of x/y")
    assert "(different) ImageLocality: n2 scores" in line(REAL)


def test_only_a_few_examples_unless_wide():
    summary = filled(*[REAL] * 9).summary()
    assert "(4 more: -o wide)" in render(summary)
    assert render(summary, wide=True).count("default/web") == 9


def test_the_report_for_programs():
    content = msgspec.json.decode(msgspec.json.encode(filled(REAL).summary()))
    assert content["outcomes"] == {"same_node": 1, "equal_score": 1, "different": 1}
    assert content["differences"][0]["outcome"] == "different"


@pytest.mark.real_time
async def test_metrics_are_served():
    collectors = [ShadowMetrics(ShadowLike(filled(REAL, LAG)))]  # type: ignore[arg-type]
    async with serving_metrics(collectors, lambda: True, "127.0.0.1", 0) as url:
        text = await asyncio.to_thread(lambda: _get(f"{url}/metrics"))
        assert await asyncio.to_thread(lambda: _get(f"{url}/healthz")) == "ok"
    assert "ksched_shadow_decisions_total 4.0" in text
    assert '{outcome="different",plugin="ImageLocality",profile="default-scheduler"} 1.0' in text
    assert '{outcome="state_lag",plugin="",profile="default-scheduler"} 1.0' in text
    assert "ksched_shadow_held_changes 3.0" in text


def _get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()
