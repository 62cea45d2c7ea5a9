"""The limits of what a test waits for, and how many cases are drawn at random."""

import os
import time
from typing import Final

# Only a hang takes that long, on any machine.  A test whose subject is a duration has a limit of its own.
HANG_SECONDS: Final = 300

# `make prove` sets it: as many drawn cases as a test names.
FULL: Final = "SARIT_TEST_FULL" in os.environ
_SHARE: Final = 4
# Of a test that names no number.
USUAL_EXAMPLES: Final = 100

_WORK: Final = 1_000_000
_WORK_SECONDS: Final = 0.045  # of the machine that the limits were chosen on
_MOST_TIMES: Final = 8.0


def examples(count: int) -> int:
    """Return how many cases a test draws of `count`: all in `make prove`, a fourth in the default suite."""
    return count if FULL else -(-count // _SHARE)


def slowness() -> float:
    """Return how many times longer work takes now than on an idle machine of usual speed: 1 to 8.

    A short measurement alone may fall between two turns of other processes, so their number counts, too."""
    began = time.process_time()
    sum(range(_WORK))
    slow = (time.process_time() - began) / _WORK_SECONDS
    processes_for_a_processor = os.getloadavg()[0] / (os.cpu_count() or 1)
    return min(_MOST_TIMES, max(1.0, slow) * max(1.0, processes_for_a_processor))


def patient(seconds: float) -> float:
    """Return how long to wait now for what takes `seconds` at most on an idle machine."""
    return seconds * slowness()
