"""`sarit schema export` and `import`: all schemas of a registry to a file, and back with their ids."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from sarit.cli.options import count_of, format_option, registry_option, show
from sarit.cli.schema import transfer
from sarit.cli.schema.registry import open_registry
from sarit.core.errors import Invalid
from sarit.serializers.registry_client import ALL_CONTEXTS


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--prefix", default=ALL_CONTEXTS, help="How the names of the subjects begin.  [default: all]")
@click.option("--deleted", is_flag=True, help="With versions that were deleted softly: events may have their ids.")
@registry_option
@format_option
def export(file: str, prefix: str, deleted: bool, registry: str, output: str) -> None:
    """Write all schemas of the registry to FILE, as JSON lines with their ids; "-" is standard output."""
    if file != "-" and Path(file).exists():
        raise Invalid(f"{file} exists: choose another name, or delete it")
    client = open_registry(registry)
    subjects = client.subjects(prefix, deleted=deleted)
    settings = list(transfer.settings_of(client, subjects))
    versions = transfer.ordered(
        version for subject in subjects for version in transfer.versions_of(client, subject, deleted=deleted)
    )
    lines = [*map(transfer.to_line, settings), *map(transfer.to_line, versions)]
    if file == "-":
        sys.stdout.buffer.writelines(lines)
    else:
        with Path(file).open("xb") as made:
            made.writelines(lines)
    report = {"file": file, "subjects": len(subjects), "versions": len(versions)}
    text = f"{count_of(len(versions), 'version')} of {count_of(len(subjects), 'subject')} in {file}"
    show(output, report, text, err=output == "text" or file == "-")


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--new-ids", is_flag=True, help="Let the registry number them: events that have the old ids are lost.")
@registry_option
@format_option
def import_(file: str, new_ids: bool, registry: str, output: str) -> None:
    """Register the schemas in FILE with their ids, and set the levels of compatibility; "-" is standard input.

    FILE is what `sarit schema export` writes.  What the registry has already with the same ids is left as it is, so
    an import that failed may be repeated.  While it goes on, its subjects are in the mode IMPORT, in which other
    programs cannot register schemas."""
    done = transfer.Import(open_registry(registry), keep_ids=not new_ids).run(transfer.read_file(file))
    ids = {str(old): new for old, new in done.ids.items()}
    report = {"file": file, "new": done.new, "there": done.there, "ids": ids}
    text = f"{count_of(done.new, 'version')} registered"
    show(output, report, text + (f", {done.there:,} were there" if done.there else ""), err=output == "text")
