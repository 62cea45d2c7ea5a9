"""Who holds a place at a port before it is known whose it is, by host: of too many, which gives way.  Pure."""

from __future__ import annotations

from typing import Generic, TypeVar

from sarit.core.networks import network_of

C = TypeVar("C")


class PlacesByHost(Generic[C]):
    """The holders of places, by host in order of arrival."""

    def __init__(self) -> None:
        self._hosts: dict[str, dict[C, None]] = {}
        self._size = 0

    def __repr__(self) -> str:
        return f"<PlacesByHost of {self._size} from {len(self._hosts)} hosts>"

    def __len__(self) -> int:
        return self._size

    def enter(self, host: str, holder: C) -> None:
        """Add a holder that has come from a host; call it once for each."""
        self._hosts.setdefault(network_of(host), {})[holder] = None
        self._size += 1

    def leave(self, host: str, holder: C) -> None:
        """Remove a holder; nothing happens if it left before."""
        network = network_of(host)
        holders = self._hosts.get(network)
        if holders is not None and holder in holders:
            del holders[holder]
            self._size -= 1
            if not holders:
                del self._hosts[network]

    def count(self, host: str) -> int:
        """Return the number of holders of a host's network."""
        return len(self._hosts.get(network_of(host), ()))

    def pop_oldest_of(self, host: str) -> C | None:
        """Remove and return the oldest holder of a host's network; None: it has none."""
        holder = next(iter(self._hosts.get(network_of(host), ())), None)
        if holder is not None:
            self.leave(host, holder)
        return holder

    def pop_oldest(self) -> tuple[str, C] | None:
        """Remove the oldest holder of the network that has most; return both.  None: there is no holder.

        Its time grows with the number of hosts: call it only when there is no place left."""
        if not self._hosts:
            return None
        network = max(self._hosts, key=lambda each: len(self._hosts[each]))
        holder = next(iter(self._hosts[network]))
        self.leave(network, holder)
        return network, holder
