"""The code blocks of a page: which are run, and how."""

from __future__ import annotations

import ast
import re
import subprocess
from codeop import compile_command
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tests.fork_server import on_path

if TYPE_CHECKING:
    from collections.abc import Iterator

SHELL_SECONDS = 60
_FENCE = re.compile(r"^(`{3,})([^\n`]*)\n(.*?)^\1[ ]*$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """The text of one block; `line`: the line number of its first line in the page; `kind`: the text after the
    fence."""

    kind: str
    line: int
    text: str


def blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    for found in _FENCE.finditer(page):
        yield Block(found[2].strip(), page.count("\n", 0, found.start(3)) + 1, found[3])


def statements(block: Block) -> Iterator[tuple[int, str]]:
    """The statements of a block as Python's own prompt takes them, with the line number of each in the page: a compound
    one ends at a blank line.  Raises AssertionError where the prompt refuses a line."""
    taken: list[str] = []
    for number, line in enumerate([*block.text.splitlines(), ""], block.line):
        if not taken and line.lstrip().partition("#")[0] == "":
            continue
        taken.append(line)
        try:
            ended = compile_command("\n".join(taken), symbol="single") is not None
        except SyntaxError as error:
            raise AssertionError(f"Python's prompt refuses line {number} (a blank line before it?): {error}") from None
        if ended:
            yield number + 1 - len(taken), "\n".join(taken)
            taken.clear()
    assert not taken, f"the block at line {block.line} ends within a statement"


def run_python(block: Block, path: Path, names: dict[str, Any]) -> None:
    """Run a block as if it were pasted at Python's prompt; a traceback shows the page and its line."""
    for line, text in statements(block):
        tree = ast.increment_lineno(ast.parse(text, str(path), "single"), line - 1)
        exec(compile(tree, str(path), "single", dont_inherit=True), names)


def run_shell(block: Block, address: str, directory: Path, **variables: str) -> str:
    """Run a block as a user types it: `sarit` is on the path and knows its controller.  What it prints."""
    with TemporaryDirectory() as programs:
        path, needed, descriptors = on_path(Path(programs))
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.text],
            env={"PATH": path, "SARIT_CONTROLLER": address, "LC_ALL": "C.UTF-8", **needed, **variables},
            pass_fds=descriptors, cwd=directory, capture_output=True, text=True, timeout=SHELL_SECONDS, check=False,
        )  # fmt: skip
    assert done.returncode == 0, f"the shell block at line {block.line} failed:\n{done.stdout}{done.stderr}"
    return done.stdout
