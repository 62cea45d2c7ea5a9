"""`python -m fuzz [TARGET ...] --seconds N`: coverage-guided fuzzing with atheris, N seconds for each target.

Each target runs in a process of its own.  Cases are in `fuzz/corpus/TARGET/`, one small file each; `tests/test_fuzz.py`
runs all of them.  A failure is left in the working directory as `crash-*`: fix the bug, then add the file to the
corpus.  New cases that a run reaches go to `--grow DIRECTORY`. Needs `uv sync --group fuzz`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

CORPUS: Final = Path(__file__).parent / "corpus"
_MAX_BYTES: Final = 16_384


def fuzz(name: str, arguments: list[str]) -> None:
    """In this process; does not return."""
    import atheris

    with atheris.instrument_imports():
        from fuzz.targets import TARGETS
    atheris.Setup([sys.argv[0], *arguments], TARGETS[name])
    atheris.Fuzz()


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--seconds", type=int, default=30, help="for each target")
    parser.add_argument("--seed", type=int, default=0, help="0: drawn")
    parser.add_argument("--grow", type=Path, help="directory of new cases, reused by later runs")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    given, rest = parser.parse_known_args()
    if given.inside:
        fuzz(given.inside, rest)
    from fuzz.targets import TARGETS

    failed = []
    with tempfile.TemporaryDirectory() as scratch:
        for name in given.targets or TARGETS:
            grown = (given.grow or Path(scratch)) / name
            seeds = Path(scratch) / "seeds" / name
            for directory in (grown, seeds):
                directory.mkdir(parents=True, exist_ok=True)
            for number, seed in enumerate(TARGETS[name].seeds):
                (seeds / str(number)).write_bytes(seed)
            places = [str(place) for place in (grown, seeds, CORPUS / name) if place.exists()]
            options = [f"-max_total_time={given.seconds}", f"-max_len={_MAX_BYTES}", f"-seed={given.seed}"]
            run = subprocess.run(
                [sys.executable, "-m", "fuzz", "--inside", name, *options, "-print_final_stats=1", *places],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            stats = [line for line in run.stderr.splitlines() if "number_of_executed_units" in line]
            print(f"{name}: {'ok' if run.returncode == 0 else 'FAILED'} {' '.join(stats)}", flush=True)
            if run.returncode:
                failed.append(name)
                print(run.stdout[-2000:], run.stderr[-4000:], flush=True)
    print(f"{len(failed)} targets failed: {failed}" if failed else "nothing found")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
