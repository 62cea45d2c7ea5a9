"""The pages on REST and on export are run as they are pasted, against a node on this machine."""

from __future__ import annotations

from pathlib import Path

import sarit
from tests.guides.pages import blocks, run_shell
from tests.nodes import RunningNode

PAGE = Path(__file__).parents[2] / "docs" / "operations" / "rest.md"


def test_page_on_rest_runs_as_pasted(tmp_path) -> None:
    (shown,) = [block for block in blocks(PAGE.read_text()) if block.kind == "sh"]
    with RunningNode(tmp_path / "node", "--http-port", "0") as node:
        printed = run_shell(shown, node.controller, tmp_path, NODE=f"http://{node.http}")
        assert printed.count('"scopeName": "shop"') == 7, printed
        assert printed.rstrip().endswith('"UP"')


def test_page_on_export_runs_as_pasted(tmp_path) -> None:
    (shown,) = [block for block in blocks(PAGE.with_name("export.md").read_text()) if block.kind == "sh"]
    with RunningNode(tmp_path / "node") as node:
        run_shell(shown, node.controller, tmp_path)
        with sarit.connect(node.controller) as client:
            wanted = sorted(client.reader("shop/orders", end="tail"))
            assert len(wanted) == 1000
            assert sorted(client.reader("shop/copies", end="tail")) == wanted
            assert sorted(client.reader("shop/again", end="tail")) == wanted
