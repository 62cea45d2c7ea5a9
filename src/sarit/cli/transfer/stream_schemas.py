"""The file of schemas beside an exported file: those that its events name, as `sarit schema export` writes them.

An export asks the registry when it meets an id for the first time, and appends at once what it learns, so that one that
is killed and goes on has the schemas of all its events.  An import registers them, with their ids, before any event is
written: events have these ids in them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from sarit.cli.schema.transfer import Import, Version, ordered, read_file, to_line
from sarit.core.envelope import Envelope
from sarit.core.errors import Corrupt, Invalid, NotFound, Unavailable
from sarit.core.properties import CONFLUENT, PRAVEGA, SCHEMA_HEADER
from sarit.serializers.headers import confluent_id, default_subject

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sarit.core.names import StreamName
    from sarit.serializers.registry_client import RegistryClient

_ALONE: Final = "--no-schemas imports the events without their schemas"


def path_of(file: str) -> Path:
    """Return the file of schemas beside an exported file."""
    return Path(f"{file.rstrip('/')}.schemas")


def wanted(file: str, properties: Mapping[str, str], *, without: bool) -> bool:
    """Return whether an export takes schemas along; say so if it should and cannot.  `without`: --no-schemas."""
    header = properties.get(SCHEMA_HEADER)
    if without or header not in (CONFLUENT, PRAVEGA):
        return False
    if header == CONFLUENT and file != "-":
        return True
    why = (
        "there is no file beside standard output"
        if header == CONFLUENT
        else "events with Pravega's header name them by numbers that this registry alone gives"
    )
    click.echo(
        f"sarit: the export is without the schemas of its events: {why}; `sarit schema export` has all", err=True
    )
    return False


class SchemaCollector:
    """Writes the schemas that events name, each once, and before them those that they refer to."""

    def __init__(self, file: str, stream: StreamName, client: RegistryClient, *, goes_on: bool) -> None:
        """`goes_on`: whether the export was begun before.  Raises Invalid (the file is damaged), OSError."""
        self._path = path_of(file)
        self._subject = default_subject(stream)
        self._client = client
        if not goes_on:
            self._path.unlink(missing_ok=True)
        elif self._path.exists():
            _cut_half_line(self._path)
        before = read_file(str(self._path)) if self._path.exists() else []
        self._written = {one.key for one in before if isinstance(one, Version)}
        self._ids = {one.held.id for one in before if isinstance(one, Version)}

    def __repr__(self) -> str:
        return f"<SchemaCollector to {self._path}, {len(self._written)} versions>"

    def add(self, events: Iterable[bytes]) -> None:
        """Write the schemas that events name and that are not there.  Raises Unavailable, OSError."""
        for event in events:
            number = _id_of(event)
            if number is not None and number not in self._ids:
                self._ids.add(number)
                self._write(number)

    def _write(self, number: int) -> None:
        try:
            holders = self._client.holders(number, deleted=True)
            if not holders:
                raise NotFound("no subject of the registry has it")
            # The subject of the stream, if it is one of them: of others nobody knows which was meant.
            key = next((one for one in holders if one[0] == self._subject), holders[0])
            found: dict[tuple[str, int], Version] = {}
            self._find(key, found)
        except (NotFound, Invalid) as error:
            click.echo(f"sarit: the schema of id {number}, which events name, is not in the export: {error}", err=True)
            return
        with self._path.open("ab") as out:
            out.writelines(to_line(one) for one in ordered(found.values()))
        self._written |= found.keys()

    def _find(self, key: tuple[str, int], found: dict[tuple[str, int], Version]) -> None:
        left = [key]
        while left:
            key = left.pop()
            if key in self._written or key in found:
                continue
            found[key] = Version(self._client.version(*key, deleted=True))
            left += found[key].used()


def _cut_half_line(path: Path) -> None:
    """Remove the line that an export was writing when it was killed."""
    with path.open("r+b") as file:
        file.truncate(file.read().rfind(b"\n") + 1)


def _id_of(event: bytes) -> int | None:
    try:
        return confluent_id(Envelope.parse(event).payload if Envelope.is_envelope(event) else event)
    except (Invalid, Corrupt):
        return None


def register(file: str, client: RegistryClient) -> int:
    """Register the schemas beside an exported file, with their ids; return how many are new.

    Raises Invalid, Conflict (an id has another schema here), Unavailable; each says what to do."""
    path = path_of(file)
    try:
        return Import(client, advice=f"give another --registry; {_ALONE}").run(read_file(str(path))).new
    except Unavailable as error:
        raise Unavailable(f"the schemas in {path} cannot be registered: {error}  {_ALONE}") from None
