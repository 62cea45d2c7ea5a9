"""The metrics of a process: which parts it has, and what they have counted."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sarit.admin.exposition import Sample
    from sarit.log.statistics import LogStatistics
    from sarit.store.server.listener import StoreListener
    from sarit.store.store import SegmentStore


class Metrics:
    """Parts become known when they exist; a part that the process does not have has no metrics."""

    def __init__(self, role: str) -> None:
        """`role`: of the process: node, store or controller."""
        self.store: SegmentStore | None = None
        self.listener: StoreListener | None = None
        self.log: LogStatistics | None = None
        self._role = role

    def __repr__(self) -> str:
        return f"<Metrics of a {self._role}>"

    def samples(self) -> Iterator[Sample]:
        """All metrics now."""
        # Here and not above: a process without the HTTP port does not need it.
        from sarit.admin import collectors

        yield "sarit_build_info", (version("sarit"), self._role), 1
        if self.store is not None:
            yield from collectors.store_samples(self.store)
        if self.listener is not None:
            yield from collectors.listener_samples(self.listener)
        if self.log is not None:
            yield from collectors.log_samples(self.log)
