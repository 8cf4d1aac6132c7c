"""Many seeds on several processes."""

from __future__ import annotations

from collections import Counter

import pytest

from lab.seed_runs import Outcome, run_seeds


def odd_seeds_break(seed: int) -> Outcome:
    return Counter(lived=1), f"seed {seed}: broken" if seed % 2 else ""


@pytest.mark.parametrize(("seeds", "code"), [("2,4", 0), ("1-3", 1)])
def test_every_violation_is_printed_and_counted(
    capsys: pytest.CaptureFixture[str], seeds: str, code: int
) -> None:
    flags = [f"--seeds={seeds}", "--processes=1"]

    assert run_seeds("prog", None, odd_seeds_break, flags) == code

    printed = capsys.readouterr().out
    assert printed.count("broken") == 2 * code
    assert f"{'lived'!r}: {2 + code}" in printed
