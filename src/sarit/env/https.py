"""Fetching one small document by HTTPS: blocking, for a thread of its own."""

from __future__ import annotations

import http.client
import ssl
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from sarit.core.errors import Invalid, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable


def check_url(url: str) -> None:
    """Check that a URL is `https://`, or `http://` to this machine.  Raises Invalid."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise Invalid(f"{url!r} is not a URL: {error}") from None
    if parts.username is not None or parts.password is not None:
        raise Invalid(f"a URL that has a user is not fetched: {parts.scheme}://...@{host}")
    if not host or parts.scheme not in ("https", "http"):
        raise Invalid(f"{url!r} is not a URL: write https://HOST/PATH")
    if parts.scheme == "http" and not _is_loopback(host):
        raise Invalid(f"{url} is not protected on its way: use https:// (http:// is for this machine alone)")


def fetch(url: str, ca: str | None, seconds: float, max_bytes: int, now: Callable[[], float]) -> bytes:
    """Return the document at a URL, without following redirections.  `ca`: a PEM file; None: the CAs of the system.

    Raises Invalid when the URL or the CA file is wrong; Unavailable when there is no answer within `seconds`, a status
    other than 200, or more than `max_bytes`."""
    check_url(url)
    parts = urlsplit(url)
    host = parts.hostname or ""
    end = now() + seconds
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        try:
            context = ssl.create_default_context(cafile=ca)
        except (OSError, ssl.SSLError) as error:
            raise Invalid(f"the certificates in {ca} cannot be read: {error}") from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        connection = http.client.HTTPSConnection(host, parts.port, timeout=seconds, context=context)
    else:
        connection = http.client.HTTPConnection(host, parts.port, timeout=seconds)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request("GET", path, headers={"Accept": "application/json", "Connection": "close"})
        response = connection.getresponse()
        if response.status != http.HTTPStatus.OK:
            raise Unavailable(f"{url} answers {response.status} {response.reason[:80]}")
        body = b""
        # Reads in pieces and checks the time itself: a socket's time limit is for each read, and a server may send its
        # answer byte by byte.
        while piece := response.read1(max_bytes + 1 - len(body)):
            body += piece
            if len(body) > max_bytes:
                raise Unavailable(f"{url} has more than {max_bytes} bytes")
            if now() > end:
                raise Unavailable(f"{url} did not answer whole within {seconds:.0f} s")
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(f"{url} cannot be fetched: {str(error) or type(error).__name__}") from None
    finally:
        connection.close()
    return body


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
