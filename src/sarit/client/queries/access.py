"""By what the relations of one query read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sarit.client.queries.loop_bridge import LoopBridge
    from sarit.client.session.session import Session
    from sarit.sql.meter import ScanMeter


@dataclass(frozen=True, slots=True)
class QueryAccess:
    """A client's session, the way to its loop, and what counts the bytes that are read."""

    session: Session
    bridge: LoopBridge
    meter: ScanMeter
