"""How a process ends beside threads of a library."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.limits import HANG_SECONDS

PROGRAM = """
import atexit, sys
from sarit.env.process_end import end_process

class Global:
    def __del__(self, write=sys.stdout.write):
        write("the interpreter ends")

kept = Global()
if sys.argv[1]:
    sys.modules[sys.argv[1]] = sys
atexit.register(print, "asked to be called", file=sys.stderr)
sys.stdout.write("no line ")
end_process(3)
"""


@pytest.mark.parametrize("library", ["", "obstore", "slatedb", "hdfs_native"])
def test_interpreter_does_not_end_beside_threads_that_call_it(library):
    # What is not buffered needs no flush.
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, library],
        env=environ, capture_output=True, text=True, timeout=HANG_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert done.stdout == "no line " + ("" if library else "the interpreter ends")
    assert done.stderr == "asked to be called\n"
