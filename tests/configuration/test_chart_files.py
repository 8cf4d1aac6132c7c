"""The files of the Helm chart; what helm makes of them is in tests/real/test_chart.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from ksched import __version__

CHART = Path(__file__).parents[2] / "config" / "chart"


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CHART / name).read_text())
    return found


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = read("Chart.yaml")
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_every_value_is_in_the_schema_and_the_other_way_round() -> None:
    values, schema = read("values.yaml"), json.loads((CHART / "values.schema.json").read_text())
    assert values.keys() == schema["properties"].keys() - {"global"}
    assert values["image"].keys() == schema["properties"]["image"]["properties"].keys()


def test_other_values_files_name_only_values() -> None:
    values = read("values.yaml")
    for name in ("values-instead.yaml", "values-three-replicas.yaml"):
        assert read(name).keys() < values.keys()


def test_the_files_of_the_manifests_are_the_manifests_of_kustomize() -> None:
    files = list((CHART / "files").iterdir())
    assert len(files) == 7
    assert all(file.is_symlink() and file.exists() for file in files)
    used = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    assert all(f'"files/{file.name}"' in used for file in files)
