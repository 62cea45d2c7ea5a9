"""What a process logs: text and JSON, request ids, floods."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import sys

import pytest

from sarit.core.errors import Unavailable
from sarit.core.limits import MAX_REQUEST_ID_CHARACTERS, REPEATED_LOG_SECONDS
from sarit.core.request_ids import current_request_id
from sarit.process.limits import (
    MAX_ALIKE_LOG_LINES,
    MAX_LOG_ERROR_CHARACTERS,
    MAX_LOG_FIELD_CHARACTERS,
    MAX_LOG_LINE_CHARACTERS,
)
from sarit.process.observation.logs import FloodFilter, LogSettings, set_up_logs
from sarit.process.observation.start_line import StartLine, limit_fact, recovery_fact
from sarit.process.settings import NodeConfig
from sarit.process.shown_option import ShownOption
from sarit.rpc.handlers import rpc_handler
from sarit.rpc.request_limiter import RequestLimiter

log = logging.getLogger("sarit.process.test")


@pytest.fixture
def lines():
    """Sets logs up on a stream; gives its lines."""
    root = logging.getLogger()
    before = root.handlers[:], root.level, sys.excepthook
    stream = io.StringIO()

    def read(form: str, level: str = "info", process: str = ""):
        for handler in before[0]:
            root.removeHandler(handler)
        set_up_logs(LogSettings(level, form), process, stream)
        return lambda: stream.getvalue().splitlines()

    yield read
    for handler in root.handlers[:]:
        root.removeHandler(handler)
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    sys.excepthook = before[2]


def test_json_lines_are_one_object_each_with_the_exception_inside(lines):
    read = lines("json", process="store-1")
    log.info("a name with\na line feed and \u2028 and \x1b[31m: %s", "x")
    try:
        raise ValueError("no\nway")
    except ValueError:
        log.exception("it failed")
    log.warning("%d arguments that do not fit", "x")
    found = [json.loads(line) for line in read()]
    assert len(found) == 3
    assert found[0] | {"time": ""} == {
        "time": "", "level": "info", "logger": "sarit.process.test", "process": "store-1",
        "message": "a name with\na line feed and \u2028 and \x1b[31m: x",
    }  # fmt: skip
    assert found[0]["time"].endswith("+00:00")
    assert "ValueError: no\nway" in found[1]["exception"]
    assert found[2]["message"] == "%d arguments that do not fit ('x',)"


def test_text_lines_escape_what_a_client_may_have_put_into_a_name(lines):
    read = lines("text", process="store-1")
    log.info("stream %s", "a\n2026-01-01 00:00:00 ERROR forged\x1b[2J")
    assert len(read()) == 1
    assert read()[0].endswith("INFO [store-1] sarit.process.test: stream a\\n2026-01-01 00:00:00 ERROR forged\\x1b[2J")


@pytest.mark.parametrize("form", ["text", "json"])
def test_texts_that_a_client_may_have_chosen_are_cut(lines, form):
    """A name of a MB was written to the log as it was, and kept as the key of lines that are alike."""
    read, name = lines(form), "x" * 1_000_000
    log.warning("stream %s of %s", name, "s")
    log.warning("%(scope)s is gone", {"scope": name})
    log.warning("%s", name)
    log.warning(name)
    log.warning("cannot be: %s", ValueError(name))
    try:
        raise ValueError(name)
    except ValueError:
        log.exception("it failed")
    log.warning("a line of %s", "y" * MAX_LOG_FIELD_CHARACTERS)
    rest = len("... (1000000 characters more)")
    assert [line.count("x") for line in read()[:5]] == [
        MAX_LOG_FIELD_CHARACTERS - rest, MAX_LOG_FIELD_CHARACTERS - rest, MAX_LOG_LINE_CHARACTERS - rest,
        MAX_LOG_LINE_CHARACTERS - rest, MAX_LOG_ERROR_CHARACTERS - rest,
    ]  # fmt: skip
    assert f"stream {'x' * (MAX_LOG_FIELD_CHARACTERS - rest)}... (999773 characters more) of s" in read()[0]
    assert sum(map(len, read())) < 20_000
    assert "y" * MAX_LOG_FIELD_CHARACTERS in read()[-1]
    assert "more)" not in read()[-1]


def test_level_can_be_changed_while_it_runs(lines):
    read = lines("text", "warning")
    log.info("one")
    read = lines("text", "debug")
    log.debug("two")
    assert [line.rpartition(": ")[2] for line in read()] == ["two"]
    logging.getLogger("sarit.client").debug("three")
    read = lines("text", "info")
    logging.getLogger("sarit.client").info("four")
    assert [line.rpartition(": ")[2] for line in read()] == ["two", "three"]


def test_uncaught_exception_is_a_json_line(lines):
    read = lines("json")
    try:
        raise RuntimeError("boom")
    except RuntimeError as error:
        sys.excepthook(type(error), error, error.__traceback__)
    (found,) = map(json.loads, read())
    assert (found["level"], found["message"]) == ("critical", "the process ends: unexpected error")
    assert "RuntimeError: boom" in found["exception"]


# -- floods -------------------------------------------------------------------------------------


def record(created: float, text: str = "connection %s closed", *args: object, level: int = logging.WARNING):
    made = logging.LogRecord("sarit.x", level, "f.py", 1, text, args, None)
    made.created = created
    return made


def test_flood_of_one_warning_is_cut_and_counted():
    floods = FloodFilter()
    admitted = [floods.admits(record(0.001 * number, "connection %s closed", number)) for number in range(5000)]
    assert admitted == [True] * MAX_ALIKE_LOG_LINES + [False] * (5000 - MAX_ALIKE_LOG_LINES)
    assert floods.admits(record(1.0, "something else"))
    assert floods.ended(REPEATED_LOG_SECONDS - 1) == []
    (report,) = floods.ended(REPEATED_LOG_SECONDS)
    assert report.getMessage() == "4900 more lines like this were not logged: connection 4999 closed"
    assert report.levelno == logging.WARNING
    assert floods.admits(record(61.0, "connection %s closed", 1))


@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO, logging.CRITICAL])
def test_lines_that_are_no_warnings_are_never_cut(level):
    floods = FloodFilter()
    assert all(floods.admits(record(0.0, level=level)) for _ in range(3 * MAX_ALIKE_LOG_LINES))


def test_clock_that_is_set_back_does_not_keep_a_flood_for_ever():
    floods = FloodFilter()
    for _ in range(MAX_ALIKE_LOG_LINES + 1):
        floods.admits(record(1000.0))
    assert len(floods.ended(5.0)) == 1
    assert floods.admits(record(5.0))


def test_what_was_cut_is_said_at_the_next_line_and_at_the_end(lines):
    read = lines("json")
    for number in range(MAX_ALIKE_LOG_LINES + 7):
        log.warning("connection %s closed", number)
    assert len(read()) == MAX_ALIKE_LOG_LINES
    set_up_logs(LogSettings("info", "json"), "", io.StringIO())  # closes the handler, as the end of the process does
    assert json.loads(read()[-1])["message"] == "7 more lines like this were not logged: connection 106 closed"


# -- request ids --------------------------------------------------------------------------------


class FakeCall:
    """What a handler needs of a call."""

    def __init__(self, metadata):
        self.metadata = metadata


class FakeLimiter(RequestLimiter):
    """Without bytes."""

    async def receive(self, call, kind):
        return "request"

    async def deliver(self, call, reply):
        """Nothing."""


@pytest.mark.parametrize(
    ("metadata", "request_id"),
    [
        ({"requestid": "4711", "requestdescriptor": "createStream-s-t"}, "4711"),
        ({}, None),
        ({"requestid": "1\n2\u2028" + "9" * 1000}, "12" + "9" * (MAX_REQUEST_ID_CHARACTERS - 4)),
    ],
)  # fmt: skip
def test_lines_of_a_call_have_the_id_that_its_client_sent(lines, metadata, request_id):
    read = lines("json", "debug")

    async def create_stream(request):
        log.info("it works")
        raise Unavailable("not now")

    async def main():
        handler = rpc_handler(create_stream, None, FakeLimiter())
        for stream in (FakeCall(metadata), FakeCall({"requestid": "other"})):
            task = asyncio.ensure_future(handler(stream))
            await asyncio.gather(task, return_exceptions=True)
        assert current_request_id.get() == ""  # outside a call

    asyncio.run(main())
    found = [json.loads(line) for line in read()]
    found = [line for line in found if line["logger"].startswith("sarit")]
    assert [line["message"] for line in found[:2]] == [
        "it works",
        "create_stream is answered with Unavailable: not now",
    ]
    assert [line.get("request_id") for line in found] == [request_id, request_id, "other", "other"]


def test_text_line_of_a_call_ends_with_the_id(lines):
    read = lines("text")
    token = current_request_id.set("77")
    log.info("it works")
    current_request_id.reset(token)
    assert read()[0].endswith("it works (request 77)")


# -- the start ----------------------------------------------------------------------------------


class Clock:
    """Moves by hand."""

    now = 5.0

    def monotonic(self):
        return self.now


def test_line_at_the_start_has_version_recovery_limits_and_what_was_chosen():
    clock = Clock()
    options = [ShownOption("memory", "1G", "f.toml:2"), ShownOption("containers", "4", "default")]
    line = StartLine(clock, options)
    clock.now += 1.5
    config = NodeConfig("d", memory_bytes=1 << 30).within(100_000)
    text = line.text("standalone", recovery_fact(4, 0.25, 12, 3400, 1), limit_fact(config))
    assert text.startswith("sarit 0.")
    assert text.endswith(
        " standalone serves after 1.50 s: recovered 3 of 4 containers in 0.25 s (12 frames and 3400 bytes replayed); "
        "limits: memory 1024M, 10000 connections to a store, 5000 to a controller, 100000 open files; "
        "options: memory=1G (f.toml:2)"
    )
    assert StartLine(clock, options[1:]).text("store s").endswith("options: all by default")
