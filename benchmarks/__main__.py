"""`make bench`, or `python -m benchmarks`: measure Sarit and its peers, write JSON, print the table.

Options: --quick (short runs, for a first look), --long (100,000 streams, 1,000 checkpoints), --only ROW (may be
repeated), --no-peers, --dir DIR (the data directory, on the disk to be measured).
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import figures
from benchmarks.contract_rows import CONTRACT_ROWS
from benchmarks.harness import FILLED_DISK_PART, ROOT
from benchmarks.measure import measure_rows
from benchmarks.sarit_rows import FAST_ROW_BYTES
from benchmarks.sarit_rows import ROWS as STREAM_ROWS
from benchmarks.scale import Scale

ROWS = STREAM_ROWS | CONTRACT_ROWS
RESULTS = Path(__file__).resolve().parent / "results"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure Sarit and its peers.")
    parser.add_argument("--quick", action="store_true", help="short runs: not accurate enough for verdicts")
    parser.add_argument("--long", action="store_true", help="100,000 streams and 1,000 checkpoints")
    parser.add_argument("--only", action="append", metavar="ROW", help=f"one of {', '.join(ROWS)}")
    parser.add_argument("--no-peers", action="store_true", help="Sarit alone")
    parser.add_argument("--dir", type=Path, default=ROOT / ".cache" / "bench", help="the data directory")
    return parser.parse_args()


def _git() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def _say_disk(directory: Path, *, quick: bool) -> None:
    free = shutil.disk_usage(directory).free
    needed = FAST_ROW_BYTES // (10 if quick else 1)
    text = f"{free / 1e9:.0f} GB are free in {directory}"
    if free * FILLED_DISK_PART < needed:
        text += f"; the largest rows write up to {needed / 1e9:.0f} GB: they will write less, and end earlier"
    print(text, flush=True)


def main() -> None:
    """Run, write, print."""
    options = _options()
    scale = Scale(options.quick, options.long)
    options.dir.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="run", dir=options.dir))
    only = options.only or []
    _say_disk(options.dir, quick=options.quick)
    begun = datetime.datetime.now(datetime.UTC)
    results: dict[str, Any] = {
        "begun": begun.isoformat(timespec="seconds"), "commit": _git(), "quick": options.quick, "long": options.long,
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} CPUs, Linux {platform.release()}",
    }  # fmt: skip
    try:
        results[figures.SARIT] = measure_rows(ROWS, "Sarit", directory / "sarit", scale, only)
        if options.long and "streams" in results[figures.SARIT]["rows"]:
            results[figures.SARIT]["rows"]["streams-100k"] = results[figures.SARIT]["rows"]["streams"]
        if not options.no_peers:
            from benchmarks.peer_rows import measure_peers

            results |= measure_peers(directory, scale, only)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    results["ratios"], results["figures"] = figures.ratios(results), figures.judged(results)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{begun:%Y%m%dT%H%M%SZ}{'-quick' if options.quick else ''}.json"
    path.write_text(json.dumps(results, indent=1) + "\n")
    print(figures.table(results))
    print(f"\nwritten to {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
