#!/usr/bin/env python3
"""Build the sdist and the wheel, and check them outside of this tree.

A wheel made of the sdist must have the same files as the one made of the tree. Installed into an
environment with nothing but its dependencies, the command must read a configuration, and a
scheduler must bind a pod.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"

PROGRAM = """
import asyncio

import ksched
from ksched.testing import cluster, make_pod


async def main():
    async with cluster(nodes=1) as c:
        await c.create(make_pod("web"))
        await c.settle()
        assert c.bound("web") == "n1"


asyncio.run(main())
print(ksched.__version__)
"""


class ReleaseFailed(Exception):
    """A package is not as it must be."""


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """Run a command and return its output; raises ``ReleaseFailed`` with it."""
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False
    )
    if done.returncode:
        what = " ".join(str(part) for part in command)
        raise ReleaseFailed(f"{what}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def build(folder: Path) -> tuple[Path, Path]:
    """Return a new sdist and wheel."""
    shutil.rmtree(folder, ignore_errors=True)
    run(sys.executable, "-m", "hatchling", "build", "--directory", folder)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


def files_of(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def check_sdist(sdist: Path, wheel: Path, folder: Path) -> None:
    """The sdist is complete: it gives the same wheel."""
    options = ("--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--quiet")
    run(sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", folder, sdist)
    (rebuilt,) = folder.glob("*.whl")
    ours, theirs = files_of(wheel), files_of(rebuilt)
    if ours != theirs:
        names = {name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)}
        raise ReleaseFailed(f"wheels of tree and sdist differ in {', '.join(sorted(names))}")


def check_wheel(wheel: Path, folder: Path) -> str:
    """The wheel works by itself; returns its version."""
    if not any(name.endswith("/licenses/LICENSE") for name in files_of(wheel)):
        raise ReleaseFailed(f"{wheel.name}: no LICENSE")
    venv = folder / "venv"
    run(sys.executable, "-m", "venv", venv)
    pip = (venv / "bin/python", "-m", "pip", "--disable-pip-version-check", "--quiet")
    run(*pip, "install", "--constraint", LOCK, wheel)
    run(*pip, "check")
    run(venv / "bin/ksched", "check-config", ROOT / "config/default.yaml", cwd=folder)
    return run(venv / "bin/python", "-c", PROGRAM, cwd=folder).strip()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tools/release.py", description=__doc__)
    parser.add_argument("--to", type=Path, default=ROOT / "dist", metavar="FOLDER")
    options = parser.parse_args(arguments)
    try:
        sdist, wheel = build(options.to)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            check_sdist(sdist, wheel, folder)
            version = check_wheel(wheel, folder)
    except ReleaseFailed as problem:
        print(problem, file=sys.stderr)
        return 1
    print(f"ksched {version}: {sdist.name} and {wheel.name} in {options.to}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
