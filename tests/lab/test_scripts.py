from __future__ import annotations

from pathlib import Path

import pytest

from lab.scripts import Command, parse, render, run_script

SCRIPT = """\
# Counting
# is simple.
say one times=2
----
one
one

say two
----
two
"""


def say(command: Command) -> str:
    return "\n".join(command.args * int(command.options.get("times", "1")))


async def say_later(command: Command) -> str:
    return say(command)


def written(path: Path, text: str) -> Path:
    path = path / "script.txt"
    path.write_text(text)
    return path


def test_parsed_script_is_rendered_as_it_was() -> None:
    steps = parse(SCRIPT)
    assert [step.command for step in steps] == ["say one times=2", "say two"]
    assert steps[0].comment == ["# Counting", "# is simple."]
    assert steps[0].output == ["one", "one"]
    assert render(steps) == SCRIPT


def test_command_line_is_split_like_a_shell() -> None:
    command = Command.parse("say 'two words' key=value empty=")
    assert (command.name, command.args) == ("say", ["two words"])
    assert command.options == {"key": "value", "empty": ""}


@pytest.mark.parametrize("interpret", [say, say_later], ids=["sync", "async"])
async def test_script_that_prints_what_it_says_passes(tmp_path: Path, interpret: object) -> None:
    await run_script(written(tmp_path, SCRIPT), interpret)  # type: ignore[arg-type]


async def test_difference_is_shown_and_the_file_stays(tmp_path: Path) -> None:
    path = written(tmp_path, SCRIPT.replace("----\ntwo", "----\nthree"))
    before = path.read_text()
    with pytest.raises(AssertionError) as raised:
        await run_script(path, say)
    assert "-three\n+two" in str(raised.value)
    assert path.read_text() == before


async def test_rewrite_records_what_is_printed(tmp_path: Path) -> None:
    bare = "# Counting\n# is simple.\nsay one times=2\n\n\nsay two\n----\nold"
    path = written(tmp_path, bare)
    await run_script(path, say, rewrite=True)
    assert path.read_text() == SCRIPT


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("say a\nsay b\n", "line 1: wanted ----", id="no separator"),
        pytest.param("say a\n----\n# late\n", "line 1: comments stand above", id="late comment"),
        pytest.param("say a\n----\na\n\n# alone\n", "line 5: comments stand", id="comment alone"),
    ],
)
def test_script_out_of_shape_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse(text)
