"""Options on who may come in, of every command that serves."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sarit.security.limits import DEFAULT_TOKEN_SECONDS, MIN_TOKEN_SECONDS

if TYPE_CHECKING:
    from sarit.cli.options import Command

_FILE = click.Path(dir_okay=False, path_type=Path)
_OPTIONS = (
    click.option("--tls-cert", type=_FILE, metavar="FILE", help="TLS on every port: our certificate, in PEM."),
    click.option("--tls-key", type=_FILE, metavar="FILE", help="TLS: the key of --tls-cert."),
    click.option(
        "--tls-ca",
        type=_FILE,
        metavar="FILE",
        help="TLS: who signed the certificates of this installation.  [default: what the system trusts]",
    ),
    click.option(
        "--tls-client-certs/--no-tls-client-certs", help="TLS: clients need a certificate that --tls-ca signed."
    ),
    click.option("--users", type=_FILE, metavar="FILE", help="Who may log in: see `sarit user`.  [default: everybody]"),
    click.option(
        "--token-keys",
        type=_FILE,
        metavar="FILE",
        help="Keys that sign delegation tokens, one a line, the same for all processes; goes with --users.",
    ),
    click.option(
        "--token-ttl",
        type=click.IntRange(min=MIN_TOKEN_SECONDS),
        metavar="SECONDS",
        default=DEFAULT_TOKEN_SECONDS,
        show_default=True,
        help="How long a delegation token is valid: so long a change of rights may take to reach who reads and writes.",
    ),
    click.option(
        "--console",
        type=click.Choice(["on", "read-only", "off"]),
        default="on",
        show_default=True,
        help="The web console: read-only changes nothing, whoever logs in.",
    ),
    click.option(
        "--open-metrics/--no-open-metrics", help="Metrics and details of health for who does not log in, too."
    ),
    click.option("--audit-log", type=_FILE, metavar="FILE", help="Note who asked for what, and whether they might."),
)
_NAMES = ("tls_cert", "tls_key", "tls_ca", "tls_client_certs", "users", "token_keys", "token_ttl", "audit_log",
          "console", "open_metrics")  # fmt: skip


def security_options(command: Command) -> Command:
    """Adds them; the command gets one argument `security`, a `SecurityConfig`."""

    @functools.wraps(command)
    def call(**options: Any) -> Any:
        from sarit.node.security import SecurityConfig

        given = {name: options.pop(name) for name in _NAMES}

        def path(name: str) -> str | None:
            return None if given[name] is None else str(given[name].absolute())

        return command(
            **options,
            security=SecurityConfig(
                certificate=path("tls_cert"),
                key=path("tls_key"),
                ca=path("tls_ca"),
                client_certificates=given["tls_client_certs"],
                users=path("users"),
                token_keys=path("token_keys"),
                token_seconds=given["token_ttl"],
                audit=path("audit_log"),
                console=given["console"],
                open_metrics=given["open_metrics"],
            ),
        )

    made: Any = call
    for option in reversed(_OPTIONS):
        made = option(made)
    result: Command = made
    return result
