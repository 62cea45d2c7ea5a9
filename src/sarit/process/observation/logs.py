"""What a process of Sarit logs, on standard error: text for people, or JSON lines for programs.

A line is one record: what a client may have put into a message, as a line feed in a name, is escaped, and each text in
it is cut.  Lines say the id of the request that they belong to, if it has one (`core/request_ids.py`).

*Floods.*  Lasting conditions are logged once a minute by whoever knows them (`core/repeated_log.py`).  Beyond that,
`FloodFilter` bounds warnings and errors that are alike, as those about connections: after MAX_ALIKE_LOG_LINES in
REPEATED_LOG_SECONDS the rest of them are counted, and one line says how many there were.
"""

from __future__ import annotations

import copy
import json
import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TextIO

from sarit.core.limits import MAX_REPEATED_LOG_KEYS, REPEATED_LOG_SECONDS
from sarit.core.request_ids import current_request_id
from sarit.core.texts import cut_text
from sarit.process.limits import (
    MAX_ALIKE_LOG_LINES,
    MAX_LOG_ERROR_CHARACTERS,
    MAX_LOG_FIELD_CHARACTERS,
    MAX_LOG_LINE_CHARACTERS,
)

if TYPE_CHECKING:
    from types import TracebackType

    _Error = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("text", "json")

# The logger of the client, which writes a line for each connection that ends.
_TALKATIVE: Final = "sarit.client"
# Loggers that at level DEBUG write each header of each call.
_NOISE: Final = ("hpack",)


@dataclass(frozen=True, slots=True)
class LogSettings:
    """`level`: one of LEVELS.  `form`: one of FORMATS."""

    level: str = "info"
    form: str = "text"


_current = LogSettings()
_process = ""


def current_logs() -> LogSettings:
    """Return the settings that `set_up_logs` was given last."""
    return _current


def change_log_level(level: str) -> None:
    """Log at another level of LEVELS, until the next start or reload."""
    if level == _current.level:
        return
    quieter = LEVELS.index(level) > LEVELS.index(_current.level)
    text = f"the level of the log is changed: {_current.level} -> {level}"
    logger = logging.getLogger("sarit.process")
    if quieter:  # while it is logged
        logger.warning(text)
    set_up_logs(replace(_current, level=level))
    if not quieter:
        logger.warning(text)


def set_up_logs(settings: LogSettings, process: str | None = None, stream: TextIO | None = None) -> None:
    """Log as `settings` say from now on, in place of what was set up before.

    `process`: the name of this one, where a node has several; None: as before.  `stream`: standard error if None."""
    global _current, _process  # as the loggers are
    _current = settings
    _process = process = _process if process is None else process
    root = logging.getLogger()
    for handler in root.handlers[:]:
        root.removeHandler(handler)
        handler.close()
    made = _Handler(stream or sys.stderr)
    made.setFormatter(JsonLines(process) if settings.form == "json" else TextLines(process))
    root.addHandler(made)
    root.setLevel(settings.level.upper())
    logger = logging.getLogger(_TALKATIVE)
    logger.setLevel(logging.WARNING if settings.level == "info" else logging.NOTSET)
    # The command line prints what the client warns of for a person; this is a process of its own.
    logger.handlers.clear()
    logger.propagate = True
    for name in _NOISE:
        logging.getLogger(name).setLevel(logging.INFO)
    sys.excepthook = _log_uncaught


def logs_json() -> bool:
    """Return whether this process logs JSON lines."""
    return any(isinstance(handler.formatter, JsonLines) for handler in logging.getLogger().handlers)


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    logging.getLogger("sarit").critical("the process ends: unexpected error", exc_info=(kind, error, trace))


