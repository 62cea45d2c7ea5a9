"""The command, as a user types it, against a real node."""

from __future__ import annotations

import base64
import json

import pytest

from tests import fork_server
from tests.limits import HANG_SECONDS
from tests.nodes import SARIT, RunningNode


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("node") / "data") as node:
        yield node


def sarit(node, *words, stdin="", code=0):
    done = fork_server.run(
        [SARIT, *words], input=stdin, text=True, timeout=HANG_SECONDS, check=False,
        env={"SARIT_CONTROLLER": node.controller, "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


def test_create_write_read_and_delete(node):
    sarit(node, "write", "shop/orders", "--create", stdin="one\ntwo\nthree\n")
    assert sarit(node, "read", "shop/orders")[0] == "one\ntwo\nthree\n"
    out, cut = sarit(node, "read", "shop/orders", "--limit", "2", "--print-cut")
    assert out == "one\ntwo\n"
    assert sarit(node, "read", "shop/orders", "--from", cut.strip())[0] == "three\n"
    assert sarit(node, "read", "shop/orders", "--from", "tail")[0] == ""
    lines = sarit(node, "read", "shop/orders", "--format", "json")[0].splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["one", "two", "three"]
    sarit(node, "stream", "truncate", "shop/orders", cut.strip())
    assert sarit(node, "read", "shop/orders")[0] == "three\n"
    assert "is not sealed" in sarit(node, "stream", "delete", "shop/orders", "--yes", code=1)[1]
    sarit(node, "stream", "delete", "shop/orders", "--seal", "--yes")
    sarit(node, "scope", "delete", "shop")


def test_keys_from_lines_and_json_everywhere(node, tmp_path):
    file = tmp_path / "events"
    file.write_text("".join(f"k{n % 3}|{n}\n" for n in range(300)))
    sarit(node, "scope", "create", "lines")
    created = json.loads(sarit(node, "stream", "create", "lines/keyed", "--segments", "3", "--format", "json")[0])
    assert created == {"stream": "lines/keyed", "created": True}
    keyed = ("write", "lines/keyed", "--key-separator", "|")
    written = sarit(node, *keyed, str(file), "--format", "json", "--input", "lines")[0]
    assert json.loads(written)["events"] == 300
    got = [int(line) for line in sarit(node, "read", "lines/keyed")[0].split()]
    assert sorted(got) == list(range(300))
    for key in range(3):
        mine = [n for n in got if n % 3 == key]
        assert mine == sorted(mine)
    info = json.loads(sarit(node, "stream", "info", "lines/keyed", "--format", "json")[0])
    assert len(info["segments"]) == 3
    streams = json.loads(sarit(node, "stream", "list", "lines", "--format", "json")[0])
    assert streams == [{"stream": "lines/keyed"}]
    sarit(node, "stream", "update", "lines/keyed", "--segments", "2", "--tag", "blue")
    assert json.loads(sarit(node, "stream", "list", "lines", "--tag", "blue", "--format", "json")[0]) == streams
    assert {"scope": "lines"} in json.loads(sarit(node, "scope", "list", "--format", "json")[0])
    sarit(node, "scope", "delete", "lines", "--recursive", "--yes")


def test_bytes_that_are_no_text_survive(node):
    command = [SARIT, "write", "raw/bytes", "--create", "--controller", node.controller]
    done = fork_server.run(command, input=b"\xff\x00 \r\r\nplain", timeout=HANG_SECONDS)
    assert b"events that end with a CR, as their lines did: 1; --crlf leaves it out" in done.stderr
    fork_server.run([*command, "--crlf"], input=b"a\r\nb\n", timeout=HANG_SECONDS)
    first, *others = sarit(node, "read", "raw/bytes", "--format", "json")[0].splitlines()
    assert base64.b64decode(json.loads(first)["event_base64"]) == b"\xff\x00 \r\r"
    assert [json.loads(line) for line in others] == [{"event": "plain"}, {"event": "a"}, {"event": "b"}]
    fork_server.run([*command, "--format", "json"], input=b'{"event": "c\\nd"}', timeout=HANG_SECONDS)
    shown = fork_server.run([SARIT, "read", "raw/bytes", "--controller", node.controller], timeout=HANG_SECONDS)
    assert b"events of more than one line: 1; --format json" in shown.stderr
    command = [SARIT, "write", "raw/bytes", "--key-separator", "|", "--controller", node.controller]
    done = fork_server.run(command, input=b"a|1\n\xff|2\n", check=False, timeout=HANG_SECONDS)
    assert done.returncode == 1
    assert b"line 2" in done.stderr
    assert sarit(node, "read", "raw/bytes", "--format", "json")[0].splitlines()[5:] == ['{"event": "1"}']


def test_errors_say_what_to_do(node):
    assert "does not exist" in sarit(node, "read", "no/where", code=1)[1]
    assert "SCOPE/STREAM" in sarit(node, "read", "nowhere", code=2)[1]
    nobody = "127.0.0.1:1"
    message = sarit(node, "scope", "list", "--controller", nobody, code=1)[1]
    assert nobody in message
    assert "sarit standalone" in message


def test_bench_and_completion(node):
    figures = json.loads(sarit(node, "bench", "--events", "20000", "--size", "50", "--format", "json")[0])
    assert figures["write_events_per_second"] > 0
    # Of the events alone, whatever the buffers that held them.
    assert figures["read_megabytes_per_second"] == pytest.approx(figures["read_events_per_second"] * 50 / 1e6)
    assert {"scope": "bench"} not in json.loads(sarit(node, "scope", "list", "--format", "json")[0])
    assert "_SARIT_COMPLETE" in sarit(node, "completion", "bash")[0]


def test_json_documents_of_read_can_be_written_with_keys_and_bytes(node):
    sarit(node, "stream", "create", "copy/from", "--create-scope")
    sarit(node, "stream", "create", "copy/to", "--segments", "4")
    events = [b"plain", b"\xff\x00", "gr\u00fcn".encode()]
    documents = [
        {"event": "plain", "key": "a"},
        {"event_base64": base64.b64encode(events[1]).decode(), "key": "b"},
        {"event": "gr\u00fcn", "key": None},
    ]
    lines = "".join(json.dumps(document) + "\n" for document in documents)
    report = json.loads(sarit(node, "write", "copy/from", "--format", "json", stdin=lines)[0])
    assert report == {"stream": "copy/from", "events": 3}
    read = sarit(node, "read", "copy/from", "--format", "json")[0]
    assert [json.loads(line) for line in read.splitlines()] == [
        {name: value for name, value in document.items() if name != "key"} for document in documents
    ]
    sarit(node, "write", "copy/to", "--format", "json", stdin=read)
    assert sorted(sarit(node, "read", "copy/to", "--format", "json")[0].splitlines()) == sorted(read.splitlines())


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("plain", "not a JSON document"),
        ("[1]", "not a JSON object"),
        ('{"event": "a", "event_base64": "YQ=="}', "not a JSON object with either"),
        ('{"event": 5}', "give a text"),
        ('{"event_base64": "?"}', "cannot be decoded"),
        ('{"event": "a", "key": 3}', "give a text"),
    ],
)
def test_json_line_that_is_no_event_is_named_with_its_number(node, line, reason):
    sarit(node, "write", "json/bad", "--create", stdin="")
    error = sarit(node, "write", "json/bad", "--format", "json", stdin=f'{{"event": "one"}}\n{line}\n', code=1)[1]
    assert "line 2: " in error
    assert reason in error
    assert sarit(node, "read", "json/bad")[0].splitlines()[-1] == "one"


