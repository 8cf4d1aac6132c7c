#!/usr/bin/env python3
"""Fill the cache with the control plane's programs: etcd, kube-apiserver, kube-scheduler, kubectl.

With --conformance also with kube-controller-manager and Kubernetes' own tests of scheduling, with
--helm also with helm.

What the environment already names (see lab/assets.py) is left alone, the rest is built
from the Go module in tools/assets. The last line on standard output is the folder to use as
KUBEBUILDER_ASSETS; everything else goes to standard error.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lab.assets import (
    CONFORMANCE_PROGRAMS,
    CONFORMANCE_TEST,
    ETCD,
    ETCD_VERSION,
    HELM,
    HELM_VERSION,
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
    own = {ETCD: "./etcd", CONFORMANCE_TEST: "./conformance", HELM: "helm.sh/helm/v3/cmd/helm"}
    return own.get(program, f"k8s.io/kubernetes/cmd/{program}")


def recipe(program: str) -> str:
    """What a cached program was made from; another recipe makes it again."""
    version = {ETCD: ETCD_VERSION, HELM: HELM_VERSION}.get(program, KUBERNETES_VERSION)
    if program == CONFORMANCE_TEST:
        source = (GO_MODULE / "conformance" / "suite_test.go").read_bytes()
        version += f" {hashlib.sha256(source).hexdigest()[:12]}"
    return f"{package(program)}@{version} {LINKER_FLAGS}"


def build(programs: list[str], folder: Path) -> None:
    built = [package(one) for one in programs if one not in (CONFORMANCE_TEST, HELM)]
    if built:
        _go("build", "-mod=readonly", "-o", f"{folder}{os.sep}", *built)
    if CONFORMANCE_TEST in programs:
        out = str(folder / CONFORMANCE_TEST)
        _go("test", "-c", "-vet=off", "-mod=readonly", "-o", out, package(CONFORMANCE_TEST))
    if HELM in programs:
        _go("install", f"{package(HELM)}@{HELM_VERSION}", GOBIN=str(folder))


def _go(command: str, *arguments: str, **environ: str) -> None:
    subprocess.run(
        ["go", command, "-trimpath", f"-ldflags={LINKER_FLAGS}", *arguments],
        cwd=GO_MODULE,
        # The programs must not depend on the C library of the machine that built them.
        env={**os.environ, "CGO_ENABLED": "0", **environ},
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


def wanted(folder: Path, programs: Sequence[str]) -> list[str]:
    """The programs that neither the environment names nor the cache holds as made today."""
    stamp = read_stamp(folder)
    missing = []
    for program in programs:
        path = locate(program)
        stale = path == folder / program and stamp.get(program) != recipe(program)
        if path is None or stale:
            missing.append(program)
    return missing


def fill(folder: Path, programs: Sequence[str]) -> int:
    missing = wanted(folder, programs)
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
    parser.add_argument("--conformance", action="store_true", help="also what its tests need")
    parser.add_argument("--helm", action="store_true", help="also helm")
    arguments = parser.parse_args()

    programs = [
        *PROGRAMS,
        *(CONFORMANCE_PROGRAMS if arguments.conformance else ()),
        *([HELM] if arguments.helm else []),
    ]
    folder = cache_folder()
    if not arguments.path:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as lock:
            # A second run waits for the first and then finds its work done.
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                code = fill(folder, programs)
            except subprocess.CalledProcessError as error:
                say(f"{error.cmd[0]} failed with exit code {error.returncode}")
                code = 1
        if code:
            return code
        for program in programs:
            say(f"{program} is {locate(program)}")
    print(os.environ.get("KUBEBUILDER_ASSETS") or folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
