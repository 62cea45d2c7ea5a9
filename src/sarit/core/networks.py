"""Networks of hosts: what counts as one client where a limit is for each host.  Pure."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Network, ip_address


def network_of(host: str) -> str:
    """The address of a peer by IPv4, or its /64 by IPv6, of which it may use each address; other texts as they are."""
    try:
        address = ip_address(host.partition("%")[0])  # without the interface of a link-local address
    except ValueError:
        return host
    if isinstance(address, IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)  # on a socket of both
    return str(IPv6Network((int(address) >> 64 << 64, 64)))
