"""Subjects on the command line: what a shell completes, and which subjects there are beside one that is not there."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from sarit.cli.contexts import registry_for
from sarit.cli.names import MAX_COMPLETIONS
from sarit.core.errors import SaritError
from sarit.core.nearest_names import nearest


class SubjectType(click.ParamType):  # type: ignore[type-arg]  # generic in some releases only
    """SUBJECT on the command line."""

    name = "SUBJECT"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text as it is: the registry says what is wrong with it."""
        text = str(value)
        if not text:
            self.fail("a subject has a name", param, ctx)
        return text

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the subjects that begin so."""
        return [CompletionItem(found) for found in _subjects(ctx, incomplete)[:MAX_COMPLETIONS]]

    def beside(self, ctx: click.Context, text: str) -> str:
        """Return in words which subjects there are beside `text`; empty: unknown."""
        found = _subjects(ctx, "")
        return nearest(text, found) if found and text not in found else ""


def _subjects(ctx: click.Context, prefix: str) -> list[str]:
    from sarit.cli.schema.registry import open_registry

    try:
        return open_registry(registry_for(ctx, ctx.params.get("registry"))).subjects(prefix)
    except (SaritError, OSError, click.ClickException):
        return []


SUBJECT = SubjectType()
