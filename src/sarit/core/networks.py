"""Networks of hosts: what counts as one client where a limit is for each host.  Pure."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Network, ip_address
from typing import Final

from sarit.core.limits import MAX_CACHED_NETWORKS, MAX_NETWORK_CHARACTERS

_HOST_BITS: Final = 64  # an access provider gives a whole /64 to one customer, and often more


@lru_cache(MAX_CACHED_NETWORKS)
def network_of(host: str) -> str:
    """Return an IPv4 address itself, also one written as IPv6; the /64 of an IPv6 address; another text, cut."""
    try:
        # Drops brackets, and the interface of a link-local address.
        address = ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host[:MAX_NETWORK_CHARACTERS]
    if isinstance(address, IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)  # a socket for both kinds shows IPv4 addresses so
    return str(IPv6Network((int(address) >> _HOST_BITS << _HOST_BITS, 128 - _HOST_BITS)))


def network_of_peer(peer: str) -> str:
    """Return the network of `HOST:PORT`."""
    host, colon, _ = peer.rpartition(":")
    return network_of(host if colon else peer)
