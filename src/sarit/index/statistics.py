"""The counters of the requests of a process's indexes to their object store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

REQUEST_KINDS: Final = ("put", "get", "head", "list", "delete")


class IndexStatistics:
    """The requests of the indexes by kind since the start of the process; none without an index on an object store."""

    def __init__(self) -> None:
        self._count_requests: Callable[[], Mapping[str, int]] = dict

    def __repr__(self) -> str:
        return f"<IndexStatistics {self.requests()}>"

    def requests(self) -> Mapping[str, int]:
        """Return the number of requests so far, by kind."""
        return self._count_requests()

    def count_requests_with(self, count: Callable[[], Mapping[str, int]]) -> None:
        """Let `requests` call `count`, since the indexes are on an object store."""
        self._count_requests = count
