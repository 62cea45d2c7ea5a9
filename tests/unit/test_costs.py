"""The costs of test files count the processes that tests start, and the files that begin first are there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import LONG
from tests.costs import processor_seconds

ROOT = Path(__file__).parents[2]
WORK = "import time\nwhile time.process_time() < 0.5: pass\n"


def test_processor_time_counts_children_that_run_and_that_have_ended() -> None:
    before = processor_seconds(os.getpid())
    subprocess.run([sys.executable, "-c", WORK], check=True)
    ended = processor_seconds(os.getpid())
    assert ended - before >= 0.4
    with subprocess.Popen(
        [sys.executable, "-c", WORK + "print('done', flush=True); input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        assert child.stdin is not None
        child.stdout.readline()
        running = processor_seconds(os.getpid())
        child.stdin.close()
    assert running - ended >= 0.4


def test_files_that_begin_first_exist() -> None:
    assert [name for name in LONG if not (ROOT / name).exists()] == []
