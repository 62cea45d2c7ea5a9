"""The one limit of what a test waits for."""

from typing import Final

# Only a hang takes that long, on any machine.  A test whose subject is a duration has a limit of its own.
HANG_SECONDS: Final = 300
