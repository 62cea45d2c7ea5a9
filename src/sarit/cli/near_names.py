"""What an error about a scope, stream, table or group that is not there says more: the names that there are."""

from __future__ import annotations

from typing import Any

import click

from sarit.core.errors import NotFound


class NamedCommand(click.Command):
    """A command that names things: an error that one of them is not there ends with those that are.

    One with an argument `query` says how a query that begins with a minus is given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line as click does."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name.startswith("--") or all(each.name != "query" for each in self.params):
                raise
            more = "Before a query that begins with a minus write --, as in: -- -disk"
            raise click.NoSuchOption(error.option_name, f"{error.message} {more}", ctx=ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command as click does."""
        try:
            return super().invoke(ctx)
        except NotFound as error:
            from sarit.cli.names import names_beside

            if found := names_beside(ctx, str(error)):
                error.args = (f"{error}; {found}", *error.args[1:])
            raise
