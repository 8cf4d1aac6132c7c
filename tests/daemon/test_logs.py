"""Log lines as Kubernetes' tools expect them."""

from __future__ import annotations

import io
import json
import logging
import re
from datetime import datetime

import pytest

from ksched.daemon import logs


@pytest.fixture
def lines():
    """Configure logging into a buffer; afterwards everything is as it was."""
    root = logging.getLogger()
    touched = [root, logging.getLogger(logs.PACKAGE), logging.getLogger(logs.DAEMON)]
    before = [(logger, logger.level) for logger in touched]
    handlers = root.handlers[:]
    buffer = io.StringIO()

    def configure(verbosity=0, logging_format="text"):
        logs.configure(verbosity, logging_format, buffer)
        return lambda: buffer.getvalue().splitlines()

    yield configure
    root.handlers[:] = handlers
    for logger, level in before:
        logger.setLevel(level)


HEADER = r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ test_logs\.py:\d+\] "


@pytest.mark.parametrize(
    ("extra", "text"),
    [
        pytest.param({}, '"pod moved"', id="no fields"),
        pytest.param({"pod": "a/b"}, '"pod moved" pod="a/b"', id="text is quoted"),
        pytest.param({"attempts": 3}, '"pod moved" attempts=3', id="numbers are bare"),
        pytest.param({"gated": True}, '"pod moved" gated=true', id="booleans as Go prints them"),
        pytest.param({"err": 'a "b"\nc'}, r'"pod moved" err="a \"b\"\nc"', id="one line, whatever"),
        pytest.param({"err": ValueError("x")}, '"pod moved" err="x"', id="an exception as a field"),
        pytest.param({"a": 1, "b": 2}, '"pod moved" a=1 b=2', id="fields keep their order"),
    ],
)
def test_text_line_is_a_sentence_and_fields(lines, extra, text):
    read = lines(verbosity=2)

    logging.getLogger("ksched.scheduling.scheduler").info("pod moved", extra=extra)

    (line,) = read()
    assert re.fullmatch(HEADER + re.escape(text), line)


@pytest.mark.parametrize("text", [chr(code) for code in (*range(0x82), 0xE9, 0xD800)])
def test_every_character_is_shown_as_in_json(lines, text):
    read = lines()
    logging.getLogger("ksched").warning("x", extra={"text": f"a{text}b"})
    (line,) = read()
    shown = f"a{text}b".encode(errors="backslashreplace").decode()
    assert json.loads(line.partition("text=")[2]) == shown


def test_text_line_has_the_time_of_its_record(lines, monkeypatch):
    read = lines()
    moments = [1_700_000_000.000001, 1_700_000_000.999999, 1_700_000_001.5]
    for at in moments:
        monkeypatch.setattr("logging.time.time", lambda at=at: at)
        logging.getLogger("ksched").warning("x")
    seconds = [datetime.fromtimestamp(at).strftime("%m%d %H:%M:%S") for at in moments]
    micros = ["000001", "999999", "500000"]
    wanted = [f"{second}.{micro}" for second, micro in zip(seconds, micros, strict=True)]
    assert [line[1:21] for line in read()] == wanted


def test_text_line_begins_with_its_severity(lines):
    read = lines(verbosity=4)
    log = logging.getLogger("ksched.scheduling.scheduler")

    log.debug("a")
    log.info("a")
    log.warning("a")
    log.error("a")

    assert [line[0] for line in read()] == ["I", "I", "W", "E"]


def test_verbosity_changes_for_loggers_that_exist(lines):
    read = lines()
    log, other = logging.getLogger("ksched.queue.active"), logging.getLogger("aiohttp")
    for verbosity in (0, 2, 4, -1):
        logs.set_verbosity(verbosity)
        log.info("info")
        log.debug("debug")
        other.info("not ours")
    assert [line.partition("] ")[2] for line in read()] == ['"info"', '"info"', '"debug"']


def test_traceback_follows_the_line(lines):
    read = lines()
    try:
        raise RuntimeError("broken")
    except RuntimeError:
        logging.getLogger("ksched.daemon").exception("scheduler failed")

    first, *rest = read()
    assert first.endswith('"scheduler failed"')
    assert rest[-1] == "RuntimeError: broken"


def test_json_line_carries_the_fields_of_kubernetes(lines):
    read = lines(verbosity=2, logging_format="json")

    logging.getLogger("ksched.scheduling.scheduler").info("pod moved", extra={"pod": "a/b", "n": 2})

    (line,) = map(json.loads, read())
    assert line.pop("ts") > 1.6e12
    assert re.fullmatch(r"test_logs\.py:\d+", line.pop("caller"))
    assert line == {"level": "info", "msg": "pod moved", "pod": "a/b", "n": 2}


def test_json_field_does_not_replace_the_sentence(lines):
    read = lines(logging_format="json")

    logging.getLogger("ksched").warning("pod moved", extra={"ts": "x", "err": ValueError("y")})

    (line,) = map(json.loads, read())
    assert (line["msg"], line["ts_"], line["err"]) == ("pod moved", "x", "y")


@pytest.mark.parametrize(
    ("verbosity", "told"),
    [
        pytest.param(0, ["daemon info", "warning"], id="the daemon's life and what is wrong"),
        pytest.param(1, ["daemon info", "warning"], id="1 is as 0"),
        pytest.param(2, ["daemon info", "warning", "info"], id="and every decision"),
        pytest.param(
            4, ["daemon info", "daemon debug", "warning", "info", "debug"], id="and the reasons"
        ),
        pytest.param(
            10, ["daemon info", "daemon debug", "warning", "info", "debug"], id="and no more"
        ),
    ],
)
def test_verbosity_is_kube_schedulers(lines, verbosity, told):
    read = lines(verbosity)
    daemon, other = logging.getLogger(logs.DAEMON), logging.getLogger("ksched.queue")

    daemon.info("daemon info")
    daemon.debug("daemon debug")
    other.warning("warning")
    other.info("info")
    other.debug("debug")
    logging.getLogger("aiohttp").info("not ours")

    assert [line.split('"')[1] for line in read()] == told


@pytest.mark.parametrize("logging_format", ["text", "json"])
def test_secrets_in_foreign_text_are_not_logged(lines, logging_format):
    read = lines(verbosity=4, logging_format=logging_format)
    url = "https://me:hunter2@x/a?token=hunter2"
    try:
        raise ValueError(f"GET {url}: 403")
    except ValueError as error:
        logging.getLogger("ksched.x").exception(
            f"failed at {url}",  # noqa: G004
            extra={"text": url, "error": error, "deep": {"password": "hunter2", "urls": [url]}},
        )

    text = "\n".join(read())
    assert "ValueError" in text
    assert "REDACTED" in text
    assert "hunter2" not in text


@pytest.mark.parametrize("logging_format", ["text", "json"])
def test_half_a_character_does_not_cost_the_line(lines, logging_format):
    read = lines(logging_format=logging_format)

    logging.getLogger("ksched").warning("pod moved", extra={"err": "a\udc80"})

    (line,) = read()
    assert r"a\\udc80" in line
