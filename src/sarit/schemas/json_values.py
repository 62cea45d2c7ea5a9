"""JSON documents to values of columns, one at a time, as Spark's own reader takes them.

A member that is not there is null, one that no column wants is ignored, of two with one name the last counts.  A value
that is not of its column's type is null, and makes the document malformed; its other members keep their values.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import json
import re
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa

from sarit.core.bounded_json import MAX_JSON_TOKENS, check_tokens
from sarit.core.errors import Invalid
from sarit.schemas.column_types import check_columns, sql_name
from sarit.schemas.limits import MAX_JSON_TEXT_LEVELS

if TYPE_CHECKING:
    from collections.abc import Callable

_FLOATS: Final = {
    "NaN": "nan", "Infinity": "inf", "+Infinity": "inf", "+INF": "inf", "-Infinity": "-inf", "-INF": "-inf",
}  # fmt: skip
_DECIMAL: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_DATE: Final = re.compile(r"\s*(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?\s*", re.ASCII)
_TIME: Final = re.compile(
    r"\s*(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?\s?(\S.*?)?)?)?)?\s*",
    re.ASCII,
)
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?", re.ASCII)
_EPOCH: Final = datetime.datetime(1970, 1, 1)
_EPOCH_DAY: Final = _EPOCH.toordinal()
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
# Python has no year 0.  The calendar of the year 400 is the same.
_LIKE_YEAR_0: Final = 400
_DAYS_OF_400_YEARS: Final = 146_097
_MAX_OFFSET: Final = datetime.timedelta(hours=18)
_CONTEXT: Final = Context(prec=60, rounding=ROUND_HALF_UP)
_SHOWN: Final = 60


class _Number(str):
    """A number as it is written: conversion is exact for every type."""

    __slots__ = ()


class _Wrong(Exception):
    """A value that is not of its type; `partial`: the part of it that could be read."""

    def __init__(self, why: str, partial: Any = None) -> None:
        super().__init__(why)
        self.partial = partial


class JsonValues:
    """Decodes documents into the values of the fields of a schema."""

    def __init__(self, schema: pa.Schema, time_zone: str) -> None:
        """Raise Invalid for a field of a type that JSON does not have, and for an unknown zone."""
        zone_of(time_zone)
        check_columns(schema)
        self._schema = schema
        self._time_zone = time_zone
        self._prepare()

    def __getstate__(self) -> dict[str, Any]:
        return {"_schema": self._schema, "_time_zone": self._time_zone}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()

    def _prepare(self) -> None:
        self._decode = json.JSONDecoder(parse_float=_Number, parse_int=_Number, parse_constant=_Number).decode
        zone = zone_of(self._time_zone)
        self._converters = [(one.name, _converter(one.type, one.name, zone)) for one in self._schema]

    def row(self, payload: bytes | None) -> tuple[list[Any], str | None]:
        """Return the values of a document, and what is wrong with it (None: nothing)."""
        nulls: list[Any] = [None] * len(self._converters)
        if payload is None:
            return nulls, "there is no payload"
        try:
            text = payload.decode()
            if len(text) > MAX_JSON_TOKENS:  # asked here, too: most documents are small
                check_tokens(text)
            document = self._decode(text)
        except UnicodeDecodeError as error:
            return nulls, f"it is not UTF-8 at byte {error.start}"
        except json.JSONDecodeError as error:
            return nulls, f"it is not JSON: {error.msg} at character {error.pos}"
        except ValueError as error:
            return nulls, f"it is not JSON that can be read: {error}"
        except RecursionError:
            return nulls, "it is not JSON that can be read: too many levels"
        if not isinstance(document, dict):
            return nulls, f"it is not a JSON object: {_shown(document)}"
        return _members(document, self._converters)


def _members(
    document: dict[str, Any], converters: list[tuple[str, Callable[[Any], Any]]]
) -> tuple[list[Any], str | None]:
    values: list[Any] = []
    problem: str | None = None
    for name, convert in converters:
        value = document.get(name)
        if value is not None:
            try:
                value = convert(value)
            except _Wrong as wrong:
                value = wrong.partial
                problem = problem or str(wrong)
        values.append(value)
    return values, problem


def _converter(kind: pa.DataType, path: str, zone: datetime.tzinfo) -> Callable[[Any], Any]:
    """Return a function of a JSON value that is not null.  Raises Invalid for a type that JSON does not have."""
    types = pa.types
    if types.is_struct(kind):
        return _struct([(one.name, _converter(one.type, f"{path}.{one.name}", zone)) for one in kind], path)
    if types.is_list(kind):
        return _array(_converter(kind.value_type, f"{path}[]", zone), path)
    if types.is_map(kind):
        if not types.is_string(kind.key_type):
            raise Invalid(f"column {path} {sql_name(kind)}: the names of a JSON object are strings, map<string, ...>")
        return _map(_converter(kind.item_type, f"{path}{{}}", zone), path)
    simple = _simple(kind, zone)

    def convert(value: Any) -> Any:
        try:
            return simple(value)
        except (ValueError, OverflowError, InvalidOperation):
            raise _Wrong(f"{path} is {_shown(value)}, which is no {sql_name(kind)}") from None

    return convert


def _simple(kind: pa.DataType, zone: datetime.tzinfo) -> Callable[[Any], Any]:
    types = pa.types
    if types.is_decimal(kind):
        return lambda value: _decimal(value, kind.precision, kind.scale)
    if types.is_integer(kind):
        bound = 1 << kind.bit_width - 1
        return lambda value: _integer(value, bound)
    if types.is_timestamp(kind):
        return lambda value: _timestamp(value, None if kind.tz is None else zone)
    simple: dict[pa.DataType, Callable[[Any], Any]] = {
        pa.bool_(): _boolean, pa.float32(): _float, pa.float64(): _float, pa.string(): _text, pa.binary(): _binary,
        pa.date32(): _date,
    }  # fmt: skip
    return simple[kind]


def _struct(converters: list[tuple[str, Callable[[Any], Any]]], path: str) -> Callable[[Any], Any]:
    names = [name for name, _ in converters]

    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _Wrong(f"{path} is {_shown(value)}, which is no object")
        values, problem = _members(value, converters)
        found = dict(zip(names, values, strict=True))
        if problem is not None:
            raise _Wrong(problem, found)
        return found

    return convert


def _array(element: Callable[[Any], Any], path: str) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if not isinstance(value, list):
            raise _Wrong(f"{path} is {_shown(value)}, which is no array")
        return _each(value, element)

    return convert


def _map(item: Callable[[Any], Any], path: str) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _Wrong(f"{path} is {_shown(value)}, which is no object")
        names = [_text(name) for name in value]
        try:
            return list(zip(names, _each(list(value.values()), item), strict=True))
        except _Wrong as wrong:
            partial = None if wrong.partial is None else list(zip(names, wrong.partial, strict=True))
            raise _Wrong(str(wrong), partial) from None

    return convert


def _each(values: list[Any], convert: Callable[[Any], Any]) -> list[Any]:
    found: list[Any] = []
    problem: str | None = None
    for value in values:
        try:
            found.append(None if value is None else convert(value))
        except _Wrong as wrong:
            if wrong.partial is None:  # as in Spark, only an object keeps its place
                raise
            found.append(wrong.partial)
            problem = problem or str(wrong)
    if problem is not None:
        raise _Wrong(problem, found)
    return found


# -- simple types: raise ValueError, OverflowError or InvalidOperation ------------------------------


def _boolean(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise ValueError


def _integer(value: Any, bound: int) -> int:
    if type(value) is not _Number or len(value) > 20:
        raise ValueError
    number = int(value)
    if not -bound <= number < bound:
        raise OverflowError
    return number


def _float(value: Any) -> float:
    if not isinstance(value, str):
        raise ValueError
    return float(_FLOATS[value] if value in _FLOATS else _only(value, type(value) is _Number))


def _only(value: str, allowed: bool) -> str:
    if not allowed:
        raise ValueError
    return value


def _decimal(value: Any, precision: int, scale: int) -> Decimal:
    if not isinstance(value, str):
        raise ValueError
    text = value.replace(",", "")
    if _DECIMAL.fullmatch(text) is None:
        raise ValueError
    found = _CONTEXT.quantize(Decimal(text), Decimal(1).scaleb(-scale))
    if found.adjusted() >= precision - scale and found:
        raise OverflowError
    return found


def _text(value: Any) -> str:
    """Return a text unchanged; for any other value its JSON, without spaces."""
    text = value if isinstance(value, str) else _json(value)
    # An escape may name half a character, which UTF-8 cannot hold.
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _json(value: Any, levels: int = MAX_JSON_TEXT_LEVELS) -> str:
    """Return the JSON of a value.  Raises ValueError for one with too many levels."""
    if type(value) is _Number:
        return str(value)
    if not isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    if not levels:
        raise ValueError
    if isinstance(value, list):
        return "[" + ",".join([_json(one, levels - 1) for one in value]) + "]"
    members = [f"{json.dumps(name, ensure_ascii=False)}:{_json(one, levels - 1)}" for name, one in value.items()]
    return "{" + ",".join(members) + "}"


def _binary(value: Any) -> bytes:
    if type(value) is not str:
        raise ValueError
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error:
        raise ValueError from None


def _date(value: Any) -> int:
    """Return a date as days since 1970."""
    found = _DATE.fullmatch(value) if type(value) is str else None
    if found is None:
        raise ValueError
    year = int(found[1])
    days = datetime.date(year or _LIKE_YEAR_0, int(found[2] or 1), int(found[3] or 1)).toordinal() - _EPOCH_DAY
    return days if year else days - _DAYS_OF_400_YEARS


def _timestamp(value: Any, zone: datetime.tzinfo | None) -> int:
    """Return a time as microseconds since 1970.  `zone`: that of texts that name none; None: no text may name one."""
    if type(value) is _Number and zone is not None:
        # As in Spark, a number means seconds.
        seconds = _integer(value, 1 << 63)
        if abs(seconds) >= (1 << 63) // 1_000_000:
            raise OverflowError
        return seconds * 1_000_000
    found = _TIME.fullmatch(value) if type(value) is str else None
    if found is None:
        raise ValueError
    year, month, day, hour, minute, second, fraction, named = found.groups()
    local = datetime.datetime(
        int(year) or _LIKE_YEAR_0, int(month or 1), int(day or 1), int(hour or 0), int(minute or 0), int(second or 0),
        int((fraction or "0")[:6].ljust(6, "0")),
    )  # fmt: skip
    since = local - _EPOCH if int(year) else local - _EPOCH - datetime.timedelta(_DAYS_OF_400_YEARS)
    if zone is None:
        if named:
            raise ValueError
        return since // _MICROSECOND
    try:
        offset = local.replace(tzinfo=zone_of(named) if named else zone).utcoffset()
    except Invalid:
        raise ValueError from None
    assert offset is not None
    return (since - offset) // _MICROSECOND


def zone_of(name: str) -> datetime.tzinfo:
    """Return a time zone by its name or offset.  Raises Invalid."""
    if name in ("Z", "UTC", "GMT"):
        return datetime.UTC
    found = _OFFSET.fullmatch(name)
    if found is not None:
        hours, minutes, seconds = (int(part or 0) for part in found.groups()[1:])
        offset = datetime.timedelta(hours=hours, minutes=minutes, seconds=seconds)
        if minutes < 60 and seconds < 60 and offset <= _MAX_OFFSET:
            return datetime.timezone(-offset if found[1] == "-" else offset)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Invalid(f"{name!r} is no time zone: give one as Europe/Berlin, or an offset as +02:00") from None


def _shown(value: Any) -> str:
    try:
        text = _json(value)
    except ValueError:
        return f"a value of more than {MAX_JSON_TEXT_LEVELS} levels"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
