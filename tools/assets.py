#!/usr/bin/env python3
"""Fill the cache with the control plane's programs: etcd, kube-apiserver, kube-scheduler, kubectl.

What the environment already names (see lab/assets.py) is left alone, the rest is built
from the Go module in tools/assets. The last line on standard output is the folder to use as
KUBEBUILDER_ASSETS; everything else goes to standard error.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from lab.assets import (
    ETCD,
    ETCD_VERSION,
    KUBERNETES_VERSION,
    PROGRAMS,
    cache_folder,
    locate,
    variable,
)

GO_MODULE = Path(__file__).with_suffix("")
STAMP = "stamp.json"

# Without these the server calls itself v0.0.0-master and clients refuse features by version.
MAJOR, MINOR, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
LINKER_FLAGS = "-s -w " + " ".join(
    f"-X k8s.io/component-base/version.{name}={value}"
    for name, value in {
        "gitVersion": KUBERNETES_VERSION,
        "gitMajor": MAJOR,
        "gitMinor": MINOR,
        "gitTreeState": "clean",
    }.items()
)


def package(program: str) -> str:
    """The Go package that a program is built from."""
    return "./etcd" if program == ETCD else f"k8s.io/kubernetes/cmd/{program}"


def recipe(program: str) -> str:
    """What a cached program was made from; another recipe makes it again."""
    version = ETCD_VERSION if program == ETCD else KUBERNETES_VERSION
    return f"{package(program)}@{version} {LINKER_FLAGS}"


def build(programs: list[str], folder: Path) -> None:
    command = ["go", "build", "-mod=readonly", "-trimpath", f"-ldflags={LINKER_FLAGS}"]
    subprocess.run(
        [*command, "-o", f"{folder}{os.sep}", *map(package, programs)],
        cwd=GO_MODULE,
        # The programs must not depend on the C library of the machine that built them.
        env={**os.environ, "CGO_ENABLED": "0"},
        check=True,
        stdout=sys.stderr,
    )


def publish(program: str, source: Path, folder: Path) -> None:
    """Move a finished program into the cache, then say in the stamp what it is."""
    os.replace(source / program, folder / program)
    made = {**read_stamp(folder), program: recipe(program)}
    (source / STAMP).write_text(json.dumps(made, indent=2) + "\n")
    os.replace(source / STAMP, folder / STAMP)


def read_stamp(folder: Path) -> dict[str, str]:
    try:
        stamp: dict[str, str] = json.loads((folder / STAMP).read_text())
    except FileNotFoundError:
        return {}
    return stamp


def wanted(folder: Path) -> list[str]:
    """The programs that neither the environment names nor the cache holds as made today."""
    stamp = read_stamp(folder)
    missing = []
    for program in PROGRAMS:
        path = locate(program)
        stale = path == folder / program and stamp.get(program) != recipe(program)
        if path is None or stale:
            missing.append(program)
    return missing


def fill(folder: Path) -> int:
    missing = wanted(folder)
    if not missing:
        return 0
    if not shutil.which("go"):
        variables = " ".join(variable(program) for program in missing)
        say(
            f"{', '.join(missing)} missing and there is no Go to build them: install Go, or set "
            f"KUBEBUILDER_ASSETS to a folder that holds them, or {variables}"
        )
        return 1
    with tempfile.TemporaryDirectory(dir=folder, prefix=".new-") as scratch:
        say(f"building {', '.join(missing)}: some minutes, once")
        build(missing, Path(scratch))
        for program in missing:
            publish(program, Path(scratch), folder)
    return 0


def say(text: str) -> None:
    print(f"assets: {text}", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--path", action="store_true", help="only print the folder")
    arguments = parser.parse_args()

    folder = cache_folder()
    if not arguments.path:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as lock:
            # A second run waits for the first and then finds its work done.
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                code = fill(folder)
            except subprocess.CalledProcessError as error:
                say(f"{error.cmd[0]} failed with exit code {error.returncode}")
                code = 1
        if code:
            return code
        for program in PROGRAMS:
            say(f"{program} is {locate(program)}")
    print(os.environ.get("KUBEBUILDER_ASSETS") or folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
