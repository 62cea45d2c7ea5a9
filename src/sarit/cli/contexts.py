"""Contexts: names for the addresses of installations, and how to log in there, in a file of the user.

The file is `sarit/contexts.toml` in `XDG_CONFIG_HOME`, or in `~/.config`; only the user may read it.  Which controller
a command asks, the first of these that there is:

1. `--controller`, or `--context`: together they are an error;
2. the variable SARIT_CONTROLLER;
3. the variable SARIT_CONTEXT;
4. the context that `sarit context use` chose;
5. 127.0.0.1:9090.

A context names files of secrets, and holds none.  Where it says how to log in, it wins over the environment.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from collections.abc import Mapping

CONTEXT_VARIABLE: Final = "SARIT_CONTEXT"
CONTROLLER_VARIABLE: Final = "SARIT_CONTROLLER"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
# Fields of a context about logging in, and the variables that mean the same (`client/core/login.py`).
LOGIN_VARIABLES: Final = {
    "user": "SARIT_USER",
    "password_file": "SARIT_PASSWORD_FILE",
    "token_file": "SARIT_TOKEN_FILE",
    "ca_file": "SARIT_CA_FILE",
    "cert_file": "SARIT_CERT_FILE",
    "key_file": "SARIT_KEY_FILE",
}
# What a context's field takes out of force.
_REPLACED: Final = {
    "user": ("SARIT_TOKEN", "SARIT_TOKEN_FILE"),
    "password_file": ("SARIT_PASSWORD",),
    "token_file": ("SARIT_TOKEN", "SARIT_USER"),
}
_CHOSEN: Final = "sarit.context"  # in `click.Context.meta`


@dataclass(frozen=True, slots=True)
class Context:
    """`controller`: HOST:PORT, several with commas.  `login`: fields of LOGIN_VARIABLES."""

    controller: str
    description: str = ""
    login: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Contexts:
    """The contexts in the file.  `current`: a name, or empty."""

    current: str = ""
    by_name: Mapping[str, Context] = field(default_factory=dict)

    def find(self, name: str) -> Context:
        """Return the context of this name.  Raises UsageError with the nearest one."""
        found = self.by_name.get(name)
        if found is None:
            near = get_close_matches(name, list(self.by_name), n=1)
            proposal = f"did you mean {near[0]!r}?" if near else "`sarit context add` makes one"
            raise click.UsageError(f"there is no context {name!r}: {proposal}")
        return found

    def with_context(self, name: str, context: Context) -> Contexts:
        """With one more, or another one of this name."""
        return replace(self, by_name={**self.by_name, name: context})

    def using(self, name: str) -> Contexts:
        """Return the contexts with another current one; empty: none."""
        return replace(self, current=name)

    def without(self, name: str) -> Contexts:
        """Return the contexts without one, which is then not the current one either."""
        left = {each: context for each, context in self.by_name.items() if each != name}
        return Contexts("" if self.current == name else self.current, left)

    def encode(self) -> str:
        """TOML."""
        lines = [f"current = {_text(self.current)}"] if self.current else []
        for name, context in sorted(self.by_name.items()):
            lines += ["", f'[contexts."{name}"]', f"controller = {_text(context.controller)}"]
            if context.description:
                lines.append(f"description = {_text(context.description)}")
            lines += [f"{name} = {_text(context.login[name])}" for name in LOGIN_VARIABLES if name in context.login]
        return "\n".join(lines).lstrip("\n") + "\n"


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def decode_contexts(text: str) -> Contexts:
    """Return the inverse of `encode`.  Raises ValueError: it is something else."""
    try:
        found = tomllib.loads(text)
    except RecursionError:
        raise ValueError("it has too many levels of lists and tables") from None
    names = found.get("contexts", {})
    current = found.get("current", "")
    if not isinstance(names, dict) or not isinstance(current, str):
        raise ValueError("`contexts` is a table, and `current` a name")
    by_name = {}
    for name, fields in names.items():
        if not _NAME.fullmatch(name) or not isinstance(fields, dict) or not isinstance(fields.get("controller"), str):
            raise ValueError(f"the context {name!r} needs `controller`, an address")
        login = {each: str(fields[each]) for each in LOGIN_VARIABLES if fields.get(each)}
        by_name[name] = Context(fields["controller"], str(fields.get("description", "")), login)
    # One that was deleted by hand.
    return Contexts(current if current in by_name else "", by_name)


def contexts_path(environ: Mapping[str, str]) -> Path:
    """Return where the contexts of the user are."""
    home = environ.get("XDG_CONFIG_HOME") or ""
    # As the specification of XDG says, a relative path is none.
    base = Path(home) if Path(home).is_absolute() else Path(environ.get("HOME") or "~").expanduser() / ".config"
    return base / "sarit" / "contexts.toml"


def read_contexts() -> Contexts:
    """Return the contexts of the user.  Raises ClickException: the file cannot be read."""
    path = contexts_path(os.environ)
    try:
        return decode_contexts(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{path} cannot be read: {error}: mend it, or delete it") from None


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
        if not _NAME.fullmatch(text):
            self.fail(f"{text!r} is no name: write letters, digits, '.', '_' and '-'", param, ctx)
        return text

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the contexts that begin so; nothing if they cannot be read."""
        try:
            found = read_contexts()
        except click.ClickException:
            return []
        return [
            CompletionItem(name, help=context.description or context.controller)
            for name, context in sorted(found.by_name.items())
            if name.startswith(incomplete)
        ]


# -- what a command asks ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Chosen:
    """A controller, and why it is asked.  `context`: its name; empty: none.  `login`: as of `Context`."""

    controller: str
    context: str
    origin: str
    login: Mapping[str, str] = field(default_factory=dict)


def choose(default: str) -> Chosen:
    """Return the context that a command without flags uses.  Raises ClickException: the context is not there."""
    if address := os.environ.get(CONTROLLER_VARIABLE):
        return Chosen(address, "", CONTROLLER_VARIABLE)
    if name := os.environ.get(CONTEXT_VARIABLE):
        try:
            found = read_contexts().find(name)
        except click.UsageError as error:
            raise click.UsageError(f"{CONTEXT_VARIABLE}: {error.message}") from None
        return Chosen(found.controller, name, CONTEXT_VARIABLE, found.login)
    contexts = read_contexts()
    if contexts.current:
        found = contexts.by_name[contexts.current]
        return Chosen(found.controller, contexts.current, "sarit context use", found.login)
    return Chosen(default, "", "default")


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
        found = read_contexts().find(name)
        log_in_as(ctx, found.login)
        return found.controller
    chosen = choose(param.default if isinstance(param.default, str) else "")
    log_in_as(ctx, chosen.login)
    return chosen.controller


def log_in_as(ctx: click.Context, login: Mapping[str, str]) -> None:
    """Have clients of this command, and of the programs that it starts, log in as a context says."""
    if not login:
        return
    before = dict(os.environ)
    for field_name, value in login.items():
        for variable in _REPLACED.get(field_name, ()):
            os.environ.pop(variable, None)
        os.environ[LOGIN_VARIABLES[field_name]] = value

    @ctx.call_on_close
    def restore() -> None:
        os.environ.clear()
        os.environ.update(before)
