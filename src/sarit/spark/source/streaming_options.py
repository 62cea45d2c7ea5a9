"""The options that only streaming reads have."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.client.groups.group import group_name
from sarit.core.errors import Invalid
from sarit.spark.limits import SPARK_DISCOVERY_SECONDS, SPARK_TRIGGER_DELAY_MS
from sarit.spark.options import READ, STREAMING_READ, Option
from sarit.spark.source.admission import Limits

if TYPE_CHECKING:
    from sarit.spark.options import Given

OPTIONS: Final = (
    Option(
        "maxEventsPerTrigger", STREAMING_READ,
        "bound of a micro-batch in events: exact while it is small, else by the mean size of the next events", "none",
    ),
    Option(
        "maxBytesPerTrigger", STREAMING_READ,
        "bound of a micro-batch in bytes; a single larger event is read nevertheless, each segment in its turn", "none",
    ),
    Option(
        "minEventsPerTrigger", STREAMING_READ,
        "wait until about so many events are there, or for `maxTriggerDelay`. `availableNow` does not wait", "none",
    ),
    Option(
        "maxTriggerDelay", STREAMING_READ,
        "with `minEventsPerTrigger`: the longest time between two micro-batches, as `500ms`, `10s`, `15m`, `1h`",
        "`15m`",
    ),
    Option(
        "minPartitions", READ,
        "about the least number of partitions, of a batch read or a micro-batch: larger segments are cut at event "
        "boundaries, without reading. Events of one key are then ordered by `offset`, not by partition",
        "one per segment; many small ones of a batch read share one",
    ),
    Option(
        "readerGroup", STREAMING_READ,
        "`SCOPE/GROUP` or `GROUP`: publish the query's position as that of a reader group, which the query alone uses. "
        "`sarit group info` shows its lag, and streams with a retention policy retain what it has not read",
        "none",
    ),
    Option(
        "discoverySeconds", STREAMING_READ,
        "how often the streams of `streamPattern` are listed again; a new one is read from its head",
        f"`{SPARK_DISCOVERY_SECONDS}`",
    ),
)  # fmt: skip

_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_DURATION: Final = re.compile(r"(\d{1,9})\s*(ms|s|m|h)", re.ASCII)


@dataclass(frozen=True, slots=True)
class StreamingOptions:
    """The options of a streaming read.  `discovery_seconds`: how often the streams of a pattern are listed again."""

    limits: Limits
    discovery_seconds: int
    reader_group: str | None
    noted_time: bool
    include_cut: bool


def parse_streaming(given: Given, scope: str) -> StreamingOptions:
    """Parse the options of a streaming read.  `scope`: the scope for a reader group without one.  Raises Invalid."""
    limits = Limits(
        max_events=given.positive("maxEventsPerTrigger"),
        max_bytes=given.positive("maxBytesPerTrigger"),
        min_events=given.positive("minEventsPerTrigger"),
        max_delay_ms=_duration_ms(given.text("maxTriggerDelay")),
    )
    if limits.min_events is None and given.text("maxTriggerDelay") is not None:
        raise Invalid("option maxTriggerDelay has no effect without minEventsPerTrigger: give both, or neither")
    if limits.min_events is not None and limits.max_events is not None and limits.min_events > limits.max_events:
        raise Invalid(f"minEventsPerTrigger {limits.min_events} is above maxEventsPerTrigger {limits.max_events}")
    return StreamingOptions(
        limits,
        given.positive("discoverySeconds") or SPARK_DISCOVERY_SECONDS,
        _group(given.text("readerGroup"), scope),
        given.flag("notedTime", default=False),
        given.flag("includeCut", default=False),
    )


def _group(text: str | None, scope: str) -> str | None:
    if text is None:
        return None
    name = text.strip() if "/" in text else f"{scope}/{text.strip()}"
    try:
        group_name(name)
    except Invalid as error:
        raise Invalid(f"option readerGroup: {error}") from None
    return name


def _duration_ms(text: str | None) -> int:
    if text is None:
        return SPARK_TRIGGER_DELAY_MS
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise Invalid(f"option maxTriggerDelay is {text!r}: give a number and a unit, as 500ms, 10s, 15m or 1h")
    return int(found[1]) * _UNITS_MS[found[2]]
