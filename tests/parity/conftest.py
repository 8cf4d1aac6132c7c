"""One table for all parity suites of a run, at its end."""

from __future__ import annotations

import pytest

from lab.parity.tally import Tally

TALLY = pytest.StashKey[Tally]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[TALLY] = Tally()


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Tally:
    """What the decisions of this run hung on; every suite adds its own."""
    return request.config.stash[TALLY]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    tally = config.stash[TALLY]
    if tally.decisions:
        terminalreporter.section("parity with kube-scheduler")
        for line in tally.table():
            terminalreporter.line(line)
