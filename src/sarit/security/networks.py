"""Networks that limits count by: whoever has one IPv6 address has 2^64 of them, and one budget."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import Final

from sarit.security.limits import MAX_CACHED_NETWORKS, MAX_NETWORK_CHARACTERS

_HOST_BITS: Final = 64  # an access provider gives a whole /64 to one customer, and often more


def network_of(peer: str) -> str:
    """The network of `HOST:PORT`: an IPv4 address by itself, also one written as IPv6; the /64 of an IPv6 address."""
    return _network(peer.rpartition(":")[0] or peer)


@lru_cache(MAX_CACHED_NETWORKS)
def _network(host: str) -> str:
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return host[:MAX_NETWORK_CHARACTERS]
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address) >> _HOST_BITS << _HOST_BITS, 128 - _HOST_BITS)))
