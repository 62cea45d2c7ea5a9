"""Bounds and intervals of the client's own; most are in `core/limits.py`."""

from __future__ import annotations

from typing import Final

# A store that is silent while replies are due.  Checks: that many in each keep-alive interval of so long or more.
CHECKS_PER_KEEP_ALIVE: Final = 8
CHECKED_KEEP_ALIVE_SECONDS: Final = 2.5
ECHO_AFTER_CHECKS: Final = 2  # without a byte
ASK_OWNER_AFTER_CHECKS: Final = 4  # the controller is asked first, then less and less often
# A connection to a store that is not made by then: the controller is asked likewise.
ASK_OWNER_AFTER_SECONDS: Final = 5.0
ASK_OWNER_AGAIN_SECONDS: Final = 2.5
# Of several controllers, the one in use: silence before an echo is requested, and for its answer.
CONTROLLER_KEEP_ALIVE_SECONDS: Final = 4.0
