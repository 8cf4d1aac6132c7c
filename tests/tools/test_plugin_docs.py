"""docs/plugins says what the plugins say of themselves."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from ksched.framework.plugins.in_tree import IN_TREE

SCRIPT = Path(__file__).parents[2] / "tools" / "plugin_docs.py"


@pytest.fixture(scope="module")
def docs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("plugin_docs", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_are_up_to_date(docs: ModuleType) -> None:
    assert docs.problems() == []


def test_every_plugin_has_a_page_that_tells_what_it_does(docs: ModuleType) -> None:
    pages = docs.pages()
    assert pages.keys() == {"README.md", *(f"{name}.md" for name in IN_TREE)}
    for name in IN_TREE:
        assert "| extension points |" in pages[f"{name}.md"]
        assert len(pages[f"{name}.md"].partition("| | |")[0]) > 150, name


def test_a_page_that_is_old_missing_or_left_over_is_named(
    docs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docs, "FOLDER", tmp_path)
    monkeypatch.setattr("sys.argv", ["plugin_docs.py"])
    (tmp_path / "Gone.md").write_text("left over")
    assert docs.main() == 0
    assert docs.problems() == []
    (tmp_path / "NodeName.md").write_text("old")
    (tmp_path / "NodePorts.md").unlink()
    (tmp_path / "Other.md").touch()
    found = ["NodeName", "NodePorts", "Other"]
    assert docs.problems() == [f"docs/plugins/{name}.md: run make docs" for name in found]


def test_reasons_and_arguments_are_on_the_page(docs: ModuleType) -> None:
    page = docs.pages()["VolumeBinding.md"]
    assert "node(s) didn't match PersistentVolume's node affinity" in page
    assert "| `bindTimeoutSeconds` | `600` |" in page
