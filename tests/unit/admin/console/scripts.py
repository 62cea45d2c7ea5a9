"""The scripts of the console, run by node."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import sarit

SCRIPTS = Path(sarit.__file__).parent / "admin" / "console" / "assets" / "js"
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="there is no node")


def evaluate(script: str, expression: str):
    """The value of an expression in a module that imports nothing."""
    source = (SCRIPTS / script).read_text()
    code = f"{source}\nconsole.log(JSON.stringify({expression}))"
    done = subprocess.run([NODE, "--input-type=module"], input=code, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)
