"""Bounds the searches of a process that are under way, in all and of each caller."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sarit.core.errors import Unavailable
from sarit.search.limits import MAX_SEARCHES, MAX_SEARCHES_OF_CALLER

if TYPE_CHECKING:
    from collections.abc import Iterator


class SearchSlots:
    """The searches under way."""

    def __init__(self, most: int = MAX_SEARCHES, most_of_caller: int = MAX_SEARCHES_OF_CALLER) -> None:
        self._most = most
        self._most_of_caller = most_of_caller
        self._callers = Counter[str]()

    def __repr__(self) -> str:
        return f"<SearchSlots, {self.taken} of {self._most}>"

    @property
    def taken(self) -> int:
        """The searches under way."""
        return self._callers.total()

    @contextmanager
    def take(self, caller: str | None) -> Iterator[None]:
        """Count a search during a block.  `caller`: None: there are no users, who could share fairly.

        Raises Unavailable: too many are under way."""
        if self.taken >= self._most:
            raise Unavailable(f"{self.taken} searches are under way, which is the limit: try again")
        if caller is not None and self._callers[caller] >= self._most_of_caller:
            raise Unavailable(f"{self._callers[caller]} searches of yours are under way, which is the limit: try again")
        name = caller or ""
        self._callers[name] += 1
        try:
            yield
        finally:
            self._callers[name] -= 1
            if not self._callers[name]:
                del self._callers[name]
