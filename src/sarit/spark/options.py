"""The options of `format("sarit")`, read once on the driver and carried to the tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sarit.core.errors import Invalid
from sarit.core.limits import SPARK_WAIT_SECONDS
from sarit.core.names import StreamName

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_CONTROLLER = "127.0.0.1:9090"

_COMMON = {"controller", "stream", "path", "waitseconds"}
_READ = {"start", "end", "splits", "maxeventspertrigger", "maxbytespertrigger", "failondataloss"}
_SPARK = {"checkpointlocation", "queryname"}


@dataclass(frozen=True, slots=True)
class Target:
    """The stream, the controller (`host:port`), and for how many seconds a task waits for a node that does not
    reply."""

    controller: str
    stream: StreamName
    wait_seconds: int = SPARK_WAIT_SECONDS


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How to read.  `start` and `end`: "head", "tail" or the text of a stream cut.

    `max_events` and `max_bytes` bound a micro-batch; None: no bound.  `splits` is the minimum number of partitions of a
    batch read.
    """

    target: Target
    start: str
    end: str
    splits: int
    max_events: int | None
    max_bytes: int | None
    fail_on_data_loss: bool


def parse_target(options: Mapping[str, str], default_controller: str = DEFAULT_CONTROLLER) -> Target:
    """The stream that `options` name.  Raises Invalid with the option to set."""
    name = options.get("stream") or options.get("path")
    if not name:
        raise Invalid('which stream? give .option("stream", "SCOPE/STREAM")')
    wait = _positive(options, "waitSeconds") or SPARK_WAIT_SECONDS
    return Target(options.get("controller") or default_controller, StreamName.parse(name), wait)


def parse_read(options: Mapping[str, str], default_controller: str = DEFAULT_CONTROLLER) -> ReadOptions:
    """Read options; unknown ones are refused: a misspelt limit would be no limit.  Raises Invalid."""
    _refuse_unknown(options, _COMMON | _READ | _SPARK)
    return ReadOptions(
        target=parse_target(options, default_controller),
        start=options.get("start", "head"),
        end=options.get("end", "tail"),
        splits=_positive(options, "splits") or 1,
        max_events=_positive(options, "maxEventsPerTrigger"),
        max_bytes=_positive(options, "maxBytesPerTrigger"),
        fail_on_data_loss=_flag(options, "failOnDataLoss", default=True),
    )


def parse_write(options: Mapping[str, str], default_controller: str = DEFAULT_CONTROLLER) -> Target:
    """Write options.  Raises Invalid."""
    _refuse_unknown(options, _COMMON | _SPARK)
    return parse_target(options, default_controller)


def _refuse_unknown(options: Mapping[str, str], known: set[str]) -> None:
    unknown = sorted(name for name in options if name.lower() not in known)
    if unknown:
        raise Invalid(f"unknown option {', '.join(unknown)}; known are {', '.join(sorted(known - _SPARK))}")


def _positive(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name) or options.get(name.lower())
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) < 1:
        raise Invalid(f"option {name} is {text!r}: give a whole number of at least 1")
    return int(text)


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = (options.get(name) or options.get(name.lower()) or str(default)).lower()
    if text not in ("true", "false"):
        raise Invalid(f"option {name} is {text!r}: give true or false")
    return text == "true"
