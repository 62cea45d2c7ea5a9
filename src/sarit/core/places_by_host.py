"""Who holds a place at a port before it is known whose it is, by host: of too many, which gives way.  Pure."""

from __future__ import annotations

import ipaddress
from typing import Generic, TypeVar

C = TypeVar("C")

_IPV6_HOST_BITS = 64  # one customer has a whole network of them


def host_network(host: str) -> str:
    """What counts as one host: an IPv4 address, the /64 network of an IPv6 address, any other text as it is."""
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address) >> _IPV6_HOST_BITS << _IPV6_HOST_BITS, _IPV6_HOST_BITS)))


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
        """Count one that has come from a host; once each."""
        self._hosts.setdefault(host_network(host), {})[holder] = None
        self._size += 1

    def leave(self, host: str, holder: C) -> None:
        """Count one no more; nothing happens if it left before."""
        network = host_network(host)
        holders = self._hosts.get(network)
        if holders is not None and holder in holders:
            del holders[holder]
            self._size -= 1
            if not holders:
                del self._hosts[network]

    def pop_oldest(self) -> tuple[str, C] | None:
        """The network that has most, and its oldest holder, who counts no more; None: there is nobody.

        Its time grows with the number of hosts: ask only when there is no place left."""
        if not self._hosts:
            return None
        network = max(self._hosts, key=lambda each: len(self._hosts[each]))
        holder = next(iter(self._hosts[network]))
        self.leave(network, holder)
        return network, holder
