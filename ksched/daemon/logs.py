"""Log lines as Kubernetes writes them: klog's text, or one JSON object a line.

A line is a constant sentence and fields, so that one grep finds all of a kind::

    log.info("pod moved", extra={"pod": "default/web-0", "target": "backoff"})

    I1116 02:09:01.123456   12345 scheduler.py:123] "pod moved" pod="default/web-0" target="backoff"

Does not belong here: what is logged. Secrets never are: no line contains a token, a key or a
header, and text from URLs and exceptions of other code is redacted.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, TextIO

import msgspec

from ksched.redaction import redact, redact_text

PACKAGE: Final = "ksched"
DAEMON: Final = "ksched.daemon"

_SEVERITIES: Final = {"DEBUG": "I", "INFO": "I", "WARNING": "W", "ERROR": "E", "CRITICAL": "F"}
_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}
_encode = msgspec.json.Encoder(enc_hook=lambda value: redact_text(str(value))).encode


def configure(
    verbosity: int = 0, logging_format: str = "text", stream: TextIO | None = None
) -> None:
    """Write the process's logs to ``stream`` (stderr), at kube-scheduler's ``-v`` verbosity.

    Warnings, errors and the daemon's lifecycle are always logged; from 2 on also every decision,
    from 4 on the reasons.
    """
    # Not shown in any line, and looked up for every one.
    logging.logThreads = logging.logMultiprocessing = False
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if logging_format == "json" else KlogFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    set_verbosity(verbosity)


def set_verbosity(verbosity: int) -> None:
    """Log more or less from now on."""
    level = logging.WARNING
    if verbosity >= 4:
        level = logging.DEBUG
    elif verbosity >= 2:
        level = logging.INFO
    logging.getLogger(PACKAGE).setLevel(level)
    logging.getLogger(DAEMON).setLevel(min(level, logging.INFO))


def fields_of(record: logging.LogRecord) -> Mapping[str, Any]:
    """Return what the caller passed as ``extra``."""
    return {key: value for key, value in record.__dict__.items() if key not in _STANDARD}


class KlogFormatter(logging.Formatter):
    """klog's text format: severity, local time, process, location, then message and fields."""

    _second = -1
    _second_shown = ""

    def format(self, record: logging.LogRecord) -> str:
        at = self._local_time(record.created)
        severity = _SEVERITIES.get(record.levelname, "I")
        head = f"{severity}{at} {record.process:>7} {record.filename}:{record.lineno}] "
        fields = "".join(f" {key}={_shown(value)}" for key, value in fields_of(record).items())
        line = f"{head}{_shown(record.getMessage())}{fields}"
        if record.exc_info:
            line = f"{line}\n{redact_text(self.formatException(record.exc_info))}"
        if record.stack_info:
            line = f"{line}\n{redact_text(record.stack_info)}"
        return line

    def _local_time(self, created: float) -> str:
        second = int(created)
        if second != self._second:
            self._second_shown = datetime.fromtimestamp(second).strftime("%m%d %H:%M:%S")
            self._second = second
        return f"{self._second_shown}.{min(round((created - second) * 1e6), 999_999):06d}"


class JsonFormatter(logging.Formatter):
    """Kubernetes' JSON: ``ts`` in milliseconds, ``caller``, ``msg``, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        content: dict[str, Any] = {
            "ts": round(record.created * 1000.0, 3),
            "level": record.levelname.lower(),
            "caller": f"{record.filename}:{record.lineno}",
            "msg": redact_text(record.getMessage()),
        }
        for key, value in fields_of(record).items():
            content[f"{key}_" if key in content else key] = redact(value)
        if record.exc_info:
            content["stacktrace"] = redact_text(self.formatException(record.exc_info))
        elif record.stack_info:
            content["stacktrace"] = redact_text(record.stack_info)
        try:
            return _encode(content).decode()
        except UnicodeEncodeError:
            return _encode({key: _sendable(value) for key, value in content.items()}).decode()


def _shown(value: Any) -> str:
    """Format numbers bare, everything else quoted on one line."""
    if isinstance(value, bool | int | float):
        return str(value).lower()
    text = redact_text(value if isinstance(value, str) else str(redact(value)))
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return _encode(_sendable(text)).decode()


def _sendable(value: Any) -> Any:
    """Replace lone surrogates, as in file names, which cannot be encoded."""
    if not isinstance(value, str) or value.isascii():
        return value
    return value.encode(errors="backslashreplace").decode()
