"""`sarit schema compatibility`: which changes of a schema a subject allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sarit.cli.options import Commands, format_option, registry_option, show_fields
from sarit.cli.options import show as show_result
from sarit.cli.schema.registry import open_registry
from sarit.cli.schema.subjects import SUBJECT
from sarit.schemas.compatibility import Level

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_LEVELS = [level.value for level in Level]


def _subject_option(command: Callable[..., Any]) -> Callable[..., Any]:
    text = "The subject.  [default: all that have no level of their own]"
    return click.option("--subject", type=SUBJECT, help=text)(command)


@click.group(cls=Commands)
def compatibility() -> None:
    """Show and change which new schemas are allowed: of a subject, or of all.

    BACKWARD: readers with the new schema read what was written with the latest one.  FORWARD: readers with the latest
    schema read what is written with the new one.  FULL: both.  With _TRANSITIVE all versions count, not only the
    latest.  NONE: every schema is allowed.
    """


@compatibility.command()
@_subject_option
@registry_option
@format_option
def show(subject: str | None, registry: str, output: str) -> None:
    """Print the level, and whose it is."""
    client = open_registry(registry)
    own = client.own_compatibility(subject)
    of = "all subjects" if own is None or subject is None else subject
    show_fields(output, {"subject": subject or "-", "compatibility": own or client.compatibility(subject), "of": of})


@compatibility.command("set")
@click.argument("level", type=click.Choice(_LEVELS, case_sensitive=False))
@_subject_option
@registry_option
@format_option
def set_level(level: str, subject: str | None, registry: str, output: str) -> None:
    """Set the level.  The schemas that are there are not checked again."""
    open_registry(registry).set_compatibility(level, subject)
    report = {"subject": subject, "compatibility": level}
    show_result(output, report, f"{subject or 'all subjects without a level of their own'}: {level}")


@compatibility.command()
@_subject_option
@registry_option
@format_option
def remove(subject: str | None, registry: str, output: str) -> None:
    """Remove the level of a subject, so that the one of all holds; without --subject, go back to BACKWARD."""
    client = open_registry(registry)
    client.set_compatibility(None, subject)
    level = client.compatibility(subject)
    show_result(output, {"subject": subject, "compatibility": level}, f"{subject or 'all subjects'}: {level}")
