"""`sarit tls`: certificates for trials."""

from __future__ import annotations

from pathlib import Path

import click

from sarit.cli.options import Commands, format_option, show

_DAYS = 30


@click.group(cls=Commands)
def tls() -> None:
    """Make certificates for trials."""


@tls.command("dev-ca")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--host", "hosts", multiple=True, help="A name or address of the server; more than once.  [default: this machine]"
)
@click.option("--days", type=click.IntRange(1, 397), default=_DAYS, show_default=True, help="How long they are valid.")
@format_option
def dev_ca(directory: Path, hosts: tuple[str, ...], days: int, output: str) -> None:
    """Make a CA, and certificates of a server and a client, in DIRECTORY.

    Not for production: the key of the CA lies beside them.  Needs sarit[tls].
    """
    from sarit.cli.dev_ca import make_certificates

    files = make_certificates(directory, hosts, days)
    text = "\n".join(
        [
            *(f"{what}: {path}" for what, path in files.items()),
            f"server: sarit standalone --tls-cert {files['server']} --tls-key {files['server key']}",
            f"client: SARIT_CA_FILE={files['ca']} sarit scope list --controller tls://127.0.0.1:9090",
        ]
    )
    show(output, {what: str(path) for what, path in files.items()}, text)
