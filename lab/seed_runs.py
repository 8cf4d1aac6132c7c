"""Many seeds on all cores: what happened in them and what went wrong."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Protocol

from ksched.testing.virtual_time import run
from lab.seeds import asked_seeds

Outcome = tuple[Counter[str], str]
"""What happened in a seed's history, and what was violated in it."""


class History(Protocol):
    """Something that happens and is checked while it does."""

    async def live(self) -> Counter[str]:
        """Return what happened; raises ``AssertionError`` at a violation."""
        ...


def outcome(history: History) -> Outcome:
    """Live through a history in virtual time."""
    logging.disable(logging.ERROR)
    try:
        return run(history.live()), ""
    except Exception:  # noqa: BLE001 - shown
        return Counter(), f"{history}\n{traceback.format_exc(limit=-3)}"


def run_seeds(
    prog: str,
    description: str | None,
    outcome_of: Callable[[int], Outcome],
    arguments: Sequence[str] | None = None,
    *,
    expected: Collection[str] = (),
) -> int:
    """Run the seeds that the command line names; print every violation and return 1 if any.

    Which of the ``expected`` happened in none of them is printed too.
    """
    parser = argparse.ArgumentParser(
        prog=prog, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default="100", help="200, 17,40 or 1000-1049; default 100")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args(arguments)
    seeds = asked_seeds(0, {"SEEDS": options.seeds})
    happened: Counter[str] = Counter()
    problems = 0
    with ProcessPoolExecutor(options.processes, initializer=_collect_rarely) as pool:
        for number, (events, problem) in enumerate(pool.map(outcome_of, seeds, chunksize=4), 1):
            happened += events
            if problem:
                problems += 1
                print(problem, flush=True)
            if number % 100 == 0:
                print(f"{number} histories, {problems} with a violation", flush=True)
    print(f"{len(seeds)} histories, {problems} with a violation; {dict(happened)}")
    if never := sorted(set(expected) - happened.keys()):
        print(f"never: {', '.join(never)}")
    return 1 if problems else 0


def _collect_rarely() -> None:
    """A history leaves little garbage in cycles, and the modules are none."""
    gc.freeze()
    gc.set_threshold(200_000, 20, 100)
