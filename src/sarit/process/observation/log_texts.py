"""Bounds on texts in the log: a client may have chosen a part of a line, and as long as it likes.  Pure.

`process/observation/logs.py` passes every record through `shortened` before anything else is done with the record.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sarit.core.texts import cut_text
from sarit.process.limits import MAX_LOG_ERROR_CHARACTERS, MAX_LOG_FIELD_CHARACTERS, MAX_LOG_LINE_CHARACTERS

if TYPE_CHECKING:
    import logging


def shortened(record: logging.LogRecord) -> logging.LogRecord:
    """Return the record, or a copy of it whose fields and message are cut.

    An argument is a field, unless it is the whole message, as those of `RepeatedLog` are."""
    given: Any = record.args
    if not given:
        message = str(record.msg)
        if len(message) <= MAX_LOG_LINE_CHARACTERS:
            return record
        made = copy.copy(record)
        made.msg = cut_text(message, MAX_LOG_LINE_CHARACTERS)
        return made
    most = MAX_LOG_LINE_CHARACTERS if record.msg == "%s" else MAX_LOG_FIELD_CHARACTERS
    # The logging module takes one mapping, too, in place of a tuple.
    args: Any = (
        {name: _cut(value, most) for name, value in given.items()}
        if isinstance(given, Mapping)
        else tuple(_cut(value, most) for value in given)
    )
    if args == given:
        return record
    made = copy.copy(record)
    made.args = args
    return made


def _cut(value: object, most: int) -> object:
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, str):
        return cut_text(value, most)
    # Of an error or an object, whose text a client's text may be a part of.
    text = str(value)
    return value if len(text) <= MAX_LOG_ERROR_CHARACTERS else cut_text(text, MAX_LOG_ERROR_CHARACTERS)
