"""What is given to users is complete and works without this tree."""

from __future__ import annotations

import tomllib
import zipfile
from pathlib import Path

import pytest

from tools.release import LOCK, ROOT, ReleaseFailed, check_sdist, check_wheel, main


def test_locked_versions_are_those_that_the_project_allows() -> None:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    locked = dict(line.split("==") for line in LOCK.read_text().splitlines())
    versions = {canonicalize_name(name): version for name, version in locked.items()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for text in (*project["dependencies"], *project["optional-dependencies"]["test"]):
        wanted = Requirement(text)
        assert versions[canonicalize_name(wanted.name)] in wanted.specifier, text


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_release_installs_and_schedules(tmp_path: Path, capsys) -> None:
    assert main(["--to", str(tmp_path / "dist")]) == 0, capsys.readouterr().err
    sdist, wheel = sorted((tmp_path / "dist").iterdir(), key=lambda path: path.suffix)
    assert capsys.readouterr().out.startswith("ksched 0.")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert not [name for name in names if not name.startswith(("ksched/", "ksched-"))]
    _without(wheel, tmp_path / wheel.name, "licenses/LICENSE")
    with pytest.raises(ReleaseFailed, match="no LICENSE"):
        check_wheel(tmp_path / wheel.name, tmp_path)
    _without(wheel, tmp_path / wheel.name, "ksched/queue/scheduling_queue.py")
    with pytest.raises(ReleaseFailed, match=r"differ in ksched/queue/scheduling_queue\.py"):
        check_sdist(sdist, tmp_path / wheel.name, tmp_path / "rebuilt")


def _without(wheel: Path, copy: Path, ending: str) -> None:
    with zipfile.ZipFile(wheel) as archive, zipfile.ZipFile(copy, "w") as smaller:
        for name in archive.namelist():
            if not name.endswith(ending):
                smaller.writestr(name, archive.read(name))
