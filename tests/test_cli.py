"""The command, as a user types it, against a real node."""

from __future__ import annotations

import base64
import json
import subprocess

import pytest

from tests.nodes import SARIT, RunningNode


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("node") / "data") as node:
        yield node


def sarit(node, *words, stdin="", code=0):
    done = subprocess.run(
        [SARIT, *words], input=stdin, capture_output=True, text=True, timeout=60, check=False,
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
    written = sarit(node, "write", "lines/keyed", str(file), "--key-separator", "|", "--format", "json")[0]
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
    subprocess.run(command, input=b"\xff\x00 \r\r\nplain", check=True, timeout=60, capture_output=True)
    first, second = sarit(node, "read", "raw/bytes", "--format", "json")[0].splitlines()
    assert base64.b64decode(json.loads(first)["event_base64"]) == b"\xff\x00 \r"
    assert json.loads(second) == {"event": "plain"}
    command = [SARIT, "write", "raw/bytes", "--key-separator", "|", "--controller", node.controller]
    done = subprocess.run(command, input=b"a|1\n\xff|2\n", check=False, timeout=60, capture_output=True)
    assert done.returncode == 1
    assert b"line 2" in done.stderr
    assert sarit(node, "read", "raw/bytes", "--format", "json")[0].splitlines()[2:] == ['{"event": "1"}']


def test_errors_say_what_to_do(node):
    assert "does not exist" in sarit(node, "read", "no/where", code=1)[1]
    assert "SCOPE/STREAM" in sarit(node, "read", "nowhere", code=2)[1]
    nobody = "127.0.0.1:1"
    message = sarit(node, "scope", "list", "--controller", nobody, code=1)[1]
    assert nobody in message
    assert "sarit standalone" in message


def test_bench_and_completion(node):
    figures = json.loads(sarit(node, "bench", "--events", "20000", "--format", "json")[0])
    assert figures["written events/s"] > 0
    assert "_SARIT_COMPLETE" in sarit(node, "completion", "bash")[0]
