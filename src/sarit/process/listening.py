"""Errors of listeners, in the words of the command line."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sarit.core.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def naming_port(option: str, host: str, port: int) -> Iterator[None]:
    """Errors of a listener say which option chose its port.  Raises Unavailable, OSError."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise Unavailable(
                f"port {port} of {host} is taken ({option}): stop the process that has it, or choose another port; "
                f"0 picks a free one"
            ) from None
        if error.errno == errno.EACCES:
            raise Unavailable(
                f"port {port} of {host} may not be used by this user ({option}): choose another"
            ) from None
        raise
