"""The options of a read, and which streams they select."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Invalid, NotFound
from sarit.core.names import StreamName, is_internal_name
from sarit.spark.formats import options as formats
from sarit.spark.limits import SPARK_PARTITION_BYTES
from sarit.spark.options import BATCH_READ, DEFAULT_CONTROLLER, READ, Given, Option
from sarit.spark.registry import options as registry
from sarit.spark.source import streaming_options
from sarit.spark.source.event_search import SearchOption, parse_search
from sarit.spark.source.starts import Places
from sarit.spark.source.streaming_options import StreamingOptions, parse_streaming

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sarit.spark.options import Target

OPTIONS: Final = (
    Option(
        "streams", READ, "several streams, as `SCOPE/STREAM,SCOPE/STREAM`. One of `stream`, `streams`, `streamPattern`"
    ),
    Option(
        "streamPattern", READ,
        "`SCOPE/REGEX`: the streams of a scope whose whole name the regular expression matches",
    ),
    Option("scope", READ, "the scope of names and patterns without one"),
    Option(
        "start", READ,
        "`head` (`earliest`), `tail` (`latest`), the text of a stream cut, a time (`-10 minutes`, "
        "`2026-01-31T12:00:00Z`, milliseconds since 1970), `-N` for the last N events of each stream, or one of these "
        "for each stream: `{\"SCOPE/STREAM\": \"head\"}`. A streaming query with a checkpoint continues there instead",
        "`head`",
    ),
    Option("end", BATCH_READ, "as `start`", "`tail`"),
    Option(
        "maxBytesPerPartition", BATCH_READ,
        "bound of a partition in bytes, approximately; a longer segment is cut",
        f"`{SPARK_PARTITION_BYTES}`",
    ),
    Option(
        "pushFilters", BATCH_READ,
        "`true`: what the `where` of the query leaves out is not read. Then load a frame for each use of it: Spark "
        "keeps one plan of a frame, and would apply the filters of one use to all others",
        "`false`",
    ),
    Option(
        "keyIsRoutingKey", BATCH_READ,
        "with `pushFilters`, `true`: column `key` is the routing key that each event was written with, as it is with "
        "envelopes unless the writer gave another. Then a filter `key = ...` reads only the segments of that key",
        "`false`",
    ),
    Option(
        "search", BATCH_READ,
        "a query of full-text search, as `level:error \"timed out\"`: the "
        "read has the events that it finds, and no others. The tasks look into each event, so no index is needed",
    ),
    Option(
        "searchMapping", BATCH_READ,
        "with `search`: the fields of the events and their kinds, as JSON: `{\"fields\": {\"level\": \"keyword\"}}`",
        "that of the stream's index, if it was given one, else inferred from the first events that are read",
    ),
    Option(
        "failOnDataLoss", READ,
        "`true`: fail when unread data was truncated, before or during the read. `false`: continue with the remaining "
        "data. A failed query continues from its checkpoint when it is restarted with `false`",
        "`true`",
    ),
)  # fmt: skip


# A present time for checking the syntax of times; so late that no relative time is before 1970.
_ANY_PRESENT: Final = 1 << 52


@dataclass(frozen=True, slots=True)
class StreamSelection:
    """The streams to read: `names`, or those of `scope` whose whole name matches the regular expression `pattern`."""

    names: tuple[StreamName, ...] = ()
    scope: str = ""
    pattern: str = ""

    def resolve(self, list_streams: Callable[[str], Iterable[StreamName]]) -> list[StreamName]:
        """Return the selected streams, sorted.  `list_streams`: lists the streams of a scope.

        Does not check that `names` exist.  Raises NotFound when no stream matches the pattern."""
        if not self.pattern:
            return sorted(self.names)
        present = sorted(list_streams(self.scope))
        matches = re.compile(self.pattern).fullmatch
        found = [name for name in present if matches(name.stream)]
        if not found:
            near = difflib.get_close_matches(self.pattern, [name.stream for name in present], 3, 0.0)
            some = f"it has {len(present)}, as {', '.join(near)}" if near else "it has none"
            raise NotFound(f"no stream of scope {self.scope} matches streamPattern '{self.pattern[:200]}': {some}")
        return found

    def __str__(self) -> str:
        return f"{self.scope}/{self.pattern}" if self.pattern else ",".join(map(str, sorted(self.names)))


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a read.  `start` and `end`: values as in `starts.py`.

    `min_partitions` and `max_bytes_per_partition` divide a batch read into tasks.
    """

    target: Target
    selection: StreamSelection
    start: str
    end: str
    min_partitions: int | None
    max_bytes_per_partition: int
    fail_on_data_loss: bool
    streaming: StreamingOptions
    push_filters: bool = False
    key_is_routing_key: bool = False
    search: SearchOption | None = None

    @property
    def stream(self) -> StreamName:
        """The only stream.  Raises Invalid when several are selected."""
        if len(self.selection.names) != 1:
            raise Invalid(f"this read takes one stream, not {self.selection}")
        return self.selection.names[0]


