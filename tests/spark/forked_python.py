"""A Python for Spark that forks: its workers, planners and stream readers find everything imported.

Spark starts a Python process for each kind of work of each session and query, and each imports PySpark, pandas and
Arrow from the beginning: a second of processor time and more, dozens of times.  `program` is for PYSPARK_PYTHON.  It
has a server fork a process with the descriptors, environment and arguments that Spark gave it, as
`tests/fork_server.py` does for `sarit`.

With SARIT_TEST_FRESH=1 Spark starts processes of its own.  `make spark-matrix` does so.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.fork_server import FRESH, ROOT, _become, _execute, _line

PRELOADED = (
    "numpy", "pandas", "pyarrow", "pyarrow.compute", "pyspark.worker", "pyspark.sql.types", "pyspark.sql.pandas.types",
    "pyspark.sql.conversion", "pyspark.sql.datasource", "pyspark.sql.datasource_internal",
    "pyspark.sql.worker.create_data_source", "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source", "sarit.spark", "sarit.spark.data_source",
    "sarit.client.blocking.client", "uvloop", "ssl",
)  # fmt: skip
# Runs without `site`, for it is to be quick: it hands its descriptors over, and waits for the end.
LAUNCHER = """#!{python} -SIE
import json, os, socket, sys
words = sys.argv[1:]
if words[:1] != ["-m"] or not words[1].startswith("pyspark."):
    os.execv({python!r}, [{python!r}, *words])
with socket.socket(socket.AF_UNIX) as server:
    server.connect({place!r})
    socket.send_fds(server, [b"j"], [0, 1, 2])
    server.sendall(json.dumps({{"argv": words, "cwd": os.getcwd(), "env": dict(os.environ)}}).encode() + b"\\n")
    sys.exit(int(server.recv(20) or 1))
"""


@functools.cache
def program() -> str:
    """Return the path of a Python whose `-m pyspark...` is a fork of a server of this process."""
    if FRESH:
        return sys.executable
    folder = tempfile.TemporaryDirectory()
    place, launcher = str(Path(folder.name) / "server"), Path(folder.name) / "python"
    launcher.write_text(LAUNCHER.format(python=sys.executable, place=place))
    launcher.chmod(0o700)
    # Spark has the same PYTHONHASHSEED in all its workers; a thread of OpenBLAS would not live on in a fork.
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.forked_python", place], cwd=ROOT, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, env={**os.environ, "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdout.readline()  # it listens
    atexit.register(folder.cleanup)
    atexit.register(server.stdin.close)
    return str(launcher)


def _serve(listener: socket.socket) -> dict[str, Any]:
    """Fork for each launcher until the tests end.  Returns in the child, with what it is to do."""
    pids: dict[int, tuple[int, socket.socket]] = {}  # pidfd -> process, its launcher
    with selectors.DefaultSelector() as ready:
        ready.register(listener, selectors.EVENT_READ, "launcher")
        ready.register(0, selectors.EVENT_READ, "end")
        while True:
            for key, _ in ready.select():
                if key.data == "end":
                    os._exit(0)
                elif key.data == "launcher":
                    launcher, _ = listener.accept()
                    _, descriptors, _, _ = socket.recv_fds(launcher, 1, 3)
                    job: dict[str, Any] = json.loads(_line(launcher))
                    pid = os.fork()
                    if pid == 0:
                        return {**job, "descriptors": descriptors}
                    for descriptor in descriptors:
                        os.close(descriptor)
                    pidfd = os.pidfd_open(pid)
                    pids[pidfd] = pid, launcher
                    ready.register(pidfd, selectors.EVENT_READ, "ended")
                    ready.register(launcher, selectors.EVENT_READ, pid)
                elif key.data == "ended":
                    ready.unregister(key.fd)
                    os.close(key.fd)
                    pid, launcher = pids.pop(key.fd)
                    with suppress(KeyError):
                        ready.unregister(launcher)
                    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    with launcher, suppress(OSError):
                        launcher.sendall(b"%d\n" % (code if code >= 0 else 128 - code))
                else:  # Spark has ended the launcher
                    ready.unregister(key.fileobj)
                    os.kill(key.data, signal.SIGTERM)


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(sys.argv[1])
        listener.listen(64)
        print("listens", flush=True)
        job = _serve(listener)
    _become(job)
    _execute(sys.executable, *job["argv"])


if __name__ == "__main__":
    _main()
