"""A node in a process of its own, for tests that run in the environment of training frameworks, which has no node."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
SARIT = ROOT / ".venv" / "bin" / "sarit"


@contextmanager
def running_node(directory: Path) -> Iterator[str]:
    """The address of its controller."""
    command = [str(SARIT), "standalone", "--data-dir", str(directory / "node"), "--controller-port", "0"]
    env = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    process = subprocess.Popen(
        [*command, "--store-port", "0", "--http-port", "off"], stdout=subprocess.PIPE, text=True, env=env
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if "sarit is ready" in line:
                yield line.partition("controller ")[2].split(",")[0].split()[0]
                break
        else:
            raise AssertionError("the node did not start")
    finally:
        process.terminate()
        process.wait()
