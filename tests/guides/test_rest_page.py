"""The page on REST is run as it is pasted, against a node on this machine."""

from __future__ import annotations

from pathlib import Path

from tests.guides.pages import blocks, run_shell
from tests.nodes import RunningNode

PAGE = Path(__file__).parents[2] / "docs" / "operations" / "rest.md"


def test_page_on_rest_runs_as_pasted(tmp_path) -> None:
    (shown,) = [block for block in blocks(PAGE.read_text()) if block.kind == "sh"]
    with RunningNode(tmp_path / "node", "--http-port", "0") as node:
        printed = run_shell(shown, node.controller, tmp_path, NODE=f"http://{node.http}")
        assert printed.count('"scopeName": "shop"') == 7, printed
        assert printed.rstrip().endswith('"UP"')
