"""Where a client finds its controllers: by an address, or by the environment when the caller names none."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Invalid
from sarit.env.traces import DEFAULT_TRACE_RATIO, parse_traces

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.env.traces import TraceSettings

CONTROLLER_VARIABLE: Final = "SARIT_CONTROLLER"
DEFAULT_PORT: Final = 9090
DEFAULT_ADDRESS: Final = f"127.0.0.1:{DEFAULT_PORT}"


def default_address() -> str:
    """Return the address in the environment variable SARIT_CONTROLLER, else that of a node started without options."""
    return os.environ.get(CONTROLLER_VARIABLE) or DEFAULT_ADDRESS


def default_traces(environ: Mapping[str, str] = os.environ) -> TraceSettings | None:
    """Return what SARIT_TRACES and SARIT_TRACE_RATIO say, as for a node.  Raises Invalid."""
    text = environ.get("SARIT_TRACES")
    if not text:
        return None
    ratio = environ.get("SARIT_TRACE_RATIO") or str(DEFAULT_TRACE_RATIO)
    try:
        share = float(ratio)
    except ValueError:
        raise Invalid(f"SARIT_TRACE_RATIO is {ratio!r}, which is no number") from None
    return parse_traces(text, share)


def parse_addresses(text: str) -> list[tuple[str, int]]:
    """Hosts and ports of `HOST:PORT`, or of several with commas; `tcp://` or `tls://` may come first.  Raises Invalid.

    The port is 9090 if it is missing.  An address that is named twice counts once."""
    listed = text.partition("://")[2] or text
    return list(dict.fromkeys(_parse_address(one.strip(), text) for one in listed.rstrip("/").split(",")))


def _parse_address(address: str, text: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon:
        host, port = address, str(DEFAULT_PORT)
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise Invalid(
            f"{text!r} is no address of a controller: give HOST:PORT, as {DEFAULT_ADDRESS}, or several with commas"
        )
    return host.strip("[]"), int(port)
