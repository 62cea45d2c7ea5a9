"""The settings of a stream's Iceberg table: what its user chose, as the job that commits to the table keeps it.

A document in JSON, at most MAX_ICEBERG_SETTINGS_BYTES; docs/formats/iceberg.md has an example.  A field that is missing
has its default, so that settings of an older version stay valid.  A field that is unknown is refused: a newer version
wrote it, and means something by it.  Pure.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Final

from sarit.core import cuts
from sarit.core.bounded_json import parse_json
from sarit.core.errors import Invalid
from sarit.core.nearest_names import nearest
from sarit.lake.limits import (
    DEFAULT_COMMIT_INTERVAL_SECONDS,
    DEFAULT_SNAPSHOT_AGE_SECONDS,
    DEFAULT_TARGET_FILE_BYTES,
    MAX_COMMIT_INTERVAL_SECONDS,
    MAX_ICEBERG_NAME_CHARACTERS,
    MAX_ICEBERG_SETTINGS_BYTES,
    MAX_NAMESPACE_LEVELS,
    MAX_SNAPSHOT_AGE_SECONDS,
    MAX_TARGET_FILE_BYTES,
    MIN_COMMIT_INTERVAL_SECONDS,
    MIN_SNAPSHOT_AGE_SECONDS,
    MIN_TARGET_FILE_BYTES,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

VALUE_CHOICES: Final = ("auto", "schema", "json", "binary")
STARTS: Final = ("head", "tail")
RESUMES: Final = ("head", "tail", "table")  # or the text of a cut
DEAD_LETTERS_SUFFIX: Final = "__dlq"

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_\-]*")
_SHOWN_CHARACTERS: Final = 80


@dataclass(frozen=True, slots=True)
class IcebergSettings:
    """The choices of a user for the Iceberg table of a stream.

    `table`: CATALOG.NAMESPACE.TABLE, where CATALOG is a name in the node's configuration; the namespace may have
    several levels.
    `value`: what payloads become: columns of the registered schema, columns of JSON, one column of bytes, or (`auto`)
    columns where the stream has a schema, else bytes.
    `start`: whether a new table begins with the stream's oldest event or with the next one.
    `interval_seconds`, `target_bytes`: a commit is made so long after the one before, or when so much is waiting.
    `naive_times`: times have no time zone (they are in UTC), for readers that know none, as Presto.
    `numbered_metadata`: write what readers without a catalog find the newest metadata by, as Presto's HADOOP catalog.
    `expire_after_seconds`: how long snapshots stay, the newest MAX_SNAPSHOTS_KEPT of them; 0: for ever.
    `resume_from`: where a new job goes on in a table that is not as another job left it: "head" or "tail" of the
    stream, "table" (at what the newest snapshot has), or a cut; empty: only in a table that is as it was left."""

    table: str
    value: str = "auto"
    start: str = "head"
    interval_seconds: int = DEFAULT_COMMIT_INTERVAL_SECONDS
    target_bytes: int = DEFAULT_TARGET_FILE_BYTES
    naive_times: bool = False
    numbered_metadata: bool = False
    expire_after_seconds: int = DEFAULT_SNAPSHOT_AGE_SECONDS
    resume_from: str = ""

    @property
    def catalog(self) -> str:
        """The name of the catalog in the node's configuration."""
        return self.table.partition(".")[0]

    @property
    def identifier(self) -> tuple[str, ...]:
        """The name of the table in its catalog: the levels of the namespace, and the table."""
        return tuple(self.table.split(".")[1:])

    @property
    def dead_letters(self) -> tuple[str, ...]:
        """The name of the table with the events that could not become rows."""
        *namespace, table = self.identifier
        return (*namespace, table + DEAD_LETTERS_SUFFIX)

    def check(self) -> IcebergSettings:
        """Return these settings if they are well formed.  Raises Invalid with the reason."""
        _check_table(self.table)
        _check_choice("value", self.value, VALUE_CHOICES)
        _check_choice("start", self.start, STARTS)
        _check_range(
            "interval", self.interval_seconds, MIN_COMMIT_INTERVAL_SECONDS, MAX_COMMIT_INTERVAL_SECONDS, "seconds"
        )
        _check_range("target", self.target_bytes, MIN_TARGET_FILE_BYTES, MAX_TARGET_FILE_BYTES, "bytes")
        if self.expire_after_seconds != 0:
            _check_range(
                "age of snapshots", self.expire_after_seconds, MIN_SNAPSHOT_AGE_SECONDS, MAX_SNAPSHOT_AGE_SECONDS,
                "seconds, or 0 for ever",
            )  # fmt: skip
        if self.resume_from and self.resume_from not in RESUMES and cuts.from_text(self.resume_from) is None:
            raise Invalid(f"resume-from of an Iceberg table: give {', '.join(RESUMES)}, or a cut with bounds")
        return self

    def encode(self) -> bytes:
        """Return the settings as a document.  Raises Invalid: they are not well formed."""
        chosen = asdict(self.check())
        if not self.resume_from:
            del chosen["resume_from"]
        return json.dumps(chosen).encode()


