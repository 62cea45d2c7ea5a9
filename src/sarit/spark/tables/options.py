"""The options of metadata and of key-value tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Invalid
from sarit.core.names import StreamName, is_user_name
from sarit.spark.limits import SPARK_SAMPLE_SECONDS
from sarit.spark.options import BATCH_READ, DEFAULT_CONTROLLER, Given, Option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.spark.options import Target

STREAMS: Final = "streams"
SEGMENTS: Final = "segments"
GROUPS: Final = "groups"
HEAT: Final = "heat"
TABLES: Final = "tables"
METADATA: Final = (STREAMS, SEGMENTS, GROUPS, HEAT, TABLES)

UPSERT: Final = "upsert"
INSERT: Final = "insert"
DELETE: Final = "delete"

_METADATA_OPTIONS: Final = (
    Option(
        "metadata", BATCH_READ,
        "`streams`, `segments`, `groups`, `heat` or `tables`: rows about them instead of events. With `scope` or "
        "`stream`: of that scope or stream alone",
    ),
    Option("scope", "metadata", "the scope whose streams, groups or tables are listed", "all scopes"),
    Option(
        "sampleSeconds", "metadata", "`heat`: the time between the two observations of each segment",
        f"`{SPARK_SAMPLE_SECONDS}`",
    ),
)  # fmt: skip

_TABLE_OPTIONS: Final = (
    Option("table", "batch read, write", "`SCOPE/TABLE`: a key-value table instead of a stream"),
)  # fmt: skip

_TABLE_WRITE_OPTIONS: Final = (
    Option(
        "writeMode", "write to a table",
        "`upsert`: set the values; `insert`: only of absent keys, and fail when one has another value; `delete`: "
        "remove the keys",
        "`upsert`",
    ),
    Option("createTable", "write to a table", "`true`: create the table when it does not exist", "`false`"),
    Option("primaryKeyBytes", "write to a table", "with `createTable`: the length of its keys in bytes"),
    Option("secondaryKeyBytes", "write to a table", "with `createTable`: the length of its secondary keys", "none"),
    Option("tablePartitions", "write to a table", "with `createTable`: the number of its partitions", "`1`"),
)  # fmt: skip

OPTIONS: Final = (*_METADATA_OPTIONS, *_TABLE_OPTIONS, *_TABLE_WRITE_OPTIONS)


@dataclass(frozen=True, slots=True)
class MetadataOptions:
    """The options of a read of metadata.  A `scope` or `stream` of None means all of them.  `sample_seconds`: the time
    between the two observations of `heat`."""

    target: Target
    kind: str
    scope: str | None
    stream: StreamName | None
    sample_seconds: int


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The options of a read of a table."""

    target: Target
    table: StreamName


@dataclass(frozen=True, slots=True)
class NewTable:
    """The table that a write creates; lengths of keys in bytes."""

    primary_key_bytes: int
    secondary_key_bytes: int
    partitions: int


@dataclass(frozen=True, slots=True)
class TableWriteOptions:
    """The options of a write to a table.  `create`: None: the table must exist."""

    target: Target
    table: StreamName
    mode: str
    create: NewTable | None


def is_metadata(options: Mapping[str, str]) -> bool:
    """Return whether the options ask for metadata."""
    return _has(options, "metadata")


def is_table(options: Mapping[str, str]) -> bool:
    """Return whether the options name a key-value table."""
    return _has(options, "table")


def _has(options: Mapping[str, str], name: str) -> bool:
    return any(given.lower() == name for given in options)


def parse_metadata(options: Mapping[str, str], default_controller: str = DEFAULT_CONTROLLER) -> MetadataOptions:
    """Parse the options of a read of metadata.  Raises Invalid, also for unknown options."""
    given = Given(options, [_METADATA_OPTIONS])
    kind = given.choice("metadata", METADATA, STREAMS)
    name = given.text("stream") or given.text("path")
    stream = StreamName.parse(name) if name else None
    scope = given.text("scope")
    if scope is not None and not is_user_name(scope):
        raise Invalid(f"option scope is {scope!r}: that is no name of a scope")
    if stream is not None and scope not in (None, stream.scope):
        raise Invalid(f"give the scope {scope} or the stream {stream}, not both")
    if stream is not None and kind == TABLES:
        raise Invalid('metadata "tables" has no option stream: give scope')
    sample = given.positive("sampleSeconds") or SPARK_SAMPLE_SECONDS
    return MetadataOptions(given.target(default_controller), kind, scope, stream, sample)


def parse_table_read(options: Mapping[str, str], default_controller: str = DEFAULT_CONTROLLER) -> TableOptions:
    """Parse the options of a read of a table.  Raises Invalid, also for unknown options."""
    given = Given(options, [_TABLE_OPTIONS])
    return TableOptions(given.target(default_controller), _table(given))


def parse_table_write(options: Mapping[str, str], default_controller: str = DEFAULT_CONTROLLER) -> TableWriteOptions:
    """Parse the options of a write to a table.  Raises Invalid, also for unknown options."""
    given = Given(options, [_TABLE_OPTIONS, _TABLE_WRITE_OPTIONS])
    create = None
    if given.flag("createTable", default=False):
        primary = given.positive("primaryKeyBytes")
        if primary is None:
            raise Invalid("createTable needs primaryKeyBytes, the length of the keys: all keys of a table have one")
        create = NewTable(primary, given.positive("secondaryKeyBytes") or 0, given.positive("tablePartitions") or 1)
    elif any(given.text(name) for name in ("primaryKeyBytes", "secondaryKeyBytes", "tablePartitions")):
        raise Invalid("the lengths of keys and the number of partitions are given with createTable alone")
    mode = given.choice("writeMode", (UPSERT, INSERT, DELETE), UPSERT)
    return TableWriteOptions(given.target(default_controller), _table(given), mode, create)


def _table(given: Given) -> StreamName:
    if given.text("stream") or given.text("path"):
        raise Invalid("give a table or a stream, not both")
    return StreamName.parse(given.text("table") or "")
