from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from lab.assets import ETCD_VERSION, KUBERNETES_VERSION, PROGRAMS

ROOT = Path(__file__).parents[2]


def run_assets(cache: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the script where neither Go nor the environment offers anything."""
    return subprocess.run(
        [sys.executable, ROOT / "tools" / "assets.py", *arguments],
        env={"PATH": os.devnull, "XDG_CACHE_HOME": str(cache), **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_without_go_one_line_says_how_to_get_the_programs(tmp_path: Path) -> None:
    done = run_assets(tmp_path)

    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "install Go" in line
    assert "KUBEBUILDER_ASSETS" in line
    assert "TEST_ASSET_KUBE_APISERVER" in line


def test_programs_named_by_the_environment_are_left_alone(tmp_path: Path) -> None:
    for program in PROGRAMS:
        (tmp_path / program).touch(mode=0o755)

    done = run_assets(tmp_path / "cache", KUBEBUILDER_ASSETS=str(tmp_path))

    assert (done.returncode, done.stdout) == (0, f"{tmp_path}\n")
    assert not list((tmp_path / "cache").rglob("etcd"))


def test_path_prints_only_the_cache_folder(tmp_path: Path) -> None:
    done = run_assets(tmp_path, "--path")

    assert done.stdout == f"{tmp_path}/ksched/assets/{KUBERNETES_VERSION}\n"
    assert not list(tmp_path.iterdir())


def test_go_module_pins_the_version_the_finder_looks_for() -> None:
    text = (ROOT / "tools" / "assets" / "go.mod").read_text()
    staging = KUBERNETES_VERSION.replace("v1.", "v0.", 1)
    replaced = [line.split()[-1] for line in text.splitlines() if "=>" in line]

    assert f"\tk8s.io/kubernetes {KUBERNETES_VERSION}\n" in text
    assert f"\tgo.etcd.io/etcd/server/v3 {ETCD_VERSION}\n" in text
    assert set(replaced) == {staging}
