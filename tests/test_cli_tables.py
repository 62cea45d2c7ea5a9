"""`sarit table`, as a user types it."""

from __future__ import annotations

import base64
import json

from tests import fork_server
from tests.limits import HANG_SECONDS
from tests.nodes import SARIT, RunningNode
from tests.test_cli import sarit


def test_table_commands(tmp_path):
    with RunningNode(tmp_path / "node") as node:
        made = sarit(node, "table", "create", "shop/stock", "--primary-bytes", "4", "--create-scope")[0]
        assert made == "table shop/stock created\n"
        again = sarit(node, "table", "create", "shop/stock", "--primary-bytes", "9", "--format", "json")[0]
        assert json.loads(again) == {"table": "shop/stock", "created": False}
        version = sarit(node, "table", "put", "shop/stock", "pear", "7", "--insert")[0].strip()
        assert "exists already" in sarit(node, "table", "put", "shop/stock", "pear", "8", "--insert", code=1)[1]
        newer = json.loads(
            sarit(node, "table", "put", "shop/stock", "pear", "8", "--version", version, "--format", "json")[0]
        )["version"]
        assert (
            "does not have version"
            in sarit(node, "table", "put", "shop/stock", "pear", "9", "--version", version, code=1)[1]
        )
        assert sarit(node, "table", "get", "shop/stock", "pear")[0] == "8\n"
        sarit(node, "table", "put", "shop/stock", "plum", stdin="from\nstdin")
        assert (
            json.loads(sarit(node, "table", "get", "shop/stock", "plum", "--format", "json")[0])["value"]
            == "from\nstdin"
        )
        assert "have 4 bytes, not 5" in sarit(node, "table", "get", "shop/stock", "peach", code=1)[1]
        assert "has no key kiwi" in sarit(node, "table", "get", "shop/stock", "kiwi", code=1)[1]
        assert sarit(node, "table", "scan", "shop/stock", "--first", "pe", "--last", "pe")[0] == f"pear\t8\t{newer}\n"
        lines = sarit(node, "table", "scan", "shop/stock", "--format", "json", "--keys-only")[0].splitlines()
        assert [json.loads(line)["primary"] for line in lines] == ["pear", "plum"]
        assert len(sarit(node, "table", "scan", "shop/stock", "--limit", "1")[0].splitlines()) == 1
        assert (
            "does not have version"
            in sarit(node, "table", "remove", "shop/stock", "pear", "--version", version, code=1)[1]
        )
        sarit(node, "table", "remove", "shop/stock", "pear", "--version", str(newer))
        assert "has no key pear" in sarit(node, "table", "get", "shop/stock", "pear", code=1)[1]
        rows = json.loads(sarit(node, "table", "list", "shop", "--format", "json")[0])
        assert rows == [{"table": "shop/stock", "partitions": 1, "primary_bytes": 4, "secondary_bytes": 0}]
        sarit(node, "table", "delete", "shop/stock", "--yes")
        assert "shop/stock does not exist" in sarit(node, "table", "get", "shop/stock", "plum", code=1)[1]
        assert "SCOPE/TABLE" in sarit(node, "table", "get", "stock", "plum", code=2)[1]


def test_two_keys_and_bytes_that_are_no_text(tmp_path):
    with RunningNode(tmp_path / "node") as node:
        create = ("table", "create", "shop/raw", "--primary-bytes", "2", "--secondary-bytes", "1", "--create-scope")
        sarit(node, *create, "--partitions", "3")
        key, other, value = (base64.b64encode(part).decode() for part in (b"\xff\0", b"\x80", b"\xfe\n"))
        sarit(node, "table", "put", "shop/raw", key, value, "--secondary", other, "--base64")
        row = json.loads(sarit(node, "table", "scan", "shop/raw", "--format", "json")[0])
        assert (row["primary_base64"], row["secondary_base64"], row["value_base64"]) == (key, other, value)
        # A line tells what is base64: a text may look like it, and a tab would make one field two.
        sarit(node, "table", "put", "shop/raw", "a\t", value, "--secondary", "b")
        lines = {line.rpartition("\t")[0] for line in sarit(node, "table", "scan", "shop/raw")[0].splitlines()}
        assert lines == {f"base64:{key}\tbase64:{other}\tbase64:{value}", f"base64:YQk=\tb\t{value}"}
        sarit(node, "table", "remove", "shop/raw", "a\t", "--secondary", "b")
        command = [
            SARIT,
            "table",
            "get",
            "shop/raw",
            key,
            "--secondary",
            other,
            "--base64",
            "--controller",
            node.controller,
        ]
        assert fork_server.run(command, timeout=HANG_SECONDS).stdout == b"\xfe\n\n"
        assert "is not base64" in sarit(node, "table", "get", "shop/raw", "§", "--base64", code=2)[1]
        assert "have 1 bytes, not 0" in sarit(node, "table", "get", "shop/raw", "ab", code=1)[1]
