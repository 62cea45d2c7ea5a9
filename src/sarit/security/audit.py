"""The audit log: a JSON line for each decision, who asked for what, from where, and whether it was allowed.

Reads and writes of data appear once for each token, not for each request.  Lines go to a file of their own.  When it
cannot be written, the process says so in its log, and serves on.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable


class Audit(Protocol):
    """Where decisions are noted."""

    def note(self, *, who: str, what: str, resource: str, peer: str, allowed: bool, why: str = "") -> None:
        """One decision; `what`: the call, `resource`: of `permissions`, `peer`: address and port."""


class NoAudit:
    """Notes nothing."""

    def note(self, *, who: str, what: str, resource: str, peer: str, allowed: bool, why: str = "") -> None:
        """See `Audit`."""


class AuditLog:
    """Writes lines to a logger, whose handler has the file.  `wall_ms`: the time, in ms since 1970."""

    def __init__(self, logger: logging.Logger, wall_ms: Callable[[], int]) -> None:
        self._logger = logger
        self._wall_ms = wall_ms

    def note(self, *, who: str, what: str, resource: str, peer: str, allowed: bool, why: str = "") -> None:
        """See `Audit`."""
        line = {"ms": self._wall_ms(), "who": who, "what": what, "resource": resource, "from": peer, "allowed": allowed}
        if why:
            line["why"] = why
        self._logger.info("%s", json.dumps(line, ensure_ascii=True))
