"""The options of commands that choose a controller, by an address or by a context (`client/core/contexts.py`).

`--controller` or `--context` (together they are an error) come before what a client without an address does: the
variable SARIT_CONTROLLER, the variable SARIT_CONTEXT, the context of `sarit context use`, 127.0.0.1:9090.
`--registry` comes before the registry of `--context`, and that before what a client without an address asks.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from sarit.client.core.contexts import (
    NAME,
    REGISTRY_VARIABLE,
    Contexts,
    choose,
    contexts_path,
    read_contexts,
    registry_of,
    registry_url,
    with_login,
)
from sarit.core.errors import Invalid, NotFound, SaritError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_CHOSEN: Final = "sarit.context"  # in `click.Context.meta`


@contextmanager
def usage_errors() -> Iterator[None]:
    """Raise what is wrong with contexts as errors of the command line."""
    try:
        yield
    except NotFound as error:
        raise click.UsageError(str(error)) from None
    except Invalid as error:
        raise click.ClickException(str(error)) from None


def write_contexts(contexts: Contexts) -> None:
    """Replace the file at once.  Raises OSError."""
    path = contexts_path(os.environ)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    made = path.with_name(f".{path.name}.{os.getpid()}")
    made.unlink(missing_ok=True)
    try:
        made.touch(mode=0o600, exist_ok=False)
        made.write_text(contexts.encode(), encoding="utf-8")
        made.replace(path)
    finally:
        made.unlink(missing_ok=True)


class ContextName(click.ParamType[str]):
    """The name of a context; a shell completes those that there are."""

    name = "NAME"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text as it is; see `click.ParamType`."""
        text = str(value)
        if not NAME.fullmatch(text):
            self.fail(f"{text!r} is no name: write letters, digits, '.', '_' and '-'", param, ctx)
        return text

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the contexts that begin so; nothing if they cannot be read."""
        try:
            found = read_contexts(os.environ)
        except SaritError:
            return []
        return [
            CompletionItem(name, help=context.description or context.controller)
            for name, context in sorted(found.by_name.items())
            if name.startswith(incomplete)
        ]


def take_context(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """`--context` of a command: `take_controller` uses it."""
    if ctx.get_parameter_source("context") is ParameterSource.COMMANDLINE and value is not None:
        ctx.meta[_CHOSEN] = value


def take_controller(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Return the address that a command asks; see the head of the module.  Raises UsageError."""
    name = ctx.meta.get(_CHOSEN)
    if ctx.get_parameter_source("controller") is ParameterSource.COMMANDLINE:
        if name is not None:
            raise click.UsageError(f"--controller {value} and --context {name} contradict each other: give one", ctx)
        return value
    if name is not None:
        with usage_errors():
            found = read_contexts(os.environ).find(name)
        log_in_as(ctx, found.login)
        return found.controller
    with usage_errors():
        chosen = choose()
    log_in_as(ctx, chosen.login)
    return chosen.controller


def take_registry(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    """Return the URL of the registry that a command asks.  Raises UsageError."""
    return registry_for(ctx, value)


def registry_for(ctx: click.Context, given: str | None) -> str:
    """Return the URL of the registry that a command asks; `given`: that of `--registry`.  Raises UsageError.

    The command logs in as a context says only where the context was given, or names the registry."""
    name = ctx.meta.get(_CHOSEN)
    with usage_errors():
        if name is not None:
            found = read_contexts(os.environ).find(name)
            log_in_as(ctx, found.login)
            url = given or registry_of(name, found.registry)
        elif given or (given := os.environ.get(REGISTRY_VARIABLE)):
            url = given
        else:
            log_in_as(ctx, choose().login)
            url = registry_url()
    check_registry(url)
    return url


def check_registry(url: str) -> None:
    """Check that a text is the URL of a registry.  Raises UsageError."""
    try:
        parts = urlsplit(url)
        whole = bool(parts.scheme in ("http", "https") and parts.hostname) and parts.port != 0
    except ValueError:
        whole = False
    if not whole or parts.query or parts.fragment:
        raise click.UsageError(f"{url} is no URL of a schema registry: write http://HOST:PORT or https://HOST:PORT")
    if parts.username is not None or parts.password is not None:
        raise click.UsageError("a registry's URL has no user and password: set SARIT_USER and SARIT_PASSWORD")


def log_in_as(ctx: click.Context, login: Mapping[str, str]) -> None:
    """Have clients of this command, and of the programs that it starts, log in as a context says."""
    if not login:
        return
    before = dict(os.environ)
    _replace_environment(with_login(before, login))
    ctx.call_on_close(partial(_replace_environment, before))


def _replace_environment(environ: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environ)
