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

# Arrow reads ahead on a thread of its own: it is in the generator, or calls it next, while the process ends.
READING_AHEAD = """
import time
import pyarrow as pa, pyarrow.dataset as ds
from sarit.env.process_end import end_process

schema = pa.schema([("a", pa.int64())])

def batches():
    for at in range(100):
        yield pa.record_batch([pa.array([at])], schema)
        time.sleep(0.01)

source = pa.RecordBatchReader.from_batches(schema, batches())
rows = ds.Scanner.from_batches(source, columns=["a"], filter=ds.field("a") >= 0).to_reader()
print(rows.read_next_batch().num_rows)
end_process(3)
"""


@pytest.mark.parametrize("library", ["", "obstore", "slatedb", "hdfs_native", "pyarrow"])
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


def test_process_ends_while_arrow_reads_batches_of_python():
    done = subprocess.run(
        [sys.executable, "-c", READING_AHEAD], capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "1\n", "")
