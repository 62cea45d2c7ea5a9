"""A newcomer's first hour: `python -m tests.newcomer` pastes docs/getting-started.md and times its steps.

There is a fresh clone of HEAD, an empty HOME and so no cache of packages, and nothing of this repository on the path.
The ```bash and ```sh blocks are pasted into one Bash, and ```python blocks into `python` there.  Each line of a ```text
block has to be printed by the block before it.

What is fetched, and built where a package comes as source, is counted apart: the installs are made once more in an
environment that is thrown away, from what pip has kept.  Where the first event or Spark's table comes later than the
goals, without the fetching, the exit code is 1.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from tests.guides.pages import Block, blocks

ROOT = Path(__file__).resolve().parent.parent
PAGE: Final = "docs/getting-started.md"
GOALS: Final = {"sarit read": 180.0, "sarit.spark": 360.0}  # a text of the block with the result -> seconds
DONE: Final = "the block has ended"
PROMPTS: Final = re.compile(r"^(?:>>> |\.\.\. )+")  # of Python, whose standard error they are
READY: Final = "sarit is ready"
# How packages are reached from here, which is no step of the page.
KEPT: Final = ("LANG", "PIP_CERT", "PIP_DEFAULT_TIMEOUT", "PIP_INDEX_URL", "SSL_CERT_FILE", "JAVA_HOME")


@dataclass
class Terminal:
    """A Bash in a clone, and what it has printed."""

    process: subprocess.Popen[str]
    printed: list[str] = field(default_factory=list)

    def paste(self, text: str, until: str = DONE) -> list[str]:
        """Run commands, and return the lines that came until `until`.  Raises AssertionError where one fails."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\necho {DONE}\n")
        self.process.stdin.flush()
        lines = [self._line()]
        while DONE not in lines[-1]:
            lines.append(self._line())
        while until not in "".join(lines):
            lines.append(self._line())
        return lines

    def _line(self) -> str:
        output: IO[str] | None = self.process.stdout
        assert output is not None
        raw = output.readline()
        line = PROMPTS.sub("", raw)
        self.printed.append(line)
        assert raw, "Bash has ended:\n" + "".join(self.printed[-30:])
        assert not line.startswith(("a command failed", "Traceback", "SyntaxError")), "".join(self.printed[-30:])
        return line


def opened(clone: Path, home: Path) -> Terminal:
    """Start Bash in the clone as somebody would who has just logged in."""
    here = Path(sys.executable).parent
    folders = [folder for folder in os.environ["PATH"].split(os.pathsep) if Path(folder) != here]
    environment = {name: value for name, value in os.environ.items() if name in KEPT or name.lower().endswith("_proxy")}
    process = subprocess.Popen(
        ["bash"], cwd=clone, env=environment | {"HOME": str(home), "PATH": os.pathsep.join(folders)}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=1,
        start_new_session=True,
    )  # fmt: skip
    terminal = Terminal(process)
    terminal.paste("trap 'echo a command failed: $BASH_COMMAND' ERR")
    return terminal


def paste(terminal: Terminal, block: Block, folder: Path) -> list[str]:
    """Paste a block of the page where it belongs, and return what it printed."""
    if block.kind != "python":
        return terminal.paste(block.text, READY if "sarit standalone" in block.text else DONE)
    pasted = folder / "pasted"
    pasted.write_text(block.text)
    return terminal.paste(f"python -iq < {pasted}")


def installed_again(terminal: Terminal, installs: list[str]) -> list[float]:
    """Repeat each install in an environment of its own, from what pip has kept; the seconds of each."""
    terminal.paste("python3 -m venv again && . again/bin/activate")
    seconds = []
    for command in installs:
        began = time.monotonic()
        terminal.paste(command)
        seconds.append(time.monotonic() - began)
    return seconds


def pip_lines(block: Block) -> str:
    """The lines of a block that install."""
    return "\n".join(line for line in block.text.splitlines() if line.startswith("pip install"))


def run(folder: Path) -> int:
    """Paste the page; the exit code."""
    clone, home = folder / "sarit", folder / "home"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    home.mkdir()
    terminal = opened(clone, home)
    try:
        steps = pasted_page(terminal, folder, (clone / PAGE).read_text())
        installs = [(block, seconds) for block, seconds in steps if pip_lines(block)]
        again = installed_again(terminal, [pip_lines(block) for block, _ in installs])
    finally:
        os.killpg(terminal.process.pid, signal.SIGTERM)  # also a node that was not stopped
        terminal.process.wait()
    fetched = {block.line: max(seconds - kept, 0) for (block, seconds), kept in zip(installs, again, strict=True)}
    return reported(steps, fetched)


def pasted_page(terminal: Terminal, folder: Path, page: str) -> list[tuple[Block, float]]:
    """Paste all blocks of a page; the seconds of each.  Raises AssertionError where one prints something else."""
    steps: list[tuple[Block, float]] = []
    printed: list[str] = []
    for block in blocks(page):
        if block.kind == "text":
            missing = set(block.text.splitlines()) - {line.rstrip("\n") for line in printed}
            assert not missing, f"the text at line {block.line} lacks {missing}:\n{''.join(printed)}"
        elif block.kind in ("bash", "sh", "python"):
            began = time.monotonic()
            printed = paste(terminal, block, folder)
            steps.append((block, time.monotonic() - began))
            print(f"{steps[-1][1]:6.1f} s  line {block.line}: {block.text.strip().splitlines()[-1]}", flush=True)
    return steps


def reported(steps: list[tuple[Block, float]], fetched: dict[int, float]) -> int:
    """Print when the results came, beside the goals; the exit code."""
    missed = 0
    for text, goal in GOALS.items():
        end = next(number for number, (block, _) in enumerate(steps, 1) if text in block.text)
        seconds = sum(taken for _, taken in steps[:end])
        fetching = sum(fetched.get(block.line, 0) for block, _ in steps[:end])
        missed += seconds - fetching > goal
        rest = f"of which {fetching:.0f} s to fetch and build packages; the goal without: {goal:.0f} s"
        print(f"{text}: {seconds:.0f} s, {rest}")
    return min(missed, 1)


def main() -> int:
    """The exit code."""
    with tempfile.TemporaryDirectory(prefix="newcomer-") as name:
        return run(Path(name))


if __name__ == "__main__":
    sys.exit(main())
