"""`python -m simulation.mutants.run_test MUTANT TEST`: run a test with a mutant; exits with pytest's code.

With `--children` before them, any number of pairs: each runs in a child, which has all modules already, and its code is
in a line."""

from __future__ import annotations

import os
import sys
from typing import Final

import pytest

from simulation.mutants import MUTANTS

_OPTIONS: Final = ("-x", "-q", "-p", "no:cacheprovider")
# Of a child, whose output nobody reads: to find the source lines of a traceback is most of what a short test costs.
_SILENT: Final = ("--tb=no",)


def main(name: str, test: str, *options: str) -> int:
    """pytest's exit code: 1 when the test found the mutant."""
    with MUTANTS[name].apply():
        return int(pytest.main([test, *_OPTIONS, *options]))


def _load_plugins() -> None:
    """Load pytest's plugins here: the children then have them, and they are most of what a short test costs."""
    out, silent = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    pytest.main(["--collect-only", *_OPTIONS, "tests/limits.py"])
    sys.stdout.flush()
    os.dup2(out, 1)
    os.close(out)
    os.close(silent)


def in_children(pairs: list[tuple[str, str]]) -> None:
    """Print the mutants and the exit codes of their tests."""
    _load_plugins()
    for name, test in pairs:
        child = os.fork()
        if not child:
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 1)
            os.dup2(silent, 2)
            os._exit(main(name, test, *_SILENT))
        _, status = os.waitpid(child, 0)
        print(name, os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    if sys.argv[1] != "--children":
        sys.exit(main(*sys.argv[1:]))
    in_children(list(zip(sys.argv[2::2], sys.argv[3::2], strict=True)))
