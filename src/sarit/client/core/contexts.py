"""Contexts: names for the addresses of installations, and how to log in there, in a file of the user.

The file is `sarit/contexts.toml` in `XDG_CONFIG_HOME`, or in `~/.config`; `sarit context` writes it, and only the user
may read it.  Which controller a client without an address connects to, the first of these that there is:

1. the variable SARIT_CONTROLLER;
2. the context that the variable SARIT_CONTEXT names;
3. the context that `sarit context use` chose;
4. 127.0.0.1:9090.

A context may name a schema registry, too.  Which one a client without an address asks (`registry_url`), the first of
these: the variable SARIT_REGISTRY_URL; the registry of the context that is in force; without a context,
http://127.0.0.1:8081.

A context names files of secrets, and holds none.  Where it says how to log in, it wins over the environment.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sarit.client.core.addresses import CONTROLLER_VARIABLE, DEFAULT_ADDRESS
from sarit.core.errors import Invalid, NotFound
from sarit.env.small_files import read_small_file

if TYPE_CHECKING:
    from collections.abc import Mapping

CONTEXT_VARIABLE: Final = "SARIT_CONTEXT"
REGISTRY_VARIABLE: Final = "SARIT_REGISTRY_URL"
DEFAULT_REGISTRY: Final = "http://127.0.0.1:8081"
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
# Fields of a context about logging in, and the variables that mean the same (`login.py`).
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


@dataclass(frozen=True, slots=True)
class Context:
    """`controller`: HOST:PORT, several with commas.  `login`: fields of LOGIN_VARIABLES.

    `registry`: the URL of the schema registry; empty: the context names none."""

    controller: str
    description: str = ""
    login: Mapping[str, str] = field(default_factory=dict)
    registry: str = ""


@dataclass(frozen=True, slots=True)
class Contexts:
    """The contexts in the file.  `current`: a name, or empty."""

    current: str = ""
    by_name: Mapping[str, Context] = field(default_factory=dict)

    def find(self, name: str) -> Context:
        """Return the context of this name.  Raises NotFound with the nearest one."""
        found = self.by_name.get(name)
        if found is None:
            from difflib import get_close_matches

            near = get_close_matches(name, list(self.by_name), n=1)
            proposal = f"did you mean {near[0]!r}?" if near else "`sarit context add` makes one"
            raise NotFound(f"there is no context {name!r}: {proposal}")
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
            if context.registry:
                lines.append(f"registry = {_text(context.registry)}")
            lines += [f"{name} = {_text(context.login[name])}" for name in LOGIN_VARIABLES if name in context.login]
        return "\n".join(lines).lstrip("\n") + "\n"


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def decode_contexts(text: str) -> Contexts:
    """Return the inverse of `encode`.  Raises ValueError: it is something else."""
    import tomllib

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
        if not NAME.fullmatch(name) or not isinstance(fields, dict) or not isinstance(fields.get("controller"), str):
            raise ValueError(f"the context {name!r} needs `controller`, an address")
        login = {each: str(fields[each]) for each in LOGIN_VARIABLES if fields.get(each)}
        description, registry = (str(fields.get(each, "")) for each in ("description", "registry"))
        by_name[name] = Context(fields["controller"], description, login, registry)
    # A current context that was deleted by hand is none.
    return Contexts(current if current in by_name else "", by_name)


def contexts_path(environ: Mapping[str, str]) -> Path:
    """Return where the contexts of the user are."""
    home = environ.get("XDG_CONFIG_HOME") or ""
    # As the specification of XDG says, a relative path is none.
    base = Path(home) if Path(home).is_absolute() else Path(environ.get("HOME") or "~").expanduser() / ".config"
    return base / "sarit" / "contexts.toml"


def read_contexts(environ: Mapping[str, str]) -> Contexts:
    """Return the contexts of the user.  Raises Invalid: the file cannot be read."""
    path = contexts_path(environ)
    if not path.exists():
        return Contexts()
    data = read_small_file(str(path), "the contexts")
    try:
        return decode_contexts(data.decode())
    except ValueError as error:
        raise Invalid(f"{path} cannot be read: {error}: mend it, or delete it") from None


@dataclass(frozen=True, slots=True)
class Chosen:
    """A controller, and why it is asked.  `context`: its name; empty: none.  `login`, `registry`: as of `Context`."""

    controller: str
    context: str
    origin: str
    login: Mapping[str, str] = field(default_factory=dict)
    registry: str = ""


def with_login(environ: Mapping[str, str], login: Mapping[str, str]) -> dict[str, str]:
    """Return variables with the log-in of a context in force."""
    replaced = {variable for name in login for variable in _REPLACED.get(name, ())}
    kept = {name: value for name, value in environ.items() if name not in replaced}
    return kept | {LOGIN_VARIABLES[name]: value for name, value in login.items()}


def choose(environ: Mapping[str, str] = os.environ) -> Chosen:
    """Return where a client without an address connects to.  Raises NotFound, Invalid: the context is not there."""
    if address := environ.get(CONTROLLER_VARIABLE):
        return Chosen(address, "", CONTROLLER_VARIABLE)
    if name := environ.get(CONTEXT_VARIABLE):
        try:
            found = read_contexts(environ).find(name)
        except NotFound as error:
            raise NotFound(f"{CONTEXT_VARIABLE}: {error}") from None
        return Chosen(found.controller, name, CONTEXT_VARIABLE, found.login, found.registry)
    contexts = read_contexts(environ)
    if contexts.current:
        found = contexts.by_name[contexts.current]
        return Chosen(found.controller, contexts.current, "sarit context use", found.login, found.registry)
    return Chosen(DEFAULT_ADDRESS, "", "default")


def registry_url(environ: Mapping[str, str] = os.environ) -> str:
    """Return the URL of the schema registry that a client without an address asks; see the head of the module.

    Raises NotFound (the context names no registry), Invalid."""
    if url := environ.get(REGISTRY_VARIABLE):
        return url
    # A controller's address in the environment puts the chosen context out of force.
    chosen = choose(environ)
    return registry_of(chosen.context, chosen.registry) if chosen.context else DEFAULT_REGISTRY


def registry_of(name: str, registry: str) -> str:
    """Return the registry of the context `name`.  Raises NotFound: it names none.

    The default address is not asked then: a change that is meant for another installation would be made here."""
    if not registry:
        raise NotFound(
            f"the context {name!r} names no schema registry: give --registry URL or set {REGISTRY_VARIABLE}, or add "
            f"it with `sarit context add {name} --registry URL --replace` and the other options of the context"
        )
    return registry
