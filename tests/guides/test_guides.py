"""README, docs/getting-started.md and every page of docs/guides are run, so that what they show is true.

They run in order on one node, which SARIT_CONTROLLER names, with the schema registry of another one, which
SARIT_REGISTRY_URL names, and then once more: a page may be pasted again.  Pages about Iceberg tables have another
directory for their /tmp/lake.  The
```python blocks of a page run in one namespace, as at Python's own prompt; those with Spark run in tests/spark.  The
```sh blocks run between them.  Both run in one directory.  Any other block (```text, ```console, and ```bash, which
tests/newcomer.py pastes) is not run.  Each line of a ```text block of getting-started.md is printed by the block that
stands before it.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

import sarit
from tests.catalogs import write_catalogs
from tests.examples.fast_node import fast_node
from tests.guides.pages import Block, blocks, run_python, run_shell, statements
from tests.nodes import RunningNode

ROOT = Path(__file__).parents[2]
STARTED = ROOT / "docs" / "getting-started.md"
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
PAGES = [ROOT / "README.md", STARTED, *GUIDES]
FASTER = 20  # watermarks are made every 10 seconds otherwise


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    directory = tmp_path_factory.mktemp("guides")
    (directory / "lake").mkdir()
    with (
        fast_node(directory / "sarit-data", FASTER, write_catalogs(directory / "lake")) as address,
        RunningNode(directory / "registry", "--registry", "on", "--registry-port", "0") as other,
    ):
        yield address, f"http://{other.registry}", directory


@pytest.mark.parametrize(("turn", "path"), [*product((1, 2), PAGES)], ids=lambda value: getattr(value, "stem", None))
def test_page_runs_and_runs_again(turn, path, node, monkeypatch, capsys) -> None:
    address, registry, directory = node
    monkeypatch.chdir(directory)
    monkeypatch.setenv("SARIT_CONTROLLER", address)
    monkeypatch.setenv("SARIT_REGISTRY_URL", registry)
    names = {"__name__": f"page_{turn}_{path.stem}"}
    printed = None
    for block in blocks(path.read_text().replace("/tmp/lake", str(directory / "lake"))):
        if block.kind == "python" and "sarit.spark" not in block.text:
            run_python(block, path, names)
            printed = capsys.readouterr().out
        elif block.kind == "sh":
            printed = run_shell(block, address, directory, SARIT_REGISTRY_URL=registry)
        elif block.kind == "text" and path == STARTED and printed is not None:
            assert set(block.text.splitlines()) <= set(printed.splitlines()), f"line {block.line}"
        else:
            printed = None


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.stem)
def test_guide_shows_code(path) -> None:
    assert any(block.kind == "python" for block in blocks(path.read_text()))


def test_blocks_are_found_in_order_with_line_numbers() -> None:
    page = "# A\n\n```python\nx = 1\n```\n\ntext `code`\n\n```sh\ntrue\n```\n\n````text\n```python\nno\n```\n````\n"
    assert list(blocks(page)) == [
        Block("python", 4, "x = 1\n"),
        Block("sh", 10, "true\n"),
        Block("text", 14, "```python\nno\n```\n"),
    ]


def test_statements_end_where_the_prompt_ends_them() -> None:
    block = Block("python", 10, "x = 1\nif x:\n    y = (2,\n         3)\n\nfor n in y:\n    pass\n")
    assert [line for line, _ in statements(block)] == [10, 11, 15]


@pytest.mark.parametrize(
    "text",
    ["if 1:\n    x = 1\nprint(x)\n", "def f():\n    x = 1\n\n    return x\n", "x = (1,\n"],
    ids=["no blank line after a block", "a blank line within a block", "open at the end"],
)
def test_what_the_prompt_refuses_is_refused(text) -> None:
    with pytest.raises(AssertionError, match="line 9|line 10|line 7"):
        list(statements(Block("python", 7, text)))


COMMANDS = """
echo "$(sarit --version)" of "$(sarit --help | head -c 6)"
cd data
sarit nonsense 2> errors || echo "code $?"
grep -c nonsense errors
sarit standalone --data-dir node --controller-port 0 --store-port 0 --http-port off > log &
until grep -q "sarit is ready" log; do sleep 0.1; done
kill $!
wait $!
ls
"""


def test_sarit_of_a_shell_block_has_its_pipes_directory_code_and_signals(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    printed = run_shell(Block("sh", 1, COMMANDS), "", tmp_path)
    assert printed == f"sarit, version {sarit.__version__} of Usage:\ncode 2\n1\nerrors\nlog\nnode\n"


def test_failed_block_names_page_and_line(tmp_path: Path) -> None:
    block = Block("python", 7, "value = 1\nassert value == 2\n")
    with pytest.raises(AssertionError) as caught:
        run_python(block, Path("page.md"), {})
    assert (str(caught.traceback[-1].path).endswith("page.md"), caught.traceback[-1].lineno) == (True, 7)
    with pytest.raises(AssertionError, match="at line 3 failed"):
        run_shell(Block("sh", 3, "echo hello; false\n"), "127.0.0.1:1", tmp_path)
