"""`sarit write --envelope` and `sarit read --envelope`: text and JSON, plain events beside envelopes, wrong input."""

from __future__ import annotations

import json

import pytest

import sarit as client_module
from sarit import Envelope
from tests.nodes import RunningNode
from tests.test_cli import sarit


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("node") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def client(node):
    with client_module.connect(node.controller) as connected:
        yield connected


def parsed(client, stream):
    return list(map(Envelope.parse, client.reader(stream, end="tail")))


def test_lines_become_envelopes_and_are_shown(node, client):
    time = "2026-01-31T12:00:00.250001Z"
    options = ["--header", "source=north", "--header", "n=a=b", "--event-time", time, "--key-separator", "|"]
    sarit(node, "write", "env/lines", "--create", "--envelope", *options, stdin="ann|one\nbob|two\n")
    headers = [("source", b"north"), ("n", b"a=b")]
    expected = [Envelope(text, key=key, event_time=1_769_860_800_250_001, headers=headers) for key, text in
                (("ann", "one"), ("bob", "two"))]  # fmt: skip
    assert parsed(client, "env/lines") == expected
    lines = sarit(node, "read", "env/lines", "--envelope")[0].splitlines()
    assert lines == [f"ann\t{time}\tsource=north n=a=b\tone", f"bob\t{time}\tsource=north n=a=b\ttwo"]


def test_documents_of_read_can_be_written_again(node, client, tmp_path):
    sarit(node, "write", "env/from", "--create", stdin="")
    with client.writer("env/from") as writer:
        writer.write(Envelope(b"\xff", key="k", event_time=-1, headers=[("h", b"\xfe"), ("t", b"x")]))
        writer.write(Envelope("bare"))
        writer.write(Envelope("far", event_time=1 << 62))
        writer.write("plain")
    shown = sarit(node, "read", "env/from", "--envelope", "--format", "json")[0]
    assert [json.loads(line) for line in shown.splitlines()] == [
        {
            "event_base64": "/w==", "key": "k", "event_time": "1969-12-31T23:59:59.999999Z",
            "headers": [{"name": "h", "value_base64": "/g=="}, {"name": "t", "value": "x"}], "envelope": True,
        },
        {"event": "bare", "envelope": True}, {"event": "far", "event_time": 1 << 62, "envelope": True},
        {"event": "plain", "envelope": False},
    ]  # fmt: skip
    sarit(node, "write", "env/to", "--create", "--envelope", "--format", "json", stdin=shown)
    sarit(node, "write", "env/again", "--create", "--format", "json", stdin=shown)
    (tmp_path / "shown.jsonl").write_text(shown)
    sarit(node, "import", str(tmp_path / "shown.jsonl"), "env/imported", "--create")
    events = list(client.reader("env/from", end="tail"))
    assert len(events) == 4
    for copy in ("to", "again", "imported"):
        assert list(client.reader(f"env/{copy}", end="tail")) == events, copy


def test_what_an_event_has_not_is_a_dash(node, client):
    sarit(node, "write", "env/dashes", "--create", stdin="plain\n")
    with client.writer("env/dashes") as writer:
        writer.write_many([Envelope("tab\t", headers={"a\nb": b"\xff"}), Envelope("far", event_time=1 << 62)])
    assert sarit(node, "read", "env/dashes", "--envelope")[0].splitlines() == [
        "-\t-\t-\tplain", "-\t-\ta\\nb=\\xff\ttab\t", f"-\t{1 << 62}\t-\tfar",
    ]  # fmt: skip


def test_relative_time_is_of_the_present(node, client):
    sarit(node, "write", "env/now", "--create", "--envelope", "--event-time", "-1 hour", stdin="one\n")
    sarit(node, "write", "env/now", "--envelope", "--event-time", "now", stdin="two\n")
    sarit(node, "write", "env/now", "--envelope", "--event-time", "-30000 days", stdin="old\n")
    one, two, old = parsed(client, "env/now")
    assert two.event_time <= old.event_time + 30_000 * 86_400_000_000 < two.event_time + 1_800_000_000
    assert 3_600_000_000 <= two.event_time - one.event_time < 5_400_000_000


def test_damaged_envelope_ends_the_read_after_what_is_before_it(node, client):
    sarit(node, "write", "env/damaged", "--create", "--envelope", stdin="first\n")
    with client.writer("env/damaged") as writer:
        writer.write(bytes(Envelope("x", key="k"))[:24])
    for form, first in (("text", "-\t-\t-\tfirst"), ("json", '{"event": "first", "envelope": true}')):
        output, error = sarit(node, "read", "env/damaged", "--envelope", "--format", form, code=1)
        assert output.splitlines() == [first]
        assert "damaged at byte 16" in error
        assert "without --envelope" in error


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--header", "a=b"], "give --envelope, too"),
        (["--event-time", "now"], "give --envelope, too"),
        (["--envelope", "--header", "a"], "give NAME=VALUE"),
        (["--envelope", "--event-time", "soon"], "'soon' is no time"),
    ],
)
def test_wrong_options_are_refused(node, options, named):
    assert named in sarit(node, "write", "env/wrong", *options, stdin="", code=2)[1]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ('{"event": "a", "event_time": "soon"}', "'soon' is no time"),
        ('{"event": "a", "event_time": []}', "its event_time is no time"),
        ('{"event": "a", "headers": {}}', "its headers are no list"),
        ('{"event": "a", "headers": [{"name": "n"}]}', "a header is no object"),
        ('{"event": "a", "headers": [{"name": "n", "value_base64": "?"}]}', '"value_base64" cannot be decoded'),
    ],
)
def test_document_that_is_no_envelope_is_named_with_its_line(node, line, named):
    sarit(node, "write", "env/bad", "--create", stdin="")
    options = ("--envelope", "--format", "json")
    error = sarit(node, "write", "env/bad", *options, stdin=f'{{"event": "one"}}\n{line}\n', code=1)[1]
    assert "line 2: " in error
    assert named in error
