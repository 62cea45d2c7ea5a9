"""One request by HTTPS and its small answer: blocking, for a thread of its own."""

from __future__ import annotations

import http.client
import ssl
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from sarit.core.errors import Invalid, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_SHOWN_REASON: Final = 80


class HttpAnswer(NamedTuple):
    """The answer to one request, whatever its status is."""

    status: int
    reason: str
    body: bytes


def check_url(url: str, *, plain: bool = False) -> None:
    """Check that a URL is `https://`, or `http://` to this machine; `plain`: to any machine.  Raises Invalid."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise Invalid(f"{url!r} is not a URL: {error}") from None
    if parts.username is not None or parts.password is not None:
        raise Invalid(f"a URL that has a user is not fetched: {parts.scheme}://...@{host}")
    if not host or parts.scheme not in ("https", "http"):
        raise Invalid(f"{url!r} is not a URL: write https://HOST/PATH")
    if parts.scheme == "http" and not plain and not _is_loopback(host):
        raise Invalid(f"{url} is not protected on its way: use https:// (http:// is for this machine alone)")


def fetch(url: str, ca: str | None, seconds: float, max_bytes: int, now: Callable[[], float]) -> bytes:
    """Return the document at a URL, without following redirections.  `ca`: a PEM file; None: the CAs of the system.

    Raises Invalid when the URL or the CA file is wrong; Unavailable when there is no answer within `seconds`, a status
    other than 200, or more than `max_bytes`."""
    check_url(url)
    answer = request("GET", url, {}, None, ca=ca, seconds=seconds, max_bytes=max_bytes, now=now)
    if answer.status != http.HTTPStatus.OK:
        raise Unavailable(f"{url} answers {answer.status} {answer.reason}")
    return answer.body


def request(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes | None,
    *,
    ca: str | None,
    seconds: float,
    max_bytes: int,
    now: Callable[[], float],
) -> HttpAnswer:
    """Send one request to a URL that `check_url` allows.  Returns its answer; redirections are not followed.

    Raises Invalid when the CA file is wrong; Unavailable when there is no answer within `seconds`, or more than
    `max_bytes`."""
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
        sent = {"Accept": "application/json", "Connection": "close", **headers}
        connection.request(method, path, body=body, headers=sent)
        response = connection.getresponse()
        found = b""
        # Reads in pieces and checks the time itself: a socket's time limit is for each read, and a server may send its
        # answer byte by byte.
        while piece := response.read1(max_bytes + 1 - len(found)):
            found += piece
            if len(found) > max_bytes:
                raise Unavailable(f"{url} has more than {max_bytes} bytes")
            if now() > end:
                raise Unavailable(f"{url} did not answer whole within {seconds:.0f} s")
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(f"{url} cannot be fetched: {str(error) or type(error).__name__}") from None
    finally:
        connection.close()
    return HttpAnswer(response.status, response.reason[:_SHOWN_REASON], found)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
