"""The traceback that a user sees: the line that called Sarit, and one frame of ours.

An error of Sarit says in its text what happened and what to do.  The frames of the event loop, of retries and of
connections say nothing to its reader, so the border to the user removes them, and the chain of causes with them.
The log `sarit.client` has both at DEBUG.  Errors of any other class are bugs, ours or the user's: they stay whole.
"""

from __future__ import annotations

import logging
from typing import TypeVar

from sarit.core.errors import SaritError

E = TypeVar("E", bound=SaritError)

log = logging.getLogger("sarit.client")


def trimmed(error: E) -> E:
    """Return an error without its frames; to be raised `from None`.  At DEBUG the log has them."""
    if error.__traceback__ is not None and log.isEnabledFor(logging.DEBUG):
        log.debug("raised to the caller: %s", error, exc_info=error)
    return error.with_traceback(None)
