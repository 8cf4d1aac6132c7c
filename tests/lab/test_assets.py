from __future__ import annotations

from pathlib import Path

import pytest

from ksched.errors import KschedError
from lab.assets import (
    KUBERNETES_VERSION,
    PROGRAMS,
    Assets,
    AssetsMissing,
    cache_folder,
    locate,
    variable,
)


def make_program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o755)
    return path


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_program_named_by_its_variable_wins(tmp_path: Path, environ: dict[str, str]) -> None:
    named = make_program(tmp_path / "elsewhere" / "my-etcd")
    make_program(tmp_path / "envtest" / "etcd")
    environ |= {"TEST_ASSET_ETCD": str(named), "KUBEBUILDER_ASSETS": str(tmp_path / "envtest")}

    assert locate("etcd", environ) == named


def test_folder_of_envtest_is_completed_from_the_cache(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    apiserver = make_program(tmp_path / "envtest" / "kube-apiserver")
    make_program(cache_folder(environ) / "kube-apiserver")
    scheduler = make_program(cache_folder(environ) / "kube-scheduler")
    environ["KUBEBUILDER_ASSETS"] = str(tmp_path / "envtest")

    assert locate("kube-apiserver", environ) == apiserver
    assert locate("kube-scheduler", environ) == scheduler


def test_program_that_is_nowhere_is_not_found(environ: dict[str, str]) -> None:
    assert locate("kubectl", environ) is None


def test_file_that_cannot_be_run_is_not_a_program(environ: dict[str, str]) -> None:
    make_program(cache_folder(environ) / "etcd").chmod(0o644)

    assert locate("etcd", environ) is None


def test_misspelt_variable_is_an_error_and_not_another_program(environ: dict[str, str]) -> None:
    make_program(cache_folder(environ) / "kubectl")
    environ["TEST_ASSET_KUBECTL"] = "/no/such/file"

    with pytest.raises(KschedError, match="TEST_ASSET_KUBECTL: /no/such/file is not"):
        locate("kubectl", environ)


def test_cache_is_under_the_home_folder_by_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    assert cache_folder({}) == tmp_path / ".cache" / "ksched" / "assets" / KUBERNETES_VERSION


def test_missing_programs_are_all_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    for program in PROGRAMS:
        monkeypatch.delenv(variable(program), raising=False)
    make_program(cache_folder() / "kubectl")

    with pytest.raises(AssetsMissing) as missing:
        Assets.find()

    assert missing.value.programs == ("etcd", "kube-apiserver", "kube-scheduler")
    assert "make assets" in str(missing.value)
