"""The commands of examples/README.md do what the page says, on a fresh node, in its order."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.fork_server import on_path
from tests.limits import HANG_SECONDS
from tests.nodes import RunningNode

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "examples" / "README.md").read_text()
CHAPTER = re.compile(r"^## (.+?)\n.*?```sh\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL | re.MULTILINE)
CHAPTERS = {name: (commands, shown) for name, commands, shown in CHAPTER.findall(PAGE)}
# Programs that run until Ctrl-C get it after this time, when they have printed their output; once (--foreground).
UNTIL = 5


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("examples") / "node") as running:
        yield running


def test_readme_lists_all_examples() -> None:
    links = re.findall(r"^\| \[\w+\]\((\S+)\)", PAGE, re.MULTILINE)
    assert all((ROOT / "examples" / link).exists() for link in links)
    assert len(CHAPTERS) == PAGE.count("\n## ") == len(links) - 2 >= 8  # the demo has a verb, the pipelines a page


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_commands_of_readme_run(node, tmp_path, chapter) -> None:
    commands, shown = CHAPTERS[chapter]
    commands = re.sub(r"(python examples/\S+)", rf"\1 --controller {node.controller}", commands)
    commands = re.sub(
        r"^(.*?)  # until Ctrl-C$", rf"timeout --foreground --preserve-status -s INT {UNTIL} \1", commands, flags=re.M
    )
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "programs").mkdir()
    path, needed, descriptors = on_path(tmp_path / "programs")
    environment = os.environ | needed | {"PATH": path, "SARIT_CONTROLLER": node.controller, "PYTHONUNBUFFERED": "1"}
    run = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=tmp_path, env=environment, pass_fds=descriptors, capture_output=True, text=True, timeout=HANG_SECONDS,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-3000:]
    assert "Traceback" not in run.stderr
    for line in shown.splitlines():
        assert line in run.stdout, run.stdout[-2000:]
