#!/usr/bin/env python3
"""Build the container image of the Containerfile with podman or buildah.

make image                          on python:3.11-slim, from a registry of images
make image BASE=debian              on a base made of Debian's packages by mmdebstrap
make image FLAGS="--volume …"       more flags for the build, such as pip's configuration
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RELEASE = "bookworm"
PACKAGES = "python3,python3-venv,ca-certificates"
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/man/*", "/usr/share/info/*")
DEBIAN_BASE = "localhost/ksched-base"


def run(*command: str | Path) -> str:
    return subprocess.run(
        [str(part) for part in command], check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True
    ).stdout


def debian_base(program: str) -> str:
    """Make an image with Debian's Python and nothing that a scheduler does not need."""
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "base.tar"
        without = [f"--dpkgopt=path-exclude={path}" for path in LEFT_OUT]
        options = ("--quiet", "--variant=minbase", f"--include={PACKAGES}")
        run("mmdebstrap", *options, *without, RELEASE, archive)
        if Path(program).name == "podman":
            run(program, "import", "--quiet", archive, DEBIAN_BASE)
        else:
            container = run(program, "from", "scratch").strip()
            run(program, "add", "--quiet", container, archive, "/")
            run(program, "commit", "--quiet", "--rm", container, DEBIAN_BASE)
    return DEBIAN_BASE


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tools/image.py", description=__doc__)
    parser.add_argument("--base", default="", help="an image, or debian")
    parser.add_argument("--tag", default="ksched:0.1.0")
    parser.add_argument("--flags", default="", help="more flags for the build")
    options = parser.parse_args(arguments)
    program = shutil.which("podman") or shutil.which("buildah")
    if program is None:
        print("image: neither podman nor buildah is installed", file=sys.stderr)
        return 2
    if options.base == "debian" and shutil.which("mmdebstrap") is None:
        print("image: BASE=debian needs mmdebstrap", file=sys.stderr)
        return 2
    try:
        base = debian_base(program) if options.base == "debian" else options.base
        chosen = ("--build-arg", f"BASE={base}") if base else ()
        # Equal inputs give an equal image: no time of the build is in it.
        run(
            program, "build", "--timestamp", "0", *chosen, *shlex.split(options.flags),
            "--tag", options.tag, "--file", "Containerfile", ".",
        )  # fmt: skip
    except subprocess.CalledProcessError as failed:
        print(
            f"image: {shlex.join(failed.cmd[:3])} …: exit code {failed.returncode}", file=sys.stderr
        )
        return 1
    print(f"{options.tag} is built; {Path(program).name} push {options.tag} REGISTRY/…")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
