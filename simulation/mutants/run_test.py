"""`python -m simulation.mutants.run_test MUTANT TEST`: run a test with a mutant; exits with pytest's code."""

from __future__ import annotations

import sys

import pytest

from simulation.mutants import MUTANTS


def main(name: str, test: str) -> int:
    """pytest's exit code: 1 when the test found the mutant."""
    with MUTANTS[name].apply():
        return int(pytest.main([test, "-x", "-q", "-p", "no:cacheprovider"]))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
