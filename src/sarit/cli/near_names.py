"""What an error about a scope, stream, table or group that is not there says more: the names that there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from sarit.core.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_NAMED: Final = 5


class NamedCommand(click.Command):
    """A command that names things: an error that one of them is not there ends with those that are."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command as click does."""
        try:
            return super().invoke(ctx)
        except NotFound as error:
            from sarit.cli.names import names_beside

            if found := names_beside(ctx, str(error)):
                error.args = (f"{error}; {found}", *error.args[1:])
            raise


def nearest(name: str, names: Sequence[str]) -> str:
    """Return in words which names there are: all of a few, or those that are most like `name`."""
    if len(names) <= MAX_NAMED:
        return f"there is {' and '.join(names)}" if len(names) == 1 else f"there are {', '.join(names)}"
    from difflib import SequenceMatcher

    like = sorted(names, key=lambda each: -SequenceMatcher(None, each, name).ratio())[:MAX_NAMED]
    return f"there are {', '.join(like)} and {len(names) - MAX_NAMED:,} more"
