"""`sarit top`: what processes do now.

The lines (`top_view.py`, pure) are written to the alternate screen with four control sequences.  A library for screens
(`rich`, `textual`) would be more to install on every node than all of the HTTP server, for one command.  It reads
`/healthz` and `/metrics` alone, so it shows what Prometheus would, of any process that it can reach.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import FORBIDDEN, UNAUTHORIZED, HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, Final

import click

from sarit.cli.limits import TOP_HTTP_SECONDS
from sarit.cli.options import format_option
from sarit.cli.top_view import Scrape, lines_of, parse_metrics, summary
from sarit.client.core.login import default_credentials, default_tls, refuse_plain
from sarit.core.bounded_json import parse_json

if TYPE_CHECKING:
    import ssl

_AT_ONCE: Final = 16
_HTTPS: Final = "https://"
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"


@click.command()
@click.option(
    "--http", "addresses", multiple=True, metavar="HOST:PORT",
    help="The HTTP port of a process; repeat it for several.  [default: 127.0.0.1:9091]",
)  # fmt: skip
@click.option("--interval", type=click.FloatRange(0.2, 3600), default=2.0, show_default=True, help="In seconds.")
@click.option("--once", is_flag=True, help="Print the state after one interval, and end.")
@format_option
def top(addresses: tuple[str, ...], interval: float, once: bool, output: str) -> None:
    """Show rates, connections, dirty bytes, containers, the busiest streams and the lag of reader groups, live.

    With --format json a line of JSON for each interval.
    Ctrl-C ends.  With --once the exit code is 1 if a process is away or not ready.  It logs in as clients do
    (SARIT_USER, SARIT_TOKEN), and uses TLS with SARIT_CA_FILE, or for an address that begins with https://.
    """
    targets = [_checked(address) for address in addresses or ("127.0.0.1:9091",)]
    as_json = output == "json"
    screen = not once and not as_json and sys.stdout.isatty()
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        before = list(threads.map(scrape, targets))
        if screen:
            click.echo(_ENTER, nl=False)
        try:
            if screen:
                _draw([summary(found, None) for found in before], interval)
            while True:
                time.sleep(interval)
                now = list(threads.map(scrape, targets))
                rows = [summary(new, old) for new, old in zip(now, before, strict=True)]
                before = now
                if as_json:
                    click.echo(json.dumps(rows))
                elif screen:
                    _draw(rows, interval)
                else:
                    click.echo("\n".join(lines_of(rows, 1000)))
                if once:
                    sys.exit(0 if all(row["ready"] for row in rows) else 1)
        except KeyboardInterrupt:
            return
        finally:
            if screen:
                click.echo(_LEAVE, nl=False)


def scrape(address: str) -> Scrape:
    """Ask one process for its health and its metrics."""
    found = Scrape(address, time.monotonic())
    try:
        connection = _connection(address)
        try:
            found.health = parse_json(_get(connection, "/healthz"))
            found.samples = parse_metrics(_get(connection, "/metrics").decode())
        finally:
            connection.close()
    except _Refused as refusal:
        found.error = str(refusal)
    except (OSError, HTTPException, ValueError) as error:
        # An error of the system says its number first, which says nothing to who reads it.
        found.error = f"it does not answer: {getattr(error, 'strerror', None) or error}"
    return found


class _Refused(Exception):
    """Whoever asks may not see this."""


def _get(connection: HTTPConnection, path: str) -> bytes:
    credentials = default_credentials()
    if not isinstance(connection, HTTPSConnection):
        refuse_plain(credentials, (connection.host,))
    headers = {} if credentials is None else {"Authorization": credentials.authorization()}
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    if answer.status == UNAUTHORIZED:
        raise _Refused("it asks for a log-in: set SARIT_USER and SARIT_PASSWORD_FILE, or SARIT_TOKEN_FILE")
    if answer.status == FORBIDDEN:
        raise _Refused(f"{path} is not for this user: it needs the role metrics")
    return body


def _connection(address: str) -> HTTPConnection:
    place = address.removeprefix(_HTTPS)
    tls = default_tls("tls://" if place != address else "")
    if tls is None:
        return HTTPConnection(place, timeout=TOP_HTTP_SECONDS)
    context: ssl.SSLContext = tls.context()
    context.set_alpn_protocols(["http/1.1"])
    return HTTPSConnection(place, timeout=TOP_HTTP_SECONDS, context=context)


def _checked(address: str) -> str:
    host, _, port = address.removeprefix(_HTTPS).rpartition(":")
    if not host or not port.isdigit():
        raise click.UsageError(f"--http {address}: write HOST:PORT")
    return address


def _draw(rows: list[dict[str, object]], interval: float) -> None:
    width, height = shutil.get_terminal_size()
    head = f"sarit top, every {interval:g} s; Ctrl-C ends  {time.strftime('%H:%M:%S')}"
    lines = [head, "", *lines_of(rows, width)][: height - 1]
    text = "".join(f"{line[:width]}{_CLEAR_LINE}\r\n" for line in lines)
    click.echo(f"{_HOME}{text}{_CLEAR_BELOW}", nl=False)
