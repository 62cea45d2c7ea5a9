"""Names on the command line: scopes, streams, groups and tables, and what a shell completes of them.

Completion asks the node.  A shell must never wait or print an error for it: whatever fails completes nothing.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import click
from click.shell_completion import CompletionItem

from sarit.cli.contexts import log_in_as
from sarit.client.core.contexts import choose
from sarit.core.errors import Invalid, SaritError
from sarit.core.names import EPOCH_DELIMITER, SegmentId, StreamName, is_user_name
from sarit.core.nearest_names import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sarit.client.blocking.client import Client

MAX_COMPLETIONS: Final = 1000


class ScopeType(click.ParamType):  # type: ignore[type-arg]  # generic in some releases only
    """SCOPE on the command line."""

    name = "SCOPE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text as it is: the node says what is wrong with it."""
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the scopes that begin so."""
        return complete(ctx, lambda client: _scopes(client, incomplete))


@runtime_checkable
class Nearby(Protocol):
    """A type of names that finds by itself which names there are beside a given one."""

    def beside(self, ctx: click.Context, text: str) -> str:
        """Return in words which names there are beside `text`; empty: unknown."""


class ScopedType(click.ParamType):  # type: ignore[type-arg]  # generic in some releases only
    """SCOPE/NAME on the command line; `listed` gives the names of one scope, for completion."""

    def __init__(
        self, name: str, parse: Callable[[str], object], listed: Callable[[Client, str], Iterable[object]]
    ) -> None:
        self.name = name
        self._parse = parse
        self._listed = listed

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """Return how usage lines name it."""
        return f"{self.name}..." if param.nargs == -1 else self.name

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        """Parse, or fail as a usage error."""
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except Invalid as error:
            self.fail(str(error).replace("SCOPE/STREAM", self.name), param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the scopes that begin so, each with its `/`; after a `/` the names of that scope."""
        scope, slash, _ = incomplete.partition("/")
        if not slash:
            return complete(ctx, lambda client: (f"{found}/" for found in _scopes(client, scope)))
        return complete(ctx, lambda client: self.names(client, scope, incomplete))

    def names(self, client: Client, scope: str, prefix: str) -> Iterable[str]:
        """Return the names of a scope that begin with SCOPE/ and more.  Raises SaritError."""
        # Groups are listed without their scope.
        texts = map(str, self._listed(client, scope))
        names = (text if "/" in text else f"{scope}/{text}" for text in texts)
        return (name for name in names if name.startswith(prefix))


class LinkType(click.ParamType):  # type: ignore[type-arg]  # generic in some releases only
    """LINK on the command line: the name of a link to another installation."""

    name = "NAME"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text as it is: the node says what is wrong with it."""
        return str(value)

    def beside(self, ctx: click.Context, text: str) -> str:
        """Return in words which links there are beside one that there is not."""
        names = _ask(ctx, _links)
        return nearest(text, names) if names else ""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the links that begin so."""
        return complete(ctx, lambda client: (name for name in _links(client) if name.startswith(incomplete)))


class SegmentType(click.ParamType):  # type: ignore[type-arg]  # generic in some releases only
    """NUMBER.#epoch.EPOCH on the command line, as `sarit stream info` prints it."""

    name = "SEGMENT"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> SegmentId:
        """Parse, or fail as a usage error."""
        if isinstance(value, SegmentId):
            return value
        number, _, epoch = str(value).partition(EPOCH_DELIMITER)
        if not (number.isdecimal() and epoch.isdecimal()):
            self.fail(f"{value!r} is not NUMBER{EPOCH_DELIMITER}EPOCH, as 0{EPOCH_DELIMITER}0", param, ctx)
        return SegmentId(int(epoch), int(number))


def _links(client: Client) -> Iterable[str]:
    return (link.name for link in client.links.list())


def _scopes(client: Client, prefix: str) -> Iterable[str]:
    return (scope for scope in client.list_scopes() if scope.startswith(prefix) and is_user_name(scope))


def complete(ctx: click.Context, found: Callable[[Client], Iterable[str]]) -> list[CompletionItem]:
    """Return what `found` gives for a client of the node that the command would use; nothing when that fails."""
    return [CompletionItem(text) for text in _ask(ctx, found)]


def _ask(ctx: click.Context, found: Callable[[Client], Iterable[str]]) -> list[str]:
    import sarit

    try:
        controller = ctx.params.get("controller")
        if not controller:
            chosen = choose()
            log_in_as(ctx, chosen.login)
            controller = chosen.controller
        with sarit.connect(controller, retry_timeout=1.0) as client:
            return list(islice(found(client), MAX_COMPLETIONS))
    except (SaritError, OSError, click.ClickException):
        return []


def names_beside(ctx: click.Context, message: str) -> str:
    """Return in words which names there are beside one that a command was given and its error names; empty: unknown."""
    for param in ctx.command.params:
        given = ctx.params.get(param.name or "")
        for text in map(str, given if isinstance(given, tuple) else (given,)):
            scope, _, name = text.partition("/")
            if isinstance(param.type, Nearby) and text in message:
                return param.type.beside(ctx, text)
            if isinstance(param.type, ScopedType) and name and text in message:
                listed = _ask(ctx, partial(param.type.names, scope=scope, prefix=f"{scope}/"))
                if text in listed:  # something else is not there
                    continue
                if listed:
                    return nearest(text, listed)
                # Which of the two is missing, only the scopes say.
                scopes = _ask(ctx, lambda client: _scopes(client, ""))
                return f"scope {scope} has none" if scope in scopes else nearest(scope, scopes) if scopes else ""
            if isinstance(param.type, ScopeType | ScopedType) and f"scope {scope} does not exist" in message:
                scopes = _ask(ctx, lambda client: _scopes(client, ""))
                return nearest(scope, scopes) if scopes else "there is no scope yet"
    return ""


SCOPE = ScopeType()
STREAM = ScopedType("SCOPE/STREAM", StreamName.parse, lambda client, scope: client.list_streams(scope))
TABLE = ScopedType("SCOPE/TABLE", StreamName.parse, lambda client, scope: client.tables.list(scope))
# The library says what is wrong with a group's name.
GROUP = ScopedType("SCOPE/GROUP", str, lambda client, scope: client.reader_groups.list(scope))
LINK = LinkType()
SEGMENT = SegmentType()
