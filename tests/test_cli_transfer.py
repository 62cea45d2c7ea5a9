"""`sarit export` and `import`: what is exported comes back exactly, each event once, whatever is killed."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

import sarit
from sarit.cli.limits import MAX_LINE_BYTES
from sarit.cli.transfer import import_command as importing
from sarit.cli.transfer import raw_format
from sarit.cli.transfer.progress import Noted
from sarit.cli.transfer.rows import Row
from sarit.core.cuts import to_text
from sarit.core.errors import Invalid
from tests import fork_server
from tests.limits import HANG_SECONDS
from tests.nodes import SARIT, RunningNode

ODD = [b"", b"\x00", b"\xff\xfe", b"line\nbreak\r\n", "ä€😀".encode(), b"\xf5SE\x01 damaged", b"x" * 100_000]
FORMS = ("jsonl", "raw", "parquet")
POLL_SECONDS = 0.005  # a loop without a pause takes the processor from the command that it waits for


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("transfer") / "data") as node:
        yield node


@pytest.fixture
def client(node):
    with sarit.connect(node.controller) as client:
        client.create_scope("x")
        yield client


def run(node, *words, code=0, **options):
    done = fork_server.run(
        [SARIT, *words], timeout=HANG_SECONDS, check=False,
        env={**os.environ, "SARIT_CONTROLLER": node.controller}, **options,
    )  # fmt: skip
    assert done.returncode == code, done.stderr.decode()
    return done


def events_of(client, stream) -> list[bytes]:
    return list(client.reader(stream, end="tail"))


def refusal(file: Path) -> bytes:
    with pytest.raises(Invalid) as error:
        list(importing._rows(str(file), file.suffix[1:]))
    assert str(error.value).startswith(f"{file}: ")
    return str(error.value).encode()


def by_key(events) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for event in events:
        if sarit.Envelope.is_envelope(event):
            try:
                parsed = sarit.Envelope.parse(event)
            except sarit.SaritError:
                continue
            found.setdefault(str(parsed.key), []).append(parsed.payload)
    return found


@pytest.mark.parametrize("form", FORMS)
def test_keys_times_headers_and_binary_payloads_come_back_exactly(node, client, tmp_path, form) -> None:
    client.create_stream(f"x/from-{form}", segments=3)
    with client.writer(f"x/from-{form}") as writer:
        for number in range(600):
            headers = [("n", b"\x00\xff"), ("n", b"")] if number % 3 else []
            event_time = None if number % 4 else -(1 << 62) if number % 8 else 1_700_000_000_000_001
            writer.write(sarit.Envelope(f"{number}", key=f"k{number % 7}", event_time=event_time, headers=headers))
        for event in ODD:
            writer.write(event, key="odd")
    file = tmp_path / f"out.{form}"
    assert b"607 events of" in run(node, "export", f"x/from-{form}", file).stderr
    assert sorted(os.listdir(tmp_path)) == [file.name]  # and no file of progress
    assert b"607 events of" in run(node, "import", file, f"x/to-{form}", "--create").stderr
    assert sorted(os.listdir(tmp_path)) == [file.name]
    before, after = events_of(client, f"x/from-{form}"), events_of(client, f"x/to-{form}")
    assert sorted(before) == sorted(after)
    assert by_key(before) == by_key(after)
    # Plain events of one segment stay in their order.
    assert [event for event in after if event in ODD] == ODD


def test_a_part_between_two_cuts_goes_through_a_pipe(node, client, tmp_path) -> None:
    client.create_stream("x/cuts")
    cuts = []
    with client.writer("x/cuts") as writer:
        for number in range(5):
            writer.write(str(number))
            writer.flush()
            cuts.append(run(node, "read", "x/cuts", "--print-cut").stderr.decode().strip())
    for form in ("jsonl", "raw"):
        done = run(node, "export", "x/cuts", "-", "--as", form, "--from", cuts[1], "--to", cuts[3])
        run(node, "import", "-", f"x/piped-{form}", "--as", form, "--create", input=done.stdout)
        assert events_of(client, f"x/piped-{form}") == [b"2", b"3"]
    assert b"standard output" in run(node, "export", "x/cuts", "-", "--as", "parquet", code=1).stderr
    for start, end in ((cuts[3], cuts[1]), (cuts[1], "head"), ("tail", "head")):
        refused = run(node, "export", "x/cuts", str(tmp_path / "no.jsonl"), "--from", start, "--to", end, code=1)
        assert b"is before --from" in refused.stderr
        assert not (tmp_path / "no.jsonl").exists()
    assert run(node, "export", "x/cuts", "-", "--as", "jsonl", "--from", "tail").stdout == b""


def noted(progress: Path) -> dict[str, int]:
    """Return what a command has noted of its progress; nothing before it began, and after it ended."""
    try:
        found: dict[str, int] = json.loads(progress.read_text())["noted"]
    except FileNotFoundError:
        return {}
    return found


@pytest.mark.parametrize("form", FORMS)
def test_an_export_that_is_killed_goes_on_and_has_each_event_once(node, client, tmp_path, monkeypatch, form) -> None:
    client.create_stream(f"x/killed-{form}", segments=2)
    count = 4000
    with client.writer(f"x/killed-{form}") as writer:
        for number in range(count):
            writer.write(f"{number:06d}" + "x" * 10_000, key=str(number % 5))
    file = tmp_path / f"out.{form}"
    progress = Path(f"{file}.progress")
    how = signal.SIGINT if form == "raw" else signal.SIGKILL
    begun = fork_server.start([SARIT, "export", f"x/killed-{form}", str(file)], stderr=subprocess.PIPE,
                             env={**os.environ, "SARIT_CONTROLLER": node.controller})  # fmt: skip
    deadline = time.monotonic() + HANG_SECONDS
    while begun.poll() is None and not noted(progress).get("events"):
        assert time.monotonic() < deadline
        time.sleep(POLL_SECONDS)
    begun.send_signal(how)
    _, said = begun.communicate(timeout=HANG_SECONDS)
    if progress.exists():  # it was not quicker than this test
        if how == signal.SIGINT:
            assert begun.returncode == 130
            assert b"the export is not complete; the same command goes on where it was" in said
        other = run(node, "export", f"x/killed-{form}", file, "--from", "tail", code=1)
        assert b"from was head, and is tail" in other.stderr
        assert b"going on after" in run(node, "export", f"x/killed-{form}", file).stderr
    assert b"exists: choose another name" in run(node, "export", f"x/killed-{form}", file, code=1).stderr
    rows = list(importing._rows(str(file), form))
    assert sorted(row.event[:6] for row in rows) == [b"%06d" % number for number in range(count)]


def test_an_import_that_is_killed_goes_on_and_writes_each_event_once(node, client, tmp_path) -> None:
    client.create_stream("x/import", segments=2)
    count = 90_000
    file = tmp_path / "in.jsonl"
    file.write_text("".join(json.dumps({"event": f"{n}", "key": str(n % 5)}) + "\n" for n in range(count)))
    progress = Path(f"{file}.import")
    kills = 0
    for wanted, how in ((20_000, signal.SIGKILL), (40_000, signal.SIGKILL), (60_000, signal.SIGINT)):
        begun = fork_server.start([SARIT, "import", str(file), "x/import"], stderr=subprocess.PIPE,
                                 env={**os.environ, "SARIT_CONTROLLER": node.controller})  # fmt: skip
        deadline = time.monotonic() + HANG_SECONDS
        while begun.poll() is None and noted(progress).get("next", 0) < wanted:
            assert time.monotonic() < deadline
            time.sleep(POLL_SECONDS)
        begun.send_signal(how)
        _, said = begun.communicate(timeout=HANG_SECONDS)
        kills += begun.returncode != 0
    assert kills == 3
    assert begun.returncode == 130
    assert b"the import is not complete; the same command goes on where it was" in said
    assert b"going on after" in run(node, "import", file, "x/import").stderr
    found = [int(event) for event in events_of(client, "x/import")]
    assert len(found) == count
    for key in range(5):
        assert [n for n in found if n % 5 == key] == list(range(key, count, 5))


def test_bad_files_are_refused_with_their_place(node, client, tmp_path) -> None:
    client.create_stream("x/bad")
    with client.writer("x/bad") as writer:
        writer.write("some event")
    for form in FORMS:
        run(node, "export", "x/bad", tmp_path / f"good.{form}")
    raw = (tmp_path / "good.raw").read_bytes()
    part = (tmp_path / "good.parquet" / "part-000000.parquet").read_bytes()
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"other": [1]}), tmp_path / "other.parquet")
    pq.write_table(pa.table({"event": [1]}), tmp_path / "number.parquet")
    for name, content, words in (
        ("a.jsonl", b'{"event": "x"}\n{"event": 7}\n', b'line 2: its "event" is 7: give a text'),
        ("b.jsonl", b'{"event": "x"}\n{"eve', b"line 2: it is not a JSON document"),
        ("b.jsonl", b'{"event": "x"}\n{"eve', b"the file may be cut off"),
        ("c.jsonl", b'[1]\n', b"line 1: it is not a JSON object"),
        ("d.jsonl", b'{"event_base64": "?"}\n', b'line 1: its "event_base64" cannot be decoded'),
        ("e.jsonl", b'{"event": "x", "segment": "a"}\n', b"give a whole number"),
        ("f.jsonl", b'{"event": "x", "envelope": true, "event_time": "noon"}\n', b"line 1: "),
        ("g.jsonl", b"\xff\n", b"line 1: it is not a JSON document"),
        ("a.raw", raw[:-1], b"cut off, or its export did not end"),
        ("b.raw", raw[: len(raw) - 16], b"cut off, or its export did not end"),
        ("c.raw", raw[:25] + b"?" + raw[26:], b"it is damaged"),
        ("d.raw", b"{}\n", b"is it jsonl?"),
        ("e.raw", b"SARITEXP\x02", b"of version 02"),
        ("f.raw", raw + b"x", b"something follows the end"),
        ("a.parquet", part[:-10], b"a.parquet, row 0: "),
        ("b.parquet", b"", b"b.parquet, row 0: "),
    ):  # fmt: skip
        (tmp_path / name).write_bytes(content)
        assert words in refusal(tmp_path / name), name
    assert b"no column event" in refusal(tmp_path / "other.parquet")
    assert b"no binary or text" in refusal(tmp_path / "number.parquet")
    done = run(node, "import", tmp_path / "a.jsonl", "x/none", "--create", code=1)
    assert b"a.jsonl: line 2: " in done.stderr
    assert b"0 events before it are in the stream" in done.stderr
    assert events_of(client, "x/none") == []
    (tmp_path / "good.jsonl.progress").write_text("{}")
    done = run(node, "import", tmp_path / "good.jsonl", "x/bad", code=1)
    assert b"is of an export that is not complete" in done.stderr
    (tmp_path / "long.jsonl").write_bytes(b'{"event": "' + b"x" * MAX_LINE_BYTES + b'"}\n')
    assert b"line 1: longer than 64 MiB, which no event is" in refusal(tmp_path / "long.jsonl")
    (tmp_path / "long.jsonl").rename(tmp_path / "long")
    for more in ((), ("--format", "json")):
        assert b"a line is longer than 64 MiB" in run(node, "write", "x/bad", tmp_path / "long", *more, code=1).stderr
    assert b"give --as" in run(node, "import", tmp_path / "good.parquet" / "..", "x/none", code=2).stderr
    assert b"does not exist" in run(node, "export", "x/nothing", tmp_path / "n.jsonl", code=1).stderr
    assert not (tmp_path / "n.jsonl").exists()


def test_raw_format_has_the_bytes_of_its_page() -> None:
    record = raw_format.encode(Row(b"hi", 0))
    found = raw_format.HEAD + record + raw_format.end(1, raw_format.checksum(record))
    assert found.hex() == "5341524954455850010000000200000000000000006869ffffffff000000000000000159980092"
    assert list(raw_format.rows(io.BytesIO(found))) == [Row(b"hi", 0)]


@pytest.mark.parametrize("form", FORMS)
def test_properties_of_a_stream_go_with_its_file(node, client, tmp_path, form) -> None:
    client.create_stream("x/stated-" + form)
    stream, file = client.stream("x/stated-" + form), tmp_path / f"events.{form}"
    stated = {"time-unit": "seconds", "example.com.team": "grün"}
    stream.set_properties(stated)
    run(node, "export", str(stream.name), file)
    beside = Path(f"{file}.properties")
    assert json.loads(beside.read_text()) == {"version": 1, "properties": stated}
    run(node, "import", file, f"x/new-{form}", "--create")
    assert client.stream(f"x/new-{form}").properties() == stated
    # What the stream has already stays.
    client.create_stream(f"x/other-{form}")
    client.stream(f"x/other-{form}").set_properties({"time-unit": "none"})
    run(node, "import", file, f"x/other-{form}", "--create")
    assert client.stream(f"x/other-{form}").properties() == stated | {"time-unit": "none"}
    for wrong in ("{}", "[" * 100_000, '{"version": 2, "properties": {}}', '{"version": 1, "properties": {"a.b": 5}}'):
        beside.write_text(wrong)
        assert str(beside).encode() in run(node, "import", file, f"x/bad-{form}", "--create", code=1).stderr
    with pytest.raises(sarit.NotFound):
        client.stream_info(f"x/bad-{form}")


@pytest.mark.parametrize("command", ["export", "import"])
def test_progress_of_a_stream_that_was_made_again_is_refused(node, client, tmp_path, command) -> None:
    name = f"x/again-{command}"
    client.create_stream(name)
    with client.writer(name) as writer:
        writer.write("old")
    file = tmp_path / "events.raw"
    if command == "export":
        described = {"stream": name, "format": "raw", "from": "head", "to": "tail"}
        begin, end = (client.cut(name, which) for which in ("head", "tail"))
        assert begin is not None
        assert end is not None
        begun = {"position": to_text(begin), "end": to_text(end), "events": 0}
        arguments, progress = [name, file], Path(f"{file}.progress")
        file.write_bytes(raw_format.HEAD)
        noted = {**begun, "output": {"bytes": file.stat().st_size, "crc": 0, "events": 0}}
    else:
        run(node, "export", name, file)
        described = {"stream": name, "file": importing._described(str(file)), "format": "raw"}
        arguments, progress = [file, name], Path(f"{file}.import")
        noted = {"done": 1, "next": 1, "transaction": "0" * 32}
    before = Noted(progress, described)
    before.belongs_to(client.stream(name).creation_id())
    before.write(noted)
    client.delete_stream(name, seal=True)
    client.create_stream(name)
    with client.writer(name) as writer:
        writer.write("new")
    message = f"{name} was deleted and made again since {progress} was written".encode()
    assert message in run(node, command, *arguments, code=1).stderr
    assert progress.exists()
