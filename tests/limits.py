"""The limits of what a test waits for."""

import os
import time
from typing import Final

# Only a hang takes that long, on any machine.  A test whose subject is a duration has a limit of its own.
HANG_SECONDS: Final = 300

_WORK: Final = 1_000_000
_WORK_SECONDS: Final = 0.045  # of the machine that the limits were chosen on
_MOST_TIMES: Final = 8.0


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
