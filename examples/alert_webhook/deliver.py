"""Matches of continuous queries go to a webhook, each at least once, in their order.

    python examples/alert_webhook/deliver.py --allow hooks.example.com --state alerts.position \
        shop/alerts https://hooks.example.com/alerts

The position in the file is written after an answer 2xx, so a crash may deliver the last match again: its
`Sarit-Match` header is the same then.  Answers 429 and 5xx, and connections that fail, are tried again, after pauses
that double up to a minute; any other answer sets the match aside, with a line on standard error.

Who may choose a URL must not reach what only this machine can reach.  So a host has to be allowed by name, on the
command line of who runs this program; the name is resolved once for each connection, and if any of its addresses is
private, loopback or otherwise not public, nothing is sent; the connection goes to the very address that was checked.
Redirects are not followed.  Without TLS nothing is sent either, and proxies of the environment are not used.
"""

from __future__ import annotations

import argparse
import http.client
import ipaddress
import json
import os
import socket
import ssl
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, urlsplit

import sarit

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

SECONDS: Final = 10.0
"""For a connection, and for an answer."""
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
MAX_ANSWER_BYTES: Final = 65_536


class Refused(Exception):
    """Nothing may be sent to a URL, whatever its server says."""


def checked_url(url: str, allowed: Collection[str]) -> SplitResult:
    """Return the parts of a URL that matches may be sent to.  Raises Refused."""
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname or parts.username is not None:
        raise Refused(f"{url}: give a URL with https, a host, and no user")
    if parts.hostname not in allowed:
        raise Refused(f"{parts.hostname} is not allowed: allow it with --allow {parts.hostname}")
    return parts


def public_address(host: str, port: int) -> str:
    """Return an address of a host, all of whose addresses are public.  Raises Refused, OSError."""
    found = [str(each[4][0]) for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    for address in found:
        if not is_public(address):
            raise Refused(f"{host} is refused: its address {address} is not public")
    return found[0]


def is_public(address: str) -> bool:
    """Return whether an address is one of the Internet: not private, loopback, of a link, reserved or multicast."""
    known = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(known, "ipv4_mapped", None) or getattr(known, "sixtofour", None)
    return known.is_global and not known.is_multicast and (mapped is None or is_public(str(mapped)))


class Checked(http.client.HTTPSConnection):
    """A connection to an address that was checked, with the certificate of the host."""

    def connect(self) -> None:
        """Connect.  Raises Refused, OSError."""
        address = public_address(self.host, self.port)
        plain = socket.create_connection((address, self.port), SECONDS)
        self.sock = self.context.wrap_socket(plain, server_hostname=self.host)

    context = ssl.create_default_context()


def send(parts: SplitResult, match: bytes) -> int:
    """Send one match.  Returns the status of the answer.  Raises Refused, OSError, http.client.HTTPException."""
    connection = Checked(parts.hostname or "", parts.port or 443, timeout=SECONDS)
    try:
        document = json.loads(match)
        name = f"{document['id']}/{document['segment']}/{document['offset']}"
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", path, match, {"Content-Type": "application/json", "Sarit-Match": name})
        answer = connection.getresponse()
        answer.read(MAX_ANSWER_BYTES)
        return answer.status
    finally:
        connection.close()


def deliver(match: bytes, once: Callable[[bytes], int], pause: Callable[[float], None] = time.sleep) -> str:
    """Send a match until it is answered.  Returns why it was set aside; empty: it was taken.  Raises Refused."""
    seconds = FIRST_PAUSE
    while True:
        try:
            status = once(match)
        except (OSError, http.client.HTTPException) as error:
            print(f"tried again in {seconds:.0f} s: {error}", file=sys.stderr)
        else:
            if 200 <= status < 300:
                return ""
            if status != 429 and status < 500:
                return f"the answer was {status}"
            print(f"tried again in {seconds:.0f} s: the answer was {status}", file=sys.stderr)
        pause(seconds)
        seconds = min(2 * seconds, LONGEST_PAUSE)


def run(client: sarit.Client, stream: str, state: Path, once: Callable[[bytes], int], *, follow: bool) -> int:
    """Deliver the matches of a stream from the position in a file.  Returns how many were taken."""
    start = state.read_text() if state.exists() else "head"
    taken = 0
    with client.reader(stream, start=start, end=None if follow else "tail") as reader:
        for match in reader:
            aside = deliver(bytes(match), once)
            if aside:
                print(f"set aside: {aside}: {bytes(match)[:200]!r}", file=sys.stderr)
            else:
                taken += 1
            written = state.with_name(state.name + ".new")
            written.write_text(str(reader.position()))
            os.replace(written, state)
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stream")
    parser.add_argument("url")
    parser.add_argument("--allow", action="append", default=[], metavar="HOST", help="a host that may be sent to")
    parser.add_argument("--state", type=Path, default=Path("alerts.position"), help="the file with the position")
    parser.add_argument("--follow", action="store_true", help="do not end at the present tail")
    parser.add_argument("--controller")
    chosen = parser.parse_args()
    try:
        parts = checked_url(chosen.url, chosen.allow)
        public_address(parts.hostname or "", parts.port or 443)
        with sarit.connect(chosen.controller) as client:
            taken = run(client, chosen.stream, chosen.state, lambda match: send(parts, match), follow=chosen.follow)
    except Refused as error:
        print(error)
        return 1
    print(f"{taken} matches were delivered")
    return 0


if __name__ == "__main__":
    sys.exit(main())
