"""The columns of JSON documents whose schema nobody wrote down, from a sample of them.

*Types.*  Whole numbers of 64 bits are `bigint`; with fractions among them, `double`, if each whole one is exact there.
Texts are `timestamp` where every one is a time of RFC 3339 with its zone and at most microseconds, else `string`.
Objects and arrays are structs and lists.  Whatever has no single type, as a number here and a text there, a number that
no column holds exactly, or an object of very many names, is a `string` with its JSON.  So each document of the sample
fits the columns.

*Names.*  A name whose values were all null, or empty, has no type yet, and no column: later samples add it.  A name
that tables cannot have is left out; within an object it makes that object a text.  Of names that differ only in
case the first one is a column.  Columns are in the order in which their names first appear.  Pure.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sarit.core.bounded_json import parse_json
from sarit.core.errors import Invalid
from sarit.schemas.column_types import TIMESTAMP
from sarit.schemas.json_values import JsonValues
from sarit.schemas.limits import (
    INFERRED_SAMPLE_BYTES,
    INFERRED_SAMPLE_EVENTS,
    MAX_INFERRED_COLUMNS,
    MAX_INFERRED_LEVELS,
    MAX_INFERRED_NAME_CHARS,
    MAX_INFERRED_NAMES,
    MAX_INFERRED_TEXT_CHARS,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

_TIME: Final = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,6})?(Z|[+-]\d{2}:\d{2})", re.ASCII)
_BOUND: Final = 1 << 63
_MAX_DIGITS: Final = 400  # more than any double has


def infer_json(payloads: Iterable[bytes | None]) -> pa.Schema:
    """Return the columns of a sample of documents; what is no object is left aside.

    A bounded part of the sample is taken, from its beginning.  Raises Invalid: no object has a value, or they have too
    many names."""
    root = _Seen(_Budget(), 0)
    left, found = INFERRED_SAMPLE_BYTES, 0
    for _, payload in zip(range(INFERRED_SAMPLE_EVENTS), payloads, strict=False):
        if payload is None:
            continue
        left -= len(payload)
        if left < 0 and found:
            break
        document = _document(payload)
        if isinstance(document, dict):
            root.add(document)
            found += 1
    columns = root.struct()
    if columns is None:
        raise Invalid(
            f"{found} of the sampled events are JSON objects, and no member of them has a value: give the columns, or "
            "leave the payloads as they are (binary)"
        )
    return pa.schema(list(columns))


def _document(payload: bytes) -> Any:
    """Return the value of a document; None for what is none."""
    try:
        return parse_json(payload.decode(), parse_int=_whole, parse_constant=float)
    except ValueError:
        return None


def _whole(text: str) -> int | float:
    return int(text) if len(text) <= _MAX_DIGITS else _Huge()


class _Huge(float):
    """A whole number that no column holds as a number.  Internal."""


class _Budget:
    """How many columns may still be added, and how long their names.  Internal."""

    def __init__(self) -> None:
        self._columns = MAX_INFERRED_COLUMNS
        self._chars = MAX_INFERRED_TEXT_CHARS

    def take(self, name: str) -> bool:
        """Take one column, if any is left."""
        self._columns -= 1
        self._chars -= len(name)
        return self._columns >= 0 and self._chars >= 0


class _Seen:
    """The kinds of values in one place of the documents.  Internal."""

    def __init__(self, budget: _Budget, level: int) -> None:
        self._budget = budget
        self._level = level
        self._booleans = self._wholes = self._fractions = self._texts = self._objects = self._arrays = False
        self._fits_long = self._fits_double = self._all_times = True
        self._as_text = level > MAX_INFERRED_LEVELS
        self._members: dict[str, _Seen] = {}
        self._folded: dict[str, str] = {}
        self._items: _Seen | None = None

    def add(self, value: Any) -> None:
        """Take notice of a value.  As deep as the bound of levels."""
        if value is None or self._as_text:
            self._texts = self._texts or value is not None
        elif isinstance(value, bool):
            self._booleans = True
        elif isinstance(value, int | _Huge):
            self._wholes = True
            self._fits_long = self._fits_long and isinstance(value, int) and -_BOUND <= value < _BOUND
            self._fits_double = self._fits_double and _is_double(value)
        elif isinstance(value, float):
            self._fractions = True
        elif isinstance(value, str):
            self._texts = True
            self._all_times = self._all_times and _is_time(value)
        elif isinstance(value, dict):
            self._objects = True
            self._add_members(value)
        else:
            self._arrays = True
            self._add_items(value)

    def _add_members(self, document: dict[str, Any]) -> None:
        for name, value in document.items():
            seen = self._members.get(name) or self._new_member(name)
            if seen is not None:
                seen.add(value)
            elif self._level:
                self._become_text()
                return

    def _new_member(self, name: str) -> _Seen | None:
        """Return the place of a name; None: it can be no column.  Raises Invalid: a document has too many names."""
        if not _is_name(name) or self._folded.setdefault(name.casefold(), name) != name:
            return None
        many = self._level and len(self._members) >= MAX_INFERRED_NAMES
        if many or not self._budget.take(name):
            if self._level:
                return None
            raise Invalid(
                f"the sampled documents have more than {MAX_INFERRED_COLUMNS:,} names, or more than "
                f"{MAX_INFERRED_TEXT_CHARS:,} characters of them: give the columns, or leave the payloads as they are "
                "(binary)"
            )
        made = self._members[name] = _Seen(self._budget, self._level + 1)
        return made

    def _add_items(self, values: list[Any]) -> None:
        if self._items is None:
            self._items = _Seen(self._budget, self._level + 1)
        for value in values:
            self._items.add(value)

    def _become_text(self) -> None:
        self._as_text = self._texts = True
        self._members, self._items = {}, None

    def type(self) -> pa.DataType | None:
        """Return the type of a column of these values; None: it is not known yet."""
        numbers = self._wholes or self._fractions
        kinds = [numbers, self._booleans, self._texts, self._objects, self._arrays].count(True)
        if not kinds:
            return None
        if kinds > 1 or self._as_text:
            return pa.string()
        if self._booleans:
            return pa.bool_()
        if numbers:
            return self._number()
        if self._texts:
            return TIMESTAMP if self._all_times else pa.string()
        if self._objects:
            return self.struct()
        element = None if self._items is None else self._items.type()
        return None if element is None else pa.list_(pa.field("element", element))

    def _number(self) -> pa.DataType:
        if not self._fractions:
            return pa.int64() if self._fits_long else pa.string()
        return pa.float64() if self._fits_double else pa.string()

    def struct(self) -> pa.DataType | None:
        """Return the struct of the members; None: no type is known."""
        found = [(name, one.type()) for name, one in self._members.items()]
        fields = [pa.field(name, kind) for name, kind in found if kind is not None]
        return pa.struct(fields) if fields else None


def _is_double(value: int | float) -> bool:
    if not isinstance(value, int):
        return False
    try:
        return int(float(value)) == value
    except OverflowError:
        return False


def _is_time(text: str) -> bool:
    """Return whether a text is a time that the reader of a timestamp takes."""
    return _TIME.fullmatch(text) is not None and _TIMES.row(b'{"t":"%s"}' % text.encode())[1] is None


def _is_name(name: str) -> bool:
    return 0 < len(name) <= MAX_INFERRED_NAME_CHARS and name.isprintable()


_TIMES: Final = JsonValues(pa.schema([("t", TIMESTAMP)]), "UTC")

__all__ = ["infer_json"]
