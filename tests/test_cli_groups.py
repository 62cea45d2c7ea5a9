"""`sarit group`, as a user types it."""

from __future__ import annotations

import json

import sarit as client_library
from tests.limits import HANG_SECONDS
from tests.nodes import RunningNode
from tests.test_cli import sarit


def test_group_commands(tmp_path):
    with RunningNode(tmp_path / "node") as node:
        sarit(node, "stream", "create", "shop/orders", "--segments", "2", "--create-scope")
        made = sarit(node, "group", "create", "shop/billing", "shop/orders", "--checkpoint-seconds", "0")[0]
        assert made == "group shop/billing reads shop/orders\n"
        assert json.loads(sarit(node, "group", "list", "shop", "--format", "json")[0]) == [{"group": "shop/billing"}]
        sarit(node, "write", "shop/orders", stdin="one\ntwo\nthree\n")
        assert sarit(node, "group", "unread", "shop/billing")[0] == f"{11 + 3 * 8}\n"
        rows = json.loads(sarit(node, "group", "readers", "shop/billing", "--format", "json")[0])
        assert [row["reader"] for row in rows] == ["-", "-"]
        with client_library.connect(node.controller) as client:
            reader = client.reader_groups.open("shop/billing").reader("r1")
            for _ in range(3):
                position = reader.read(HANG_SECONDS).position
            assert "r1" in sarit(node, "group", "readers", "shop/billing")[0]
            info = sarit(node, "group", "offline", "shop/billing", "r1", "--position", position.to_bytes().hex())[0]
            assert info == "reader r1 is offline\n"
            again = sarit(node, "group", "offline", "shop/billing", "r1", "--format", "json")[0]
            assert json.loads(again) == {"reader": "r1", "was_online": False}
        assert "not a position" in sarit(node, "group", "offline", "shop/billing", "r1", "--position", "x", code=2)[1]
        cut = json.loads(sarit(node, "group", "checkpoint", "shop/billing", "c1", "--format", "json")[0])
        assert [row["stream"] for row in cut] == ["shop/orders"]
        assert "c1 already" in sarit(node, "group", "checkpoint", "shop/billing", "c1", code=1)[1]
        reset = sarit(node, "group", "reset", "shop/billing", "--cut", cut[0]["cut"])[0]
        assert reset == "group shop/billing has generation 1\n"
        info = json.loads(sarit(node, "group", "info", "shop/billing", "--format", "json")[0])
        assert (info["generation"], info["unread_bytes"], info["unassigned_segments"]) == (1, 0, 2)
        table = sarit(node, "group", "info", "shop/billing")[0].splitlines()
        assert dict(line.split("  ", 1) for line in table)["generation"].strip() == "1"
        assert len({len(line) - len(line.split("  ", 1)[1].lstrip()) for line in table}) == 1  # one column
        sarit(node, "group", "delete", "shop/billing", "--yes")
        assert "shop/billing does not exist" in sarit(node, "group", "info", "shop/billing", code=1)[1]
        assert "is not SCOPE/GROUP" in sarit(node, "group", "info", "billing", code=1)[1]
