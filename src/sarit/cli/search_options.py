"""Options of a stream's index for full-text search, for `sarit stream create` and `sarit stream update`."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sarit.cli.job_status import replace_job, time_since
from sarit.cli.options import count_of
from sarit.client.streams.search_index import index_of
from sarit.core.bounded_json import parse_json
from sarit.core.errors import Invalid
from sarit.search.limits import MAX_SEARCH_SETTINGS_BYTES
from sarit.search.mapping import from_document
from sarit.search.settings import SEARCH_JOB, SEARCH_KIND, STARTS, SearchSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.cli.options import Command
    from sarit.client.blocking.client import Client
    from sarit.client.streams.search_index import SearchIndex
    from sarit.core.names import StreamName
    from sarit.search.mapping import Mapping as FieldMapping

_OPTIONS = (
    click.option(
        "--searchable", "searchable", is_flag=True, default=None,
        help="Index the events for full-text search. Another choice for an index that there is indexes all again.",
    ),
    click.option(
        "--search-mapping", "search_mapping", metavar="FILE",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help='The fields of the events and their kinds, as JSON: {"fields": {"message": "text", "level": "keyword", '
        '"at": "time"}, "time_field": "at"}; without it they are inferred from the first events.',
    ),
    click.option(
        "--search-start", "search_start", type=click.Choice(STARTS),
        help="Where a new index begins: with the oldest event that there is (head), or with the next one (tail).",
    ),
    click.option(
        "--search-interval", "search_interval_seconds", type=int, metavar="SECONDS",
        help="How long after they were written events can be found, about; 5 without it. Another one for an index that "
        "there is indexes all again, too.",
    ),
)  # fmt: skip
_NAMES = tuple(SearchSettings.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class SearchChange:
    """The changes of a stream's index that a command line asks for.

    `given`: the fields of `SearchSettings` that it names.  `begins`: the stream is to have an index; `ends`: it is to
    have none any more."""

    given: Mapping[str, object]
    begins: bool = False
    ends: bool = False

    def __bool__(self) -> bool:
        return bool(self.given) or self.begins or self.ends


def search_options(command: Command) -> Command:
    """Add the options of an index; the command gets them as `search`, a `SearchChange`."""

    @functools.wraps(command)
    def call(**options: Any) -> Any:
        given = {name: value for name in _NAMES if (value := options.pop(f"search_{name}", None)) is not None}
        begins, ends = bool(options.pop("searchable", False)), options.pop("not_searchable", False)
        if ends and (given or begins):
            raise click.UsageError("--not-searchable, or options of an index, not both")
        if "mapping" in given:
            given["mapping"] = read_mapping(given["mapping"])
        return command(**options, search=SearchChange(given, begins, ends))

    made: Any = call
    for option in reversed(_OPTIONS):
        made = option(made)
    result: Command = made
    return result


not_searchable_option = click.option(
    "--not-searchable", is_flag=True, help="Delete the index of the stream; its events stay."
)


def read_mapping(path: Path) -> FieldMapping:
    """Return the mapping in a file.  Raises UsageError: it cannot be read, or has none."""
    try:
        with path.open("rb") as file:
            document = file.read(MAX_SEARCH_SETTINGS_BYTES + 1)
    except OSError as error:
        raise click.UsageError(f"{path} cannot be read: {error.strerror}") from None
    if len(document) > MAX_SEARCH_SETTINGS_BYTES:
        raise click.UsageError(f"{path} has more than {MAX_SEARCH_SETTINGS_BYTES} bytes: name fewer fields")
    try:
        return from_document(parse_json(document))
    except Invalid as error:
        raise click.UsageError(f"{path}: {error}") from None
    except ValueError as error:  # bytes that are no text, too
        raise click.UsageError(f"{path} is not JSON: {error}") from None


def new_index_settings(change: SearchChange) -> SearchSettings:
    """Return the settings of an index that does not exist.  Raises UsageError, Invalid."""
    if not change.begins:
        raise click.UsageError("the options --search-… need --searchable: the stream has no index")
    given: Any = change.given
    return SearchSettings(**given).check()


def change_index(client: Client, name: StreamName, change: SearchChange) -> None:
    """Give a stream an index, change the choices of its index, or end it.  Raises UsageError, Invalid, NotFound."""
    handle = client.stream(name)
    found = index_of(handle.jobs())
    if change.ends:
        if found is None:
            raise Invalid(f"stream {name} has no index")
        handle.delete_job(SEARCH_KIND, SEARCH_JOB)
        return
    if found is None:
        handle.create_job(SEARCH_KIND, new_index_settings(change).encode(), SEARCH_JOB)
        return
    given: Any = change.given
    wanted = replace(found.settings, **given).check()
    if wanted != found.settings:
        replace_job(client, name, SEARCH_KIND, found.settings.encode(), wanted.encode(), SEARCH_JOB)
        click.echo(f"sarit: the index of {name} is deleted, and made again from the {wanted.start}", err=True)


# -- what there is -------------------------------------------------------------------------------


def index_lines(index: SearchIndex, lag: int | None) -> list[tuple[str, str]]:
    """Return an index for people: labels with texts."""
    progress = index.progress
    what = f"{count_of(progress.events, 'event')} in {count_of(progress.shards, 'shard')} of "
    lines = [
        ("index", f"{index.job.state}, every {count_of(index.settings.interval_seconds, 'second')}"),
        ("indexed", f"{what}{count_of(progress.bytes, 'byte')}, last commit {time_since(progress.committed_ms)}"),
        ("behind", "unknown" if lag is None else count_of(lag, "byte")),
    ]
    if progress.partly:
        lines.append(("partly", f"of {count_of(progress.partly, 'event')} a part is not searched"))
    if progress.lost_bytes:
        lines.append(("gap", f"{count_of(progress.lost_bytes, 'byte')} were truncated before they were indexed"))
    if index.job.problem:
        lines.append(("problem", index.job.problem))
    return lines
