"""Options on who may come in, of every command that serves."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sarit.cli.option_types import Line
from sarit.core.errors import Invalid
from sarit.process.limits import DEFAULT_TOKEN_SECONDS, MIN_TOKEN_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.cli.options import Command
    from sarit.process.security import SecurityConfig
    from sarit.security.oidc import OidcConfig

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
    click.option(
        "--tls-check-names/--no-tls-check-names",
        help="TLS: other processes of this installation need a certificate for the host where they are reached, too.",
    ),
    click.option("--users", type=_FILE, metavar="FILE", help="Who may log in: see `sarit user`.  [default: everybody]"),
    click.option(
        "--oidc-issuer",
        type=Line(),
        metavar="URL",
        help="Take tokens of this identity provider (OpenID Connect), too; the URL as they say it.",
    ),
    click.option("--oidc-audience", type=Line(), metavar="NAME", help="The audience that such a token must be for."),
    click.option(
        "--oidc-keys",
        type=Line(),
        metavar="URL|FILE",
        help="The provider's public keys, a JWK set.  [default: where the issuer says]",
    ),
    click.option(
        "--oidc-ca",
        type=_FILE,
        metavar="FILE",
        help="Who signed the certificate of the provider's server.  [default: what the system trusts]",
    ),
    click.option(
        "--oidc-name-claim",
        type=Line(),
        metavar="CLAIM",
        default="sub",
        show_default=True,
        help="The claim that is the name of the user.",
    ),
    click.option(
        "--oidc-roles-claim",
        type=Line(),
        metavar="CLAIM",
        default="roles",
        show_default=True,
        help="The claim with roles or groups; a path, as realm_access.roles, for one inside others.",
    ),
    click.option(
        "--oidc-roles",
        type=Line(),
        metavar="NAME=ROLE;...",
        help="Roles or groups of the provider, and what they are here, with `;` between.  "
        "[default: the same names, but nobody is admin]",
    ),
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
    click.option(
        "--http-name",
        "http_names",
        type=Line(),
        multiple=True,
        metavar="NAME",
        help="A name under which the HTTP port may be asked, besides addresses, localhost, this machine's and "
        "--advertise; more than once, in the file a list, in the variable with blanks between.",
    ),
    click.option(
        "--plain-passwords/--no-plain-passwords",
        help="Take log-ins without TLS from other machines, too: where something in front or below encrypts.",
    ),
    click.option("--audit-log", type=_FILE, metavar="FILE", help="Note who asked for what, and whether they might."),
)
_NAMES = ("tls_cert", "tls_key", "tls_ca", "tls_client_certs", "tls_check_names", "users", "token_keys", "token_ttl",
          "audit_log", "console", "open_metrics", "http_names", "plain_passwords")  # fmt: skip
_OIDC_NAMES = (
    "oidc_issuer", "oidc_audience", "oidc_keys", "oidc_ca", "oidc_name_claim", "oidc_roles_claim", "oidc_roles",
)  # fmt: skip


def security_options(command: Command) -> Command:
    """Add the options of security to a command; the command gets one argument `security`, a `SecurityConfig`."""

    @functools.wraps(command)
    def call(**options: Any) -> Any:
        given = {name: options.pop(name) for name in (*_NAMES, *_OIDC_NAMES)}
        return command(**options, security=security_of(given))

    made: Any = call
    for option in reversed(_OPTIONS):
        made = option(made)
    result: Command = made
    return result


def security_of(given: Mapping[str, Any]) -> SecurityConfig:
    """Return the security that the options of a command ask for.  Raises Invalid."""
    from sarit.process.security import SecurityConfig

    def path(name: str) -> str | None:
        return None if given[name] is None else str(given[name].absolute())

    return SecurityConfig(
        certificate=path("tls_cert"),
        key=path("tls_key"),
        ca=path("tls_ca"),
        client_certificates=given["tls_client_certs"],
        check_names=given["tls_check_names"],
        users=path("users"),
        oidc=_oidc(given, path("oidc_ca")),
        token_keys=path("token_keys"),
        token_seconds=given["token_ttl"],
        audit=path("audit_log"),
        console=given["console"],
        open_metrics=given["open_metrics"],
        http_names=tuple(given["http_names"]),
        plain_passwords=given["plain_passwords"],
    )


def _oidc(given: Mapping[str, Any], ca: str | None) -> OidcConfig | None:
    """Raises Invalid: options of a provider that is not named, or without an audience."""
    from sarit.security.oidc import OidcConfig, role_pairs

    if given["oidc_issuer"] is None:
        for name in ("oidc_audience", "oidc_keys", "oidc_ca", "oidc_roles"):
            if given[name] is not None:
                raise Invalid(f"--{name.replace('_', '-')} needs --oidc-issuer: the provider that is trusted")
        return None
    if given["oidc_audience"] is None:
        raise Invalid("--oidc-issuer needs --oidc-audience: else tokens for any other service would open this one")
    config = OidcConfig(given["oidc_issuer"], given["oidc_audience"], given["oidc_keys"], ca)
    return replace(
        config,
        # A relative name means a file beside the working directory of the start.
        keys=config.keys if config.keys_file is None else str(Path(config.keys_file).absolute()),
        name_claim=given["oidc_name_claim"],
        roles_claim=given["oidc_roles_claim"],
        roles=role_pairs(given["oidc_roles"] or ""),
    )
