"""What the indexes of a process asked of their object store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

REQUEST_KINDS: Final = ("put", "get", "head", "list", "delete")


class IndexStatistics:
    """`requests()`: counts by kind since the start of the process; empty while no index is on an object store."""

    def __init__(self) -> None:
        self._count_requests: Callable[[], Mapping[str, int]] = dict

    def __repr__(self) -> str:
        return f"<IndexStatistics {self.requests()}>"

    def requests(self) -> Mapping[str, int]:
        """Count the requests so far, by kind."""
        return self._count_requests()

    def count_requests_with(self, count: Callable[[], Mapping[str, int]]) -> None:
        """Take the numbers of requests from `count`: the indexes are on an object store."""
        self._count_requests = count