def parse_read(options: Mapping[str, str], default_controller: str = DEFAULT_CONTROLLER) -> ReadOptions:
    """Parse the options of a read.  Raises Invalid, also for unknown options."""
    given = Given(options, [OPTIONS, streaming_options.OPTIONS, formats.OPTIONS, registry.OPTIONS])
    start, end = given.text("start") or "head", given.text("end") or "tail"
    for option, text in (("start", start), ("end", end)):
        Places(option, text, _ANY_PRESENT)
    selection = _selection(given)
    return ReadOptions(
        target=given.target(default_controller),
        selection=selection,
        start=start,
        end=end,
        min_partitions=given.positive("minPartitions"),
        max_bytes_per_partition=given.positive("maxBytesPerPartition") or SPARK_PARTITION_BYTES,
        fail_on_data_loss=given.flag("failOnDataLoss", default=True),
        streaming=parse_streaming(given, selection.scope or selection.names[0].scope),
        push_filters=given.flag("pushFilters", default=False),
        key_is_routing_key=given.flag("keyIsRoutingKey", default=False),
        search=parse_search(given.text("search"), given.text("searchMapping")),
    )


def _selection(given: Given) -> StreamSelection:
    """Return the streams that the options select.  Raises Invalid: no or several options select streams, or a name or
    regular expression is wrong."""
    several, pattern = given.text("streams"), given.text("streamPattern")
    one = given.text("stream") or given.text("path")
    chosen = [text for text in dict.fromkeys((given.text("stream"), given.text("path"), several, pattern)) if text]
    if len(chosen) != 1:
        what = "which streams?" if not chosen else "option stream (or load(...)), streams, streamPattern: give one."
        raise Invalid(f'{what} As .option("stream", "SCOPE/STREAM"), or "streams" with several, or "streamPattern"')
    if pattern:
        return _pattern(pattern.strip(), given.text("scope"))
    names = [_with_scope(name.strip(), given.text("scope")) for name in chosen[0].split(",") if name.strip()]
    if not names:
        raise Invalid(f"option streams is {several!r}: give names, as SCOPE/STREAM,SCOPE/STREAM")
    if one and len(names) != 1:
        raise Invalid(f'option stream is {one!r}: for several give .option("streams", "SCOPE/STREAM,SCOPE/STREAM")')
    return StreamSelection(tuple(sorted({StreamName.parse(name) for name in names})))


def _with_scope(name: str, scope: str | None) -> str:
    return f"{scope}/{name}" if scope and "/" not in name else name


def _pattern(text: str, default_scope: str | None) -> StreamSelection:
    scope, _, pattern = _with_scope(text, default_scope).partition("/")
    if not pattern:
        raise Invalid(f"option streamPattern is {text!r}: give SCOPE/REGEX, or the scope by option scope")
    if not is_internal_name(scope):
        raise Invalid(f"option streamPattern is {text!r}: {scope!r} is no scope; only the part after / is a pattern")
    try:
        re.compile(pattern)
    except re.error as error:
        raise Invalid(f"option streamPattern is {text!r}: {pattern!r} is no regular expression: {error}") from None
    return StreamSelection(scope=scope, pattern=pattern)
