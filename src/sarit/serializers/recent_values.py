"""Values that were asked for last, within a bound of their number or of their bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class RecentValues(Generic[K, V]):
    """A cache of values by key that drops the ones asked for longest ago.  May be shared by threads."""

    def __init__(self, most: int, share: int = 0) -> None:
        """`most`: of all sizes together.  `share`: is added to the size of each value, so that very small ones are
        bounded, too."""
        self._most = most
        self._share = share
        self._held: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<RecentValues, {len(self._held)} of size {self._size}, at most {self._most}>"

    def __reduce__(self) -> tuple[object, ...]:
        # Another process begins without values: a lock cannot be sent, and values are asked for again.
        return RecentValues, (self._most, self._share)

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: K) -> V | None:
        """Return the value of a key; None if it is not held."""
        with self._lock:
            found = self._held.get(key)
            if found is None:
                return None
            self._held.move_to_end(key)
            return found[0]

    def put(self, key: K, value: V, size: int = 1) -> None:
        """Hold a value, unless it alone is too large.  `size`: 1 where values are counted, else bytes."""
        size += self._share
        with self._lock:
            self._drop(key)
            if size > self._most:
                return
            self._held[key] = (value, size)
            self._size += size
            while self._size > self._most:
                _, (_, dropped) = self._held.popitem(last=False)
                self._size -= dropped

    def drop(self, key: K) -> None:
        """Hold the value of a key no longer."""
        with self._lock:
            self._drop(key)

    def clear(self) -> None:
        """Hold nothing any longer."""
        with self._lock:
            self._held.clear()
            self._size = 0

    def _drop(self, key: K) -> None:
        found = self._held.pop(key, None)
        if found is not None:
            self._size -= found[1]


__all__ = ["RecentValues"]
