"""Parts of timestamps and durations."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ksched.cel import static_types as types
from ksched.cel.declarations import Library
from ksched.cel.errors import EvaluationError
from ksched.cel.values import Duration, Timestamp

LIBRARY = Library()
_SECOND = 10**9
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _zone(name: str) -> tzinfo:
    hours, colon, minutes = name.partition(":")
    if not colon:
        if name in ("", "UTC"):
            return UTC
        try:
            return ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise EvaluationError(f"unknown time zone {name}") from None
    for part in (hours, minutes):
        if not part.lstrip("+-").isdecimal() or len(part) > 4:
            message = f'strconv.Atoi: parsing "{part}": invalid syntax'
            raise EvaluationError(message)
    offset = int(hours) * 60 + (-int(minutes) if name[0] == "-" else int(minutes))
    if abs(offset) >= 24 * 60:
        raise EvaluationError(f"time zone offset {name} is not less than a day")
    return timezone(timedelta(minutes=offset))


def _local(moment: Timestamp, zone: str) -> datetime:
    try:
        return (_EPOCH + timedelta(seconds=moment.nanos // _SECOND)).astimezone(_zone(zone))
    except OverflowError:
        raise EvaluationError("timestamp overflow") from None


_PARTS: dict[str, tuple[str, Callable[[datetime, Timestamp], int]]] = {
    "getFullYear": ("timestamp_to_year", lambda local, _: local.year),
    "getMonth": ("timestamp_to_month", lambda local, _: local.month - 1),
    "getDayOfYear": ("timestamp_to_day_of_year", lambda local, _: local.timetuple().tm_yday - 1),
    "getDayOfMonth": ("timestamp_to_day_of_month", lambda local, _: local.day - 1),
    "getDate": ("timestamp_to_day_of_month_1_based", lambda local, _: local.day),
    "getDayOfWeek": ("timestamp_to_day_of_week", lambda local, _: local.isoweekday() % 7),
    "getHours": ("timestamp_to_hours", lambda local, _: local.hour),
    "getMinutes": ("timestamp_to_minutes", lambda local, _: local.minute),
    "getSeconds": ("timestamp_to_seconds", lambda local, _: local.second),
    "getMilliseconds": (
        "timestamp_to_milliseconds",
        lambda _, moment: moment.nanos % _SECOND // 10**6,
    ),
}


def _declare(name: str, overload: str, part: Callable[[datetime, Timestamp], int]) -> None:
    def in_utc(moment: Timestamp) -> int:
        return part(_local(moment, ""), moment)

    def in_zone(moment: Timestamp, zone: str) -> int:
        return part(_local(moment, zone), moment)

    stamp, zone = types.TIMESTAMP, types.STRING
    LIBRARY.overload(name, overload, (stamp,), types.INT, in_utc, member=True)
    LIBRARY.overload(name, f"{overload}_with_tz", (stamp, zone), types.INT, in_zone, member=True)


for _name, (_overload, _part) in _PARTS.items():
    _declare(_name, _overload, _part)


def _truncated(nanos: int, unit: int) -> int:
    return nanos // unit if nanos >= 0 else -(-nanos // unit)


def _declare_span(name: str, overload: str, unit: int) -> None:
    def whole(span: Duration) -> int:
        return _truncated(span.nanos, unit)

    LIBRARY.overload(name, overload, (types.DURATION,), types.INT, whole, member=True)


_declare_span("getHours", "duration_to_hours", 3600 * _SECOND)
_declare_span("getMinutes", "duration_to_minutes", 60 * _SECOND)
_declare_span("getSeconds", "duration_to_seconds", _SECOND)
_declare_span("getMilliseconds", "duration_to_milliseconds", 10**6)
