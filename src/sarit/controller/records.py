"""What the controller stores of scopes, streams, epochs, reader groups and key-value tables.

Every scope has one table, `_system/_tables/<scope>/objects`, so that one atomic batch can
change a stream with its tags and epochs.  Keys:

    s/<stream>                 StreamRecord
    e/<stream>/<epoch, 8 hex>  EpochRecord: history, for successors and cuts
    t/<tag>/<stream>           empty: streams by tag
    g/<reader group>           ReaderGroupRecord
    k/<table>                  TableRecord
    x/<stream>/<transaction>   reserved for transactions

`_system/_tables/scopes` lists the scopes; `_system/_tables/deleted` keeps, by `scope/stream`,
the next segment number of deleted streams, so that no segment name is ever used again.

A value is a version byte and compact JSON; a newer version is refused.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from sarit.core.errors import Corrupt
from sarit.core.policies import RetentionPolicy, RetentionType, ScaleType, ScalingPolicy, StreamConfig

VERSION: Final = 1
SCOPES_TABLE: Final = "_system/_tables/scopes"
DELETED_TABLE: Final = "_system/_tables/deleted"


class StreamState(StrEnum):
    """Where a stream is in its life."""

    ACTIVE = "active"
    SEALING = "sealing"
    SEALED = "sealed"
    DELETING = "deleting"


@dataclass(frozen=True, slots=True, order=True)
class SegmentRange:
    """A segment (packed id) and the half-open range of the key space it serves."""

    low: float
    high: float
    segment: int

    def overlaps(self, other: SegmentRange) -> bool:
        """Whether some key belongs to both."""
        return self.low < other.high and other.low < self.high


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """One generation of active segments, by low bound; `created_ms` since 1970."""

    epoch: int
    segments: tuple[SegmentRange, ...]
    created_ms: int

    def encode(self) -> bytes:
        """Bytes as stored."""
        return _encode(
            {"e": self.epoch, "t": self.created_ms, "s": [[s.segment, s.low, s.high] for s in self.segments]}
        )

    @staticmethod
    def decode(data: bytes) -> EpochRecord:
        """Raises Corrupt."""
        value = _decode(data)
        return EpochRecord(value["e"], tuple(SegmentRange(low, high, s) for s, low, high in value["s"]), value["t"])


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """A stream now.

    `sealing`: segments of the epoch before that are still to be sealed.
    `head`: the stream cut of the last truncation (packed id → offset), empty for none."""

    config: StreamConfig
    state: StreamState
    current: EpochRecord
    created_ms: int
    sealing: tuple[int, ...] = ()
    head: dict[int, int] = field(default_factory=dict)
    subscribers: dict[str, dict[str, Any]] = field(default_factory=dict)
    writers: dict[str, dict[str, Any]] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Bytes as stored."""
        return _encode(
            {
                "config": asdict(self.config),
                "state": self.state.value,
                "epoch": self.current.epoch,
                "epoch_ms": self.current.created_ms,
                "segments": [[s.segment, s.low, s.high] for s in self.current.segments],
                "created_ms": self.created_ms,
                "sealing": self.sealing,
                "head": {str(k): v for k, v in self.head.items()},
                "subscribers": self.subscribers,
                "writers": self.writers,
            }
        )

    @staticmethod
    def decode(data: bytes) -> StreamRecord:
        """Raises Corrupt."""
        v = _decode(data)
        c = v["config"]
        config = StreamConfig(
            ScalingPolicy(**{**c["scaling"], "type": ScaleType(c["scaling"]["type"])}),
            RetentionPolicy(**{**c["retention"], "type": RetentionType(c["retention"]["type"])}),
            tuple(c["tags"]),
            c["timestamp_aggregation_ms"],
            c["rollover_bytes"],
        )
        segments = tuple(SegmentRange(low, high, s) for s, low, high in v["segments"])
        return StreamRecord(
            config,
            StreamState(v["state"]),
            EpochRecord(v["epoch"], segments, v["epoch_ms"]),
            v["created_ms"],
            tuple(v["sealing"]),
            {int(k): offset for k, offset in v["head"].items()},
            v["subscribers"],
            v["writers"],
        )

    @property
    def active(self) -> tuple[SegmentRange, ...]:
        """Segments that take appends: none once the stream is sealed."""
        return () if self.state is not StreamState.ACTIVE else self.current.segments

    def with_state(self, state: StreamState) -> StreamRecord:
        """The same stream in another state."""
        return replace(self, state=state)


@dataclass(frozen=True, slots=True)
class ReaderGroupRecord:
    """A reader group's configuration as its creator gave it (fields of the API message)."""

    config: dict[str, Any]

    def encode(self) -> bytes:
        """Bytes as stored."""
        return _encode(self.config)

    @staticmethod
    def decode(data: bytes) -> ReaderGroupRecord:
        """Raises Corrupt."""
        return ReaderGroupRecord(_decode(data))


@dataclass(frozen=True, slots=True)
class TableRecord:
    """A key-value table: lengths in bytes."""

    partitions: int
    primary_key_length: int
    secondary_key_length: int
    rollover_bytes: int

    def encode(self) -> bytes:
        """Bytes as stored."""
        return _encode(asdict(self))

    @staticmethod
    def decode(data: bytes) -> TableRecord:
        """Raises Corrupt."""
        return TableRecord(**_decode(data))


def scope_table(scope: str) -> str:
    """The table that holds a scope's objects."""
    return f"_system/_tables/{scope}/objects"


def stream_key(stream: str) -> bytes:
    """Where a stream's record is."""
    return b"s/" + stream.encode()


def epoch_key(stream: str, epoch: int) -> bytes:
    """Where an epoch's record is."""
    return f"e/{stream}/{epoch:08x}".encode()


def tag_key(tag: str, stream: str) -> bytes:
    """Marks that `stream` bears `tag`."""
    return f"t/{tag}/{stream}".encode()


def group_key(group: str) -> bytes:
    """Where a reader group's record is."""
    return b"g/" + group.encode()


def table_key(table: str) -> bytes:
    """Where a key-value table's record is."""
    return b"k/" + table.encode()


def after_prefix(prefix: bytes) -> bytes:
    """The least key above all that begin with `prefix`."""
    return prefix[:-1] + bytes((prefix[-1] + 1,))


def _encode(value: dict[str, Any]) -> bytes:
    return bytes((VERSION,)) + json.dumps(value, separators=(",", ":")).encode()


def _decode(data: bytes) -> dict[str, Any]:
    if not data or data[0] != VERSION:
        raise Corrupt(
            f"a controller record is of format {data[:1].hex() or 'none'}; this version of Sarit reads {VERSION}"
        )
    value: dict[str, Any] = json.loads(data[1:])
    return value
