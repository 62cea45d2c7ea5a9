"""The options of a write."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Invalid
from sarit.core.limits import MAX_TRANSACTION_LEASE_MS, MIN_TRANSACTION_LEASE_MS
from sarit.core.names import StreamName
from sarit.core.policies import RetentionPolicy, RetentionType, ScaleType, ScalingPolicy
from sarit.spark.formats import options as formats
from sarit.spark.limits import SPARK_LEASE_SECONDS
from sarit.spark.options import DEFAULT_CONTROLLER, WRITE, Given, Option
from sarit.spark.registry import options as registry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.spark.options import Target

EXACTLY_ONCE: Final = "exactly-once"
AT_LEAST_ONCE: Final = "at-least-once"

OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        "deliveryGuarantee", WRITE,
        "`exactly-once`: each batch is visible once, in transactions. `at-least-once`: rows are appended directly; a "
        "task or batch that Spark repeats appends its rows again",
        f"`{EXACTLY_ONCE}`",
    ),
    Option("scope", WRITE, "the scope of the streams that a column `stream` names without one"),
    Option("routingKey", WRITE, "the string column with the routing key of each row", "`routing_key`, if there is one"),
    Option(
        "jobId", WRITE,
        "batch write: a name of your own for the job. A job that is run again under its name writes nothing if it was "
        "written before. In `foreachBatch`: the name of the query and the batch id",
    ),
    Option(
        "transactionTimeout", WRITE,
        "seconds for which written rows wait for their commit while neither a task nor the driver lives (10 to 600)",
        f"`{SPARK_LEASE_SECONDS}`",
    ),
    Option(
        "stateTable", WRITE, "`SCOPE/TABLE`: the key-value table for the sink's records; created when it is missing",
        "`spark-sink` in the scope of the stream",
    ),
    Option("createStream", WRITE, "`true`: create streams that do not exist (their scope must)", "`false`"),
    Option("segments", WRITE, "with `createStream`: segments of a new stream, the least number if it scales", "`1`"),
    Option(
        "scaling", WRITE,
        "with `createStream`: `fixed`, or the target rate per segment, as `1000 events/s` or `500 KB/s`", "`fixed`",
    ),
    Option("retention", WRITE, "with `createStream`: as `7 days`, `12 hours`, `100 GB`, or `none`", "`none`"),
)  # fmt: skip

DEFAULT_TABLE: Final = "spark-sink"
DEFAULT_KEY_COLUMN: Final = "routing_key"
_SCALE_FACTOR: Final = 2

_UNIT_BYTES: Final = {"B": 1, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "TB": 1000**4}
_UNIT_MS: Final = {"second": 1000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000, "week": 7 * 86_400_000}
_QUANTITY: Final = re.compile(r"\s*(\d+)\s*([A-Za-z]+)\s*")
_RATE: Final = re.compile(r"\s*(\d+)\s*([A-Za-z]+)\s*/\s*s\s*")


@dataclass(frozen=True, slots=True)
class NewStream:
    """The policies of a stream that a write creates."""

    scaling: ScalingPolicy
    retention: RetentionPolicy


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a write.  `stream`: None: a column names the stream of each row.  `key_column`: None: not given.
    `create`: None: streams must exist."""

    target: Target
    stream: StreamName | None
    scope: str | None = None
    table: StreamName | None = None
    exactly_once: bool = True
    key_column: str | None = None
    job: str | None = None
    lease_seconds: int = SPARK_LEASE_SECONDS
    create: NewStream | None = None

    @property
    def state_table(self) -> StreamName:
        """The table of the sink's records."""
        if self.table is not None:
            return self.table
        scope = self.stream.scope if self.stream is not None else self.scope
        assert scope is not None, "parse_write checks it"
        return StreamName(scope, DEFAULT_TABLE)


def parse_write(options: Mapping[str, str], default_controller: str = DEFAULT_CONTROLLER) -> WriteOptions:
    """Parse the options of a write.  Raises Invalid, also for unknown options."""
    given = Given(options, [OPTIONS, formats.OPTIONS, registry.OPTIONS])
    named = given.text("stream") or given.text("path")
    stream = given.stream() if named else None
    scope, table = given.text("scope"), given.text("stateTable")
    exactly_once = given.choice("deliveryGuarantee", (EXACTLY_ONCE, AT_LEAST_ONCE), EXACTLY_ONCE) == EXACTLY_ONCE
    if stream is None and not scope and not (table or not exactly_once):
        raise Invalid(
            'which stream? give .option("stream", "SCOPE/STREAM"); or a column stream, and .option("scope", "SCOPE") '
            'or .option("stateTable", "SCOPE/TABLE")'
        )
    return WriteOptions(
        given.target(default_controller),
        stream,
        scope,
        StreamName.parse(table) if table else None,
        exactly_once,
        given.text("routingKey"),
        given.text("jobId"),
        _lease(given),
        _new_stream(given),
    )


def _lease(given: Given) -> int:
    seconds = given.positive("transactionTimeout") or SPARK_LEASE_SECONDS
    if not MIN_TRANSACTION_LEASE_MS <= seconds * 1000 <= MAX_TRANSACTION_LEASE_MS:
        least, most = MIN_TRANSACTION_LEASE_MS // 1000, MAX_TRANSACTION_LEASE_MS // 1000
        raise Invalid(f"option transactionTimeout is {seconds}: give {least} to {most} seconds")
    return seconds


def _new_stream(given: Given) -> NewStream | None:
    shaping = [name for name in ("segments", "scaling", "retention") if given.text(name) is not None]
    if not given.flag("createStream", default=False):
        if shaping:
            raise Invalid(f'option {shaping[0]} is for new streams: give .option("createStream", "true") with it')
        return None
    scaling = parse_scaling(given.text("scaling") or "fixed", given.positive("segments") or 1)
    scaling.check()
    return NewStream(scaling, parse_retention(given.text("retention") or "none"))


def parse_scaling(text: str, segments: int) -> ScalingPolicy:
    """Parse `fixed`, `1000 events/s` or `500 KB/s` (per segment).  Raises Invalid."""
    if text.strip().lower() == "fixed":
        return ScalingPolicy(min_segments=segments)
    found = _RATE.fullmatch(text)
    rate, unit = (int(found[1]), found[2].upper()) if found else (0, "")
    if rate and unit in ("EVENT", "EVENTS"):
        return ScalingPolicy(ScaleType.EVENTS_PER_SECOND, rate, _SCALE_FACTOR, segments)
    kilobytes = rate * _UNIT_BYTES.get(unit, 0) // 1000
    if kilobytes:
        return ScalingPolicy(ScaleType.KILOBYTES_PER_SECOND, kilobytes, _SCALE_FACTOR, segments)
    raise Invalid(f"option scaling is {text!r}: give 'fixed', or a rate per segment as '1000 events/s' or '500 KB/s'")


def parse_retention(text: str) -> RetentionPolicy:
    """Parse `7 days`, `100 GB` or `none`.  Raises Invalid."""
    if text.strip().lower() == "none":
        return RetentionPolicy()
    found = _QUANTITY.fullmatch(text)
    amount, unit = (int(found[1]), found[2]) if found else (0, "")
    if amount and (milliseconds := _UNIT_MS.get(unit.lower().removesuffix("s"), 0)):
        return RetentionPolicy(RetentionType.TIME, amount * milliseconds)
    if amount and (size := _UNIT_BYTES.get(unit.upper(), 0)):
        return RetentionPolicy(RetentionType.SIZE, amount * size)
    raise Invalid(f"option retention is {text!r}: give a time as '7 days', a size as '100 GB', or 'none'")
