"""Bounds of the help for tests."""

from __future__ import annotations

from typing import Final

SCOPE_NAME_BYTES: Final = 6  # of randomness in the name of a scope
STOP_SECONDS: Final = 60.0  # for a node to flush and end
LOG_END_BYTES: Final = 4000  # of the log of a node that did not start, in the error
# Of nodes for tests; Linux gives connections those from 32768 on, other systems those from 49152 on.
FIRST_PORT: Final = 15_000
LAST_PORT: Final = 32_000
