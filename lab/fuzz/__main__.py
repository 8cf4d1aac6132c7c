"""python -m lab.fuzz: hostile objects from new seeds until a number was admitted or one bites."""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

import msgspec

from lab.fuzz.episode import Episode

MAX_STALL_SECONDS = 0.1
LARGE_EVERY = 25
"""Every so many episodes have many nodes."""


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.fuzz", description=__doc__)
    parser.add_argument("--objects", type=int, default=20_000, help="objects to be admitted")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="the first episode")
    parser.add_argument("--steps", type=int, default=40, help="steps of an episode")
    parser.add_argument("--nodes", type=int, default=5000, help="nodes of a large episode")
    parser.add_argument("--episode", type=int, help="only this one, again")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first find")
    parser.add_argument("--out", type=Path, help="where the objects of a find are written")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    totals: Counter[str] = Counter()
    finds = 0
    seed = options.seed if options.episode is None else options.episode
    worst, began = (0.0, ""), time.monotonic()
    while True:
        large = seed % LARGE_EVERY == 0
        episode = Episode(seed, options.steps, options.nodes if large else 0)
        problem = attempt(episode)
        totals += episode.counts
        worst = max(worst, episode.meter.worst)
        if problem:
            finds += 1
            report(episode, problem, options.out)
        done = totals["admitted"] + totals["changed"] >= options.objects
        if done or options.episode is not None or (problem and not options.keep_going):
            break
        seed += 1
    seconds = time.monotonic() - began
    print(
        f"seeds {options.seed}-{seed}: {totals['admitted']} objects admitted, "
        f"{totals['changed']} changed, {totals['refused']} refused, {totals['compared']} decisions "
        f"compared, longest step {worst[0] * 1000:.0f} ms ({worst[1]}), {finds} finds, "
        f"{seconds:.0f} s"
    )
    return 1 if finds else 0


def attempt(episode: Episode) -> str:
    """Run an episode; returns what went wrong."""
    try:
        episode.run()
    except BaseException as problem:  # whatever ends the scheduler is a find
        if isinstance(problem, KeyboardInterrupt):
            raise
        return innermost(problem)
    seconds, task = episode.meter.worst
    if seconds > MAX_STALL_SECONDS:
        return f"a step of {task!r} took {seconds * 1000:.0f} ms"
    return ""


def innermost(problem: BaseException) -> str:
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    frames = traceback.extract_tb(problem.__traceback__)[-3:]
    where = ", ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames)
    return f"{type(problem).__name__}: {problem} ({where})"


def report(episode: Episode, problem: str, out: Path | None) -> None:
    print(f"seed {episode.seed}: {problem[:2000]}", flush=True)
    if episode.history:
        newest = msgspec.json.encode(episode.history[-1])
        text = newest[:1000].decode(errors="replace")
        print(f"  newest object ({len(newest)} bytes): {text}")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        target = out / f"fuzz-{episode.seed}.json"
        target.write_bytes(msgspec.json.encode(episode.history))
        print(f"  all objects of the episode: {target}")
    print(f"  again: python -m lab.fuzz --episode {episode.seed} --steps {episode.steps}")


if __name__ == "__main__":
    logging.getLogger("ksched").propagate = False  # finds are reported below, the rest is noise
    sys.exit(main(sys.argv[1:]))