def decode_settings(document: bytes) -> IcebergSettings:
    """Return the settings that a document has.  Raises Invalid with the reason."""
    if len(document) > MAX_ICEBERG_SETTINGS_BYTES:
        raise Invalid(
            f"the settings of an Iceberg table have {len(document)} bytes: at most {MAX_ICEBERG_SETTINGS_BYTES}"
        )
    try:
        found = parse_json(document)
    except ValueError as error:  # bytes that are no text, too
        raise Invalid(f"the settings of an Iceberg table are not JSON: {error}") from None
    if not isinstance(found, dict):
        raise Invalid("the settings of an Iceberg table are not a JSON object")
    kinds = {field.name: _KINDS[field.type] for field in fields(IcebergSettings)}
    for name, value in found.items():
        if name not in kinds:
            shown = name[:_SHOWN_CHARACTERS]
            raise Invalid(
                f"the settings of an Iceberg table have an unknown field {shown!a}: {nearest(shown, kinds)}, or a "
                "newer version of Sarit wrote them"
            )
        if type(value) is not kinds[name]:
            raise Invalid(f"{name} of an Iceberg table has to be of type {kinds[name].__name__}")
    if "table" not in found:
        raise Invalid("the settings of an Iceberg table name no table: CATALOG.NAMESPACE.TABLE")
    return IcebergSettings(**found).check()


_KINDS: Final[Mapping[object, type]] = {"str": str, "int": int, "bool": bool}


def _check_table(table: str) -> None:
    parts = table.split(".")
    shown = table[:_SHOWN_CHARACTERS]
    if len(parts) < 3:
        raise Invalid(
            f"{shown!a} is not CATALOG.NAMESPACE.TABLE: the name of a catalog in the node's configuration, and the "
            "namespace and the name of the table in it"
        )
    if len(parts) > MAX_NAMESPACE_LEVELS + 2:
        raise Invalid(f"{shown!a} has {len(parts) - 2} levels of namespaces: at most {MAX_NAMESPACE_LEVELS}")
    for part in (*parts[:-1], parts[-1] + DEAD_LETTERS_SUFFIX):
        if _NAME.fullmatch(part) is None or len(part) > MAX_ICEBERG_NAME_CHARACTERS:
            raise Invalid(
                f"{part[:_SHOWN_CHARACTERS]!a} in {shown!a} cannot be a name: use letters, digits, '_' and '-', "
                f"at most {MAX_ICEBERG_NAME_CHARACTERS - len(DEAD_LETTERS_SUFFIX)} characters"
            )
    if parts[-1] == "" or parts[-1].endswith(DEAD_LETTERS_SUFFIX):
        raise Invalid(f"{shown!a} cannot be a table: a name that ends with {DEAD_LETTERS_SUFFIX} is for dead letters")


def _check_choice(what: str, chosen: str, choices: tuple[str, ...]) -> None:
    if chosen not in choices:
        raise Invalid(f"{what} of an Iceberg table cannot be {chosen[:_SHOWN_CHARACTERS]!a}: {', '.join(choices)}")


def _check_range(what: str, value: int, least: int, most: int, unit: str) -> None:
    if not least <= value <= most:
        raise Invalid(f"{what} of an Iceberg table cannot be {value}: choose {least} to {most} {unit}")
