"""Every page of docs/guides is run, so that what it shows is true.

The ```python blocks of a page run in order, in one namespace, exactly as shown, against a fresh node, which
SARIT_CONTROLLER names.  The ```sh blocks run between them, in the order of the page.  Both run in an empty directory.
Any other block (```text, ```console) is shown and not run.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.guides.pages import Block, blocks, run_python, run_shell
from tests.nodes import RunningNode

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
PAGES = sorted(GUIDES.glob("*.md"))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_code_of_guide_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = list(blocks(path.read_text()))
    assert any(block.kind == "python" for block in shown), "a guide without code that runs"
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    with RunningNode(tmp_path / "node") as node:
        monkeypatch.setenv("SARIT_CONTROLLER", node.controller)
        names = {"__name__": f"guide_{path.stem}"}
        for block in shown:
            if block.kind == "python":
                run_python(block, path, names)
            elif block.kind == "sh":
                run_shell(block, node.controller, here)


def test_blocks_are_found_in_order_with_line_numbers() -> None:
    page = "# A\n\n```python\nx = 1\n```\n\ntext `code`\n\n```sh\ntrue\n```\n\n````text\n```python\nno\n```\n````\n"
    assert list(blocks(page)) == [
        Block("python", 4, "x = 1\n"),
        Block("sh", 10, "true\n"),
        Block("text", 14, "```python\nno\n```\n"),
    ]


def test_failed_block_names_page_and_line(tmp_path: Path) -> None:
    block = Block("python", 7, "value = 1\nassert value == 2\n")
    with pytest.raises(AssertionError) as caught:
        run_python(block, Path("page.md"), {})
    assert (str(caught.traceback[-1].path).endswith("page.md"), caught.traceback[-1].lineno) == (True, 7)
    with pytest.raises(AssertionError, match="at line 3 failed"):
        run_shell(Block("sh", 3, "echo hello; false\n"), "127.0.0.1:1", tmp_path)
