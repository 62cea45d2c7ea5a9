"""The options of a read.  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.spark.options import BATCH_READ, DEFAULT_CONTROLLER, READ, STREAMING_READ, Given, Option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.core.names import StreamName
    from sarit.spark.options import Target

OPTIONS: Final = (
    Option(
        "start", READ,
        "`head`, `tail`, or the text of a stream cut. A streaming query with a checkpoint continues there instead",
        "`head`",
    ),
    Option("end", BATCH_READ, "`tail`, or the text of a stream cut", "`tail`"),
    Option(
        "splits", BATCH_READ,
        "minimum number of partitions, approximately. With more than one per segment the driver reads the stream once "
        "to find event boundaries",
        "one per segment",
    ),
    Option(
        "maxEventsPerTrigger", STREAMING_READ,
        "hard bound of a micro-batch. The driver reads that much to find its end", "none",
    ),
    Option(
        "maxBytesPerTrigger", STREAMING_READ,
        "bound of a micro-batch in bytes; a single larger event is read nevertheless, each segment in its turn. The "
        "driver reads that much to find its end",
        "none",
    ),
    Option(
        "failOnDataLoss", READ,
        "`true`: fail when unread data was truncated, before or during the read. `false`: continue with the remaining "
        "data. A failed query continues from its checkpoint when it is restarted with `false`",
        "`true`",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How to read.  `start` and `end`: "head", "tail" or the text of a stream cut.

    `max_events` and `max_bytes` bound a micro-batch; None: no bound.  `splits` is the minimum number of partitions of a
    batch read.
    """

    target: Target
    stream: StreamName
    start: str
    end: str
    splits: int
    max_events: int | None
    max_bytes: int | None
    fail_on_data_loss: bool


def parse_read(options: Mapping[str, str], default_controller: str = DEFAULT_CONTROLLER) -> ReadOptions:
    """Read options; unknown ones are refused.  Raises Invalid."""
    given = Given(options, [OPTIONS])
    return ReadOptions(
        target=given.target(default_controller),
        stream=given.stream(),
        start=given.text("start") or "head",
        end=given.text("end") or "tail",
        splits=given.positive("splits") or 1,
        max_events=given.positive("maxEventsPerTrigger"),
        max_bytes=given.positive("maxBytesPerTrigger"),
        fail_on_data_loss=given.flag("failOnDataLoss", default=True),
    )
