"""Reading and writing events on the command line: where to begin, what is shown, and what is not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import sarit as client_library
from sarit.core.envelope import Envelope
from tests.limits import HANG_SECONDS
from tests.nodes import RunningNode
from tests.test_cli import sarit


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("node") / "data") as node:
        sarit(node, "write", "shop/orders", "--create", stdin="one\ntwo\nthree\n")
        yield node


def test_line_shows_what_is_asked_for(node):
    options = ("--envelope", "--header", "a=1", "--header", "b=x y", "--event-time", "2026-01-31T12:00:00Z")
    sarit(node, "write", "shop/shown", "--create", "--key", "anna", *options, stdin="apples\n")
    sarit(node, "write", "shop/shown", stdin="plain\n")
    first, second = sarit(node, "read", "shop/shown", "--line", "%k|%t|%h|%v|%l|%s|%o|100%%\\t.")[0].splitlines()
    assert first == "anna|2026-01-31T12:00:00Z|a=1 b=x y|apples|6|0.#epoch.0|0|100%\t."
    size = len(bytes(Envelope("apples", key="anna", event_time=0, headers=[("a", b"1"), ("b", b"x y")]))) + 8
    assert second == f"-|-|-|plain|5|0.#epoch.0|{size}|100%\t."


def test_each_cut_of_a_line_is_after_its_event(node):
    lines = [line.split(" ") for line in sarit(node, "read", "shop/orders", "-f", "%v %c")[0].splitlines()]
    assert [value for value, _ in lines] == ["one", "two", "three"]
    for number, (_, cut) in enumerate(lines):
        rest = sarit(node, "read", "shop/orders", "--from", cut)[0].split()
        assert rest == ["one", "two", "three"][number + 1 :]


@pytest.mark.parametrize(
    ("line", "options", "message"),
    [
        ("%x", (), "%x stands for nothing in --line: there are %k, %t"),
        ("%", (), "% stands for nothing"),
        ("\\q", (), "\\q stands for nothing"),
        ("%v", ("--format", "json"), "leave --envelope and --format json away"),
        ("%v", ("--envelope",), "leave --envelope and --format json away"),
    ],
)
def test_line_that_means_nothing_is_refused(node, line, options, message):
    assert message in sarit(node, "read", "shop/orders", "--line", line, *options, code=2)[1]


def test_reading_begins_at_offsets_that_line_shows(node):
    events = "".join(f"{number % 7}|{number}\n" for number in range(40))
    sarit(node, "stream", "create", "shop/wide", "--segments", "2")
    sarit(node, "write", "shop/wide", "--key-separator", "|", stdin=events)
    shown = [line.split(" ") for line in sarit(node, "read", "shop/wide", "--line", "%s %o %v")[0].splitlines()]
    wanted = {}
    for segment in {segment for segment, _, _ in shown}:
        mine = [(int(offset), value) for each, offset, value in shown if each == segment]
        wanted[segment] = mine[len(mine) // 2]
    assert len(wanted) == 2
    offsets = ",".join(f"{segment}:{offset}" for segment, (offset, _) in wanted.items())
    rest = sarit(node, "read", "shop/wide", "--from", offsets, "--line", "%s %o %v")[0].splitlines()
    assert sorted(rest) == sorted(
        f"{segment} {offset} {value}" for segment, offset, value in shown if int(offset) >= wanted[segment][0]
    )
    (one, (offset, _)), *_ = wanted.items()
    alone = sarit(node, "read", "shop/wide", "--from", f"{one}:{offset}", "--line", "%s %o")[0].splitlines()
    assert len(alone) == sum(1 for segment, at, _ in shown if segment != one or int(at) >= offset)


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ("0.#epoch.0:99999", "has the offsets 0 to 35, not 99999"),
        ("7.#epoch.0:0", "has no epoch with 7.#epoch.0"),
        ("0.#epoch.0", "give SEGMENT:OFFSET"),
        ("0.#epoch.0:x", "give SEGMENT:OFFSET"),
        ("1769860800", "give 1769860800000"),
        ("35", "is a time before 1974"),
        ("1769860800000000", "after the year 5000"),
    ],
)
def test_positions_that_cannot_be_meant_are_refused(node, start, message):
    assert message in sarit(node, "read", "shop/orders", "--from", start, code=1)[1]


def test_event_times_of_documents_are_microseconds(node):
    for time in (1_769_860_800, 1_769_860_800_000):
        document = json.dumps({"event": "x", "envelope": True, "event_time": time})
        error = sarit(node, "write", "shop/orders", "--input", "json", stdin=document, code=1)[1]
        assert "is a time in January 1970: give microseconds" in error


def test_raw_input_is_one_event(node, tmp_path):
    image = bytes(range(256)) * 10 + b"\n\r\n"
    Path(tmp_path / "image").write_bytes(image)
    out = sarit(node, "write", "shop/images", str(tmp_path / "image"), "--create", "--input", "raw", "--key", "k")[0]
    assert out == "1 event written to shop/images\n"
    with client_library.connect(node.controller) as client, client.reader("shop/images", end="tail") as reader:
        assert list(reader) == [image]
    for options in (("--key-separator", "|"), ("--crlf",)):
        assert "--input raw" in sarit(node, "write", "shop/images", "--input", "raw", *options, code=2)[1]
    Path(tmp_path / "image").write_bytes(bytes((8 << 20) + 1))
    error = sarit(node, "write", "shop/images", str(tmp_path / "image"), "--input", "raw", code=1)[1]
    assert "longer than 8 MiB" in error


def test_missing_stream_is_an_error_also_without_input(node):
    assert "stream shop/nothing does not exist" in sarit(node, "write", "shop/nothing", code=1)[1]


def test_errors_name_what_there_is(node):
    sarit(node, "scope", "create", "named")
    assert "scope named has none" in sarit(node, "read", "named/orders", code=1)[1]
    for number in range(12):
        sarit(node, "stream", "create", f"named/orders-{number:02}")
    error = sarit(node, "read", "named/order-07", code=1)[1]
    assert "stream named/order-07 does not exist: create it first; there are named/orders-07, " in error
    assert error.endswith(" and 7 more\n")
    assert error.count("named/orders-") == 5
    sarit(node, "stream", "create", "near/one", "--create-scope")
    for command in (["read"], ["write"], ["stream", "info"], ["stream", "seal"]):
        assert "; there is near/one" in sarit(node, *command, "near/on", code=1)[1]
    assert "; there are " in sarit(node, "read", "nere/one", code=1)[1]
    assert "; there are " in sarit(node, "stream", "list", "nere", code=1)[1]
    sarit(node, "group", "create", "near/readers", "near/one")
    assert "; there is near/readers" in sarit(node, "group", "info", "near/reader", code=1)[1]
    sarit(node, "table", "create", "near/prices", "--primary-bytes", "4")
    assert "; there is near/prices" in sarit(node, "table", "get", "near/price", "k", code=1)[1]


def test_lag_of_a_group_by_segment_and_its_reset_to_positions(node):
    sarit(node, "write", "shop/lagging", "--create", stdin="one\ntwo\nthree\n")
    sarit(node, "group", "create", "shop/slow", "shop/lagging", "--checkpoint-seconds", "0")
    (row,) = json.loads(sarit(node, "group", "lag", "shop/slow", "--format", "json")[0])
    assert row == {
        "stream": "shop/lagging", "segment": "0.#epoch.0", "reader": "-", "position": 0, "end": 35, "unread_bytes": 35,
        "below_seconds": 180,
    }  # fmt: skip
    sarit(node, "group", "reset", "shop/slow", "--to", "0.#epoch.0:11")
    with client_library.connect(node.controller) as client:
        assert client.reader_groups.open("shop/slow").reader("r").read(HANG_SECONDS).event == b"two"
    sarit(node, "group", "reset", "shop/slow", "--to", "tail")
    (row,) = json.loads(sarit(node, "group", "lag", "shop/slow", "--format", "json")[0])
    assert (row["position"], row["unread_bytes"], row["below_seconds"]) == (35, 0, 0)
    assert "UNREAD_BYTES" in sarit(node, "group", "lag", "shop/slow")[0]
    sarit(node, "group", "reset", "shop/slow", "--to", "-10 minutes")
    assert sarit(node, "group", "unread", "shop/slow")[0] == "35\n"
    assert "not both" in sarit(node, "group", "reset", "shop/slow", "--to", "head", "--cut", "x", code=2)[1]
    sarit(node, "group", "create", "shop/later", "shop/lagging", "--start", "0.#epoch.0:22", "--end", "0.#epoch.0:35")
    assert sarit(node, "group", "unread", "shop/later")[0] == "13\n"