class TextLines(logging.Formatter):
    """A line for people; the traceback of an exception follows it."""

    def __init__(self, process: str = "") -> None:
        self._prefix = f"[{process}] " if process else ""
        super().__init__(f"%(asctime)s %(levelname)s {self._prefix}%(name)s: %(message)s")

    def formatException(self, ei: _Error) -> str:  # of `logging`
        """Return the traceback; what the error says is cut."""
        return _cut_lines(super().formatException(ei))

    def formatMessage(self, record: logging.LogRecord) -> str:  # of `logging`
        """Return the line without what follows it."""
        text = super().formatMessage(record)
        request = current_request_id.get()
        return _escaped(f"{text} (request {request})" if request else text)


class JsonLines(logging.Formatter):
    """A JSON object on one line: `time`, `level`, `logger`, `message`; `process`, `request_id`, `exception` if any."""

    def __init__(self, process: str = "") -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        found = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        if self._process:
            found["process"] = self._process
        if request := current_request_id.get():
            found["request_id"] = request
        if record.exc_info:
            found["exception"] = _cut_lines(self.formatException(record.exc_info))
        if record.stack_info:
            found["stack"] = self.formatStack(record.stack_info)
        return json.dumps(found)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError):  # arguments that do not fit
        return f"{record.msg} {record.args}"


def _cut_lines(traceback: str) -> str:
    return "\n".join(cut_text(line, MAX_LOG_ERROR_CHARACTERS) for line in traceback.split("\n"))


def _escaped(text: str) -> str:
    """Without line feeds and other control characters."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


class _Handler(logging.StreamHandler[TextIO]):
    """Writes lines, and counts those that are alike instead of writing them without end."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._floods = FloodFilter()

    def emit(self, record: logging.LogRecord) -> None:
        record = _shortened(record)
        for suppressed in self._floods.ended(record.created):
            super().emit(suppressed)
        if self._floods.admits(record):
            super().emit(record)

    def close(self) -> None:
        for suppressed in self._floods.ended(float("inf")):
            super().emit(suppressed)
        super().close()

    def handleError(self, record: logging.LogRecord) -> None:  # of `logging`
        """Do nothing when standard error cannot be written or is not read any more: the node continues."""


class FloodFilter:
    """Which records are written.  Its clock is the time of the records."""

    def __init__(self) -> None:
        # In the order of their begin; of warnings and errors alone.
        self._alike: dict[tuple[str, int, str], _Alike] = {}

    def admits(self, record: logging.LogRecord) -> bool:
        """Return whether to write it; if not, it is counted."""
        if not logging.WARNING <= record.levelno < logging.CRITICAL:
            return True
        # A message that is one argument is alike by what it says.
        message = str(record.msg)
        key = (record.name, record.levelno, str(record.args) if message == "%s" else message)
        found = self._alike.get(key)
        if found is None:
            if len(self._alike) >= MAX_REPEATED_LOG_KEYS:
                return True
            found = self._alike[key] = _Alike(record.created)
        found.count += 1
        if found.count <= MAX_ALIKE_LOG_LINES:
            return True
        found.last = record
        return False

    def ended(self, now: float) -> list[logging.LogRecord]:
        """Return a record for each flood that is over, or goes on for longer than a line should wait.

        `now`: of a record, in seconds."""
        reports = []
        while self._alike:
            key, first = next(iter(self._alike.items()))
            # A clock that was set back must not keep it for ever.
            if 0 <= now - first.began < REPEATED_LOG_SECONDS:
                break
            del self._alike[key]
            if first.last is not None:
                reports.append(first.report())
        return reports


class _Alike:
    """Records that are alike since `began`."""

    __slots__ = ("began", "count", "last")

    def __init__(self, began: float) -> None:
        self.began = began
        self.count = 0
        self.last: logging.LogRecord | None = None

    def report(self) -> logging.LogRecord:
        """Return how many were not written, and the last of them."""
        assert self.last is not None
        record = self.last
        text = f"{self.count - MAX_ALIKE_LOG_LINES} more lines like this were not logged: {_message(record)}"
        return logging.LogRecord(record.name, record.levelno, record.pathname, record.lineno, text, None, None)


# -- bounds on texts: a client may have chosen a part of a line, and as long as it likes ---------------


def _shortened(record: logging.LogRecord) -> logging.LogRecord:
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
