"""Names under which the HTTP port may be asked: pure.

A browser that may reach the port also shows pages of others.  An attacker who has the name of such a page resolved to
the address of the port (DNS rebinding) makes the browser send requests to it, and read the answers.  The name in `Host`
gives that away: it is the attacker's.  An address is safe, because no name server of somebody else can change it.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def host_name(host: str) -> str:
    """Return the name or address in a `Host` header, in lower case; "" when it is none."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def is_own_host(host: str, names: frozenset[str]) -> bool:
    """Return whether a `Host` header names this process: an address, localhost, or one of `names` (lower case)."""
    name = host_name(host)
    if name == "localhost" or name.endswith(".localhost") or name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def host_refusal(host: str, names: frozenset[str]) -> str | None:
    """Return why a request with this `Host` header is refused (status 421); None: the header names this process."""
    if is_own_host(host, names):
        return None
    return f"the host {host[:100]!r} is no name of this process: use its address, or start it with --http-name NAME"
