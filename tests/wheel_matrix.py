"""The wheel in empty environments of each Python from 3.11 that is here: `python -m tests.wheel_matrix`.

In each: a node with the extra `node`, `tests/client_smoke.py` by a client that has no extra, a stop.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.nodes import RunningNode

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
UV = str(Path(sys.executable).with_name("uv"))


def run(*command: object) -> str:
    """What it prints.  Raises AssertionError with its words."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout.strip()


def interpreter(version: str) -> str | None:
    """The path of a Python of that version; None: there is none here."""
    places = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    if places:
        return str(places[-1])
    done = subprocess.run([UV, "python", "find", "--no-python-downloads", version], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def try_one(python: str, wheel: Path, folder: Path) -> str:
    """Install the wheel and use it; the version of Python.  Raises AssertionError."""
    for name, what in (("client", wheel), ("node", f"{wheel}[node]")):
        run(UV, "venv", "--quiet", "--python", python, folder / name)
        run(UV, "pip", "install", "--quiet", "--python", folder / name / "bin" / "python", what)
    client, server = folder / "client" / "bin", folder / "node" / "bin"
    environ = {**os.environ, "PATH": f"{server}:/usr/bin:/bin"}
    with RunningNode(folder / "data", sarit=[str(server / "sarit")], env=environ) as node:
        run(client / "python", "-I", ROOT / "tests" / "client_smoke.py", node.controller)
        assert node.stop() == 0
    return run(client / "python", "--version")


def main() -> int:
    """Print a line for each version; the exit code is 1 if one fails."""
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(UV, "build", "--quiet", "--no-build-isolation", "--out-dir", folder, ROOT)
        (wheel,) = folder.glob("*.whl")
        (source,) = folder.glob("*.tar.gz")
        for version in VERSIONS:
            python = interpreter(version)
            if python is None:
                print(f"{version}: not here", flush=True)
                continue
            try:
                (folder / version).mkdir()
                print(f"{version}: works ({try_one(python, wheel, folder / version)})", flush=True)
            except AssertionError as error:
                failed += 1
                print(f"{version}: FAILED\n{error}", flush=True)
        print(f"{wheel.name} {wheel.stat().st_size:,} bytes, {source.name} {source.stat().st_size:,} bytes")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
