"""`sarit context`: names for the addresses of installations, and how to log in there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sarit.cli.contexts import ContextName, check_registry, usage_errors, write_contexts
from sarit.cli.options import Commands, format_option, show_fields, show_rows
from sarit.cli.options import show as show_result
from sarit.client.core.contexts import Context, Contexts, choose, read_contexts
from sarit.core.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Mapping

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group(cls=Commands)
def context() -> None:
    """Name the addresses of installations, and choose the one that commands ask.

    --controller or --context of a command win over SARIT_CONTROLLER, that over SARIT_CONTEXT, and that over
    `sarit context use`.
    """


@context.command()
@click.argument("name", type=ContextName())
@click.option("--controller", required=True, metavar="HOST:PORT", help="Where it is; several with commas.")
@click.option("--description", default="", help="For people.")
@click.option("--registry", default="", metavar="URL", help="Where its schema registry is, as http://HOST:8081.")
@click.option("--user", metavar="NAME", help="Log in as this user.")
@click.option("--password-file", type=_FILE, help="Its first line is the password.  [default: SARIT_PASSWORD]")
@click.option("--token-file", type=_FILE, help="Log in by the token of an identity provider in this file.")
@click.option("--ca-file", type=_FILE, help="TLS: the CA of the certificate of the installation.")
@click.option("--cert-file", type=_FILE, help="TLS: our certificate, where one is asked for.")
@click.option("--key-file", type=_FILE, help="TLS: the key of --cert-file.")
@click.option("--replace", is_flag=True, help="Also if there is one of this name.")
@click.option("--use", "use_it", is_flag=True, help="Let commands ask it from now on.")
@format_option
def add(
    name: str, controller: str, description: str, registry: str, replace: bool, use_it: bool, output: str,
    **login: str | Path | None,
) -> None:  # fmt: skip
    """Add the context NAME.

    The files stay where they are: a context holds no secret.
    """
    from sarit.client.core.addresses import parse_addresses

    _check_login(login)
    try:
        parse_addresses(controller)
    except Invalid as error:
        raise click.UsageError(f"--controller: {error}") from None
    if registry:
        check_registry(registry)
    contexts = _read()
    if name in contexts.by_name and not replace:
        raise click.UsageError(f"there is a context {name!r} at {contexts.by_name[name].controller}: give --replace")
    contexts = contexts.with_context(name, Context(controller, description, _text_of(login), registry))
    _write(contexts.using(name) if use_it else contexts)
    text = f"context {name}: {controller}" + (", used from now on" if use_it else "")
    show_result(output, {"name": name, "controller": controller, "current": contexts.current == name or use_it}, text)


@context.command()
@click.argument("name", type=ContextName(), required=False)
@click.option("--none", is_flag=True, help="None: commands ask 127.0.0.1:9090.")
@format_option
def use(name: str | None, none: bool, output: str) -> None:
    """Let commands ask the installation that NAME stands for."""
    if none == (name is not None):
        raise click.UsageError("give the NAME of a context, or --none")
    contexts = _read()
    if name is not None:
        _find(name)
    _write(contexts.using(name or ""))
    controller = contexts.by_name[name].controller if name else None
    show_result(
        output, {"name": name, "controller": controller}, f"context {name}: {controller}" if name else "no context"
    )


@context.command("list")
@format_option
def list_contexts(output: str) -> None:
    """List the contexts."""
    contexts = _read()
    rows = [
        {"name": name, "controller": found.controller, "current": name == contexts.current,
         "description": found.description}
        for name, found in sorted(contexts.by_name.items())
    ]  # fmt: skip
    if output == "text":
        rows = [{**row, "current": "*" if row["current"] else ""} for row in rows]
    show_rows(output, rows, ["current", "name", "controller", "description"])


@context.command()
@click.argument("name", type=ContextName(), required=False)
@format_option
def show(name: str | None, output: str) -> None:
    """Print the context NAME; without it, what a command asks here, and why."""
    if name is not None:
        found = _find(name)
        row = {"name": name, "controller": found.controller, "description": found.description}
        show_fields(output, {**row, **_registry_field(found.registry), **found.login})
        return
    with usage_errors():
        chosen = choose()
    show_fields(output, {"controller": chosen.controller, "context": chosen.context or "-", "from": chosen.origin,
                         **_registry_field(chosen.registry), **chosen.login})  # fmt: skip


@context.command()
@click.argument("name", type=ContextName())
@format_option
def delete(name: str, output: str) -> None:
    """Delete the context NAME."""
    contexts = _read()
    _find(name)
    _write(contexts.without(name))
    left = ", which commands asked: they ask 127.0.0.1:9090 now" if contexts.current == name else ""
    show_result(output, {"name": name, "deleted": True}, f"context {name} deleted{left}")


def _registry_field(registry: str) -> dict[str, str]:
    return {"registry": registry} if registry else {}


def _check_login(login: Mapping[str, str | Path | None]) -> None:
    if login["user"] is not None and login["token_file"] is not None:
        raise click.UsageError("--user and --token-file contradict each other: give one")
    if login["password_file"] is not None and login["user"] is None:
        raise click.UsageError("--password-file needs --user: whose password is it?")
    if (login["cert_file"] is None) != (login["key_file"] is None):
        raise click.UsageError("--cert-file and --key-file belong together: give both, or neither")


def _text_of(login: Mapping[str, str | Path | None]) -> dict[str, str]:
    return {
        name: str(value.absolute()) if isinstance(value, Path) else value
        for name, value in login.items()
        if value is not None
    }


def _write(contexts: Contexts) -> None:
    try:
        write_contexts(contexts)
    except OSError as error:
        raise click.ClickException(f"{error.filename} cannot be written: {error.strerror}") from None


def _read() -> Contexts:
    with usage_errors():
        return read_contexts(os.environ)


def _find(name: str) -> Context:
    with usage_errors():
        return read_contexts(os.environ).find(name)
