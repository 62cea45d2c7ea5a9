"""Values that were used last, within a bound of bytes.  Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """A cache of values by key that drops the ones used longest ago.  `most`: the bytes of all values together."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._bytes = 0

    def __repr__(self) -> str:
        return f"<Recent, {len(self._held)} of {self._bytes} bytes>"

    def get(self, key: K) -> V | None:
        """Return the value of a key; None if it is not held."""
        found = self._held.get(key)
        if found is None:
            return None
        self._held.move_to_end(key)
        return found[0]

    def put(self, key: K, value: V, size: int) -> None:
        """Hold a value of `size` bytes, unless it alone is too large."""
        self.drop(key)
        # A fixed share for each value, so that very small ones are bounded, too.
        size += 256
        if size > self._most:
            return
        self._held[key] = (value, size)
        self._bytes += size
        while self._bytes > self._most:
            _, (_, dropped) = self._held.popitem(last=False)
            self._bytes -= dropped

    def drop(self, key: K) -> None:
        """Hold the value of a key no longer."""
        found = self._held.pop(key, None)
        if found is not None:
            self._bytes -= found[1]
