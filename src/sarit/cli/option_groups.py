"""The groups in which the help of server processes shows their options; an option that is in none stands on top."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    import click

GROUPS: Final = {
    "Data": ("data-dir", "containers", "storage", "index-storage", "index", "log", "lease", "catalogs"),
    "Cluster": ("cluster", "zookeeper-auth", "id", "machine", "weight", "expect"),
    "Addresses": (
        "host", "port", "controller-port", "store-port", "http-port", "registry", "registry-port", "one-port",
        "advertise", "http-name", "console",
    ),
    "Resources": ("profile", "memory", "processes", "scrub"),
    "TLS": ("tls-cert", "tls-key", "tls-ca", "tls-client-certs", "tls-check-names"),
    "Users": ("users", "token-keys", "token-ttl", "open-metrics", "plain-passwords", "audit-log"),
    "Log-in by an identity provider": (
        "oidc-issuer", "oidc-audience", "oidc-keys", "oidc-ca", "oidc-name-claim", "oidc-roles-claim", "oidc-roles",
    ),
    "Background work": ("jobs", "scaling-windows", "scaling-cool-down", "retention-interval", "watermark-interval"),
    "Logs and traces": ("log-level", "log-format", "traces", "trace-ratio"),
    "After damage": ("allow-damaged", "accept-data-loss"),
}  # fmt: skip
_GROUP_OF: Final = {name: group for group, names in GROUPS.items() for name in names}


def write_options(formatter: click.HelpFormatter, rows: Iterable[tuple[str, tuple[str, str]]]) -> None:
    """Write options as sections; `rows`: the key of each option, with its two columns of help."""
    sections: dict[str, list[tuple[str, str]]] = {"Options": [], **{group: [] for group in GROUPS}}
    for key, columns in rows:
        sections[_GROUP_OF.get(key, "Options")].append(columns)
    for title, found in sections.items():
        if found:
            with formatter.section(title):
                formatter.write_dl(found)
