"""Resource limits of this process."""

from __future__ import annotations

import contextlib
import resource
from typing import Final

# Requested where the system sets no limit.
_PLENTY: Final = 1 << 16


def raise_descriptor_limit() -> int:
    """Raise the limit on open files as far as allowed; the limit then.

    Shells commonly start with 1,024, far below what the system allows on request."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _PLENTY if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):  # some systems enforce a lower limit than they report
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _PLENTY if soft == resource.RLIM_INFINITY else soft
