"""What a command imports, in a process that has imported nothing before (others begin in tests/fork_server.py)."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.limits import HANG_SECONDS

PROGRAM = """
import json, sys
from sarit.cli.main import main
try:
    main()
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""
NODES_ALONE = {"sarit.process.standalone", "sarit.store", "starlette", "uvicorn", "prometheus_client", "sqlite3"}
DATA = {"numpy", "pyarrow", "pandas", "pyspark", "obstore", "kazoo"}


@pytest.mark.parametrize(
    ("words", "code", "without"),
    [
        (["--help"], 0, {"asyncio", "h2", "sarit.client.aio"} | NODES_ALONE | DATA),
        (["write", "a/b"], 1, NODES_ALONE | DATA),
        (["stream", "list", "a"], 1, NODES_ALONE | DATA),
    ],
)
def test_command_imports_what_it_needs(words, code, without):
    address = [] if words == ["--help"] else ["--controller", "127.0.0.1:1"]
    command = [sys.executable, "-c", PROGRAM, *words, *address]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )
    *said, modules = done.stderr.splitlines()
    assert done.returncode == code, said
    assert "Traceback" not in done.stderr
    assert not without & set(json.loads(modules))