def test_line_without_key_separator_is_refused_unless_optional(node):
    write = ("write", "keys/some", "--create", "--key-separator", "|")
    error = sarit(node, *write, stdin="a|1\nnone\nb|3\n", code=1)[1]
    assert "line 2: it has no key separator '|'; --key-optional takes such lines" in error
    assert sarit(node, "read", "keys/some")[0] == "1\n"
    assert sarit(node, *write, "--key-optional", stdin="none\n")[0] == "1 event written to keys/some\n"
    assert "--key-optional needs" in sarit(node, "write", "keys/some", "--key-optional", code=2)[1]


def test_wrong_command_gets_the_one_that_was_meant(node):
    assert "Did you mean 'stream'?" in sarit(node, "steam", "list", code=2)[1]
    assert "Did you mean 'truncate'?" in sarit(node, "stream", "trunkate", "a/b", "tail", code=2)[1]


def test_help_of_subcommands_is_not_cut(node):
    out = " ".join(sarit(node, "group", "--help")[0].split())
    assert "others continue at its position, or its last checkpoint." in out
    assert "..." not in out.split("Commands:")[1]


def test_deletion_without_terminal_names_the_option(node):
    sarit(node, "scope", "create", "stays")
    assert "give --yes" in sarit(node, "scope", "delete", "stays", "--recursive", code=2)[1]
    assert {"scope": "stays"} in json.loads(sarit(node, "scope", "list", "--format", "json")[0])


def test_text_that_is_no_cut_is_refused_in_plain_words(node):
    sarit(node, "write", "plain/words", "--create", stdin="one\n")
    error = sarit(node, "read", "plain/words", "--from", "xyz", code=1)[1]
    assert error.startswith("sarit: 'xyz' is no position: give head, tail, a cut, or a time: ")
    error = sarit(node, "read", "plain/words", "--from", "H4sxyz", code=1)[1]
    assert error == (
        "sarit: 'H4sxyz' is not a stream cut: give the whole text of one, as `sarit read --print-cut` prints it\n"
    )


def completions(node, *words):
    env = {
        "_SARIT_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(("sarit", *words)), "COMP_CWORD": str(len(words)),
        "SARIT_CONTROLLER": node if isinstance(node, str) else node.controller, "PATH": "/usr/bin:/bin",
    }  # fmt: skip
    done = fork_server.run([SARIT], env=env, text=True, timeout=HANG_SECONDS)
    assert done.stderr == ""
    return {line.partition(",")[2] for line in done.stdout.splitlines() if line}


def test_names_are_completed_and_an_absent_node_completes_nothing(node):
    sarit(node, "stream", "create", "menu/starters", "--create-scope")
    sarit(node, "stream", "create", "menu/mains")
    sarit(node, "table", "create", "menu/prices", "--primary-bytes", "4")
    sarit(node, "group", "create", "menu/waiters", "menu/mains")
    assert "menu/" in completions(node, "read", "m")
    assert completions(node, "read", "menu/") >= {"menu/starters", "menu/mains"}
    assert completions(node, "stream", "info", "menu/s") == {"menu/starters"}
    assert completions(node, "table", "get", "menu/") == {"menu/prices"}
    assert completions(node, "group", "info", "menu/") == {"menu/waiters"}
    assert completions(node, "scope", "delete", "men") == {"menu"}
    assert completions("127.0.0.1:1", "read", "m") == set()
