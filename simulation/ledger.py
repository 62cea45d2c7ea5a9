"""The ledger `benchmarks/results/reliability.jsonl`: a line per run, with its extent, its coverage and its
violations."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any, Final

LEDGER: Final = Path(__file__).parent.parent / "benchmarks" / "results" / "reliability.jsonl"


def _git(*arguments: str) -> str:
    run = subprocess.run(["git", *arguments], cwd=LEDGER.parent, capture_output=True, text=True, check=False)
    return run.stdout.strip()


def code_now() -> dict[str, Any]:
    """The commit of this tree, and whether files differ from it."""
    return {
        "commit": _git("rev-parse", "--short", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--untracked-files=no")),
    }


def write_line(suite: str, started: float, fields: dict[str, Any]) -> None:
    """Append the line of a run that began at `started` (seconds since 1970).

    A long run puts `code_now()` of its beginning into the fields: the tree may get other commits while it runs."""
    line = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        **code_now(),
        "suite": suite,
        "real_seconds": round(time.time() - started),
        **fields,
    }
    with LEDGER.open("a") as file:
        file.write(json.dumps(line) + "\n")
