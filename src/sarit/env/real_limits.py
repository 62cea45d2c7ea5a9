"""What the operating system allows this process."""

from __future__ import annotations

import contextlib
import resource
from typing import Final

# Asked for where the system sets no bound of its own.
_PLENTY: Final = 1 << 16


def raise_descriptor_limit() -> int:
    """Take as many open files as this process may have; how many that is.

    Shells commonly start with 1,024, far below what the system would allow on request."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _PLENTY if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):  # some systems have a lower bound beside the one they tell
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _PLENTY if soft == resource.RLIM_INFINITY else soft
