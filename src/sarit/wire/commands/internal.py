"""Commands between the processes of one installation: requests of controllers to stores, which clients may not make.

Their codes are FIRST_INTERNAL and above, where Pravega has none.  A connection that uses them begins with Introduce,
after Hello; before that a store refuses them.  Controllers use public commands where these suffice.
docs/formats/internal-commands.md describes each command.
"""

import math
import struct
from typing import Annotated, Final, NamedTuple

from sarit.env.ports import Buffer
from sarit.wire.commands.registry import Command, command
from sarit.wire.errors import ProtocolError
from sarit.wire.primitives import (
    BYTE,
    BYTES,
    FLAG,
    INT,
    LONG,
    TEXT,
    Blob,
    Byte,
    Flag,
    Int,
    ListCodec,
    Long,
    Prose,
    StructCodec,
    Text,
    TextCodec,
    Texts,
)

FIRST_INTERNAL: Final = 1_000_000
_DOUBLE: Final = struct.Struct(">d")


class TableChange(NamedTuple):
    """One change of a table: a new value, or a removal (`removed`, with an empty value).

    `version`: the expected one, as in TableKey.  `fresh`: the key was never in the table."""

    key: Buffer
    version: int
    fresh: bool
    removed: bool
    value: Buffer


class SegmentRates(NamedTuple):
    """The rates of a segment per second over four windows, shortest first.  `age`: the seconds measured so far."""

    events_2: float
    events_5: float
    events_10: float
    events_20: float
    bytes_2: float
    bytes_5: float
    bytes_10: float
    bytes_20: float
    age: float


class ScaleRequest(NamedTuple):
    """A segment whose rates require scaling.  `advice`: 1 split, 2 merge."""

    segment: str
    advice: int


class OffsetWrite(NamedTuple):
    """Bytes to append to a segment if it ends at `offset`."""

    segment: str
    offset: int
    data: Buffer


class SegmentRange(NamedTuple):
    """Bytes of a segment to read."""

    segment: str
    offset: int
    length: int


class BatchOutcome(NamedTuple):
    """The answer to one item of a batch.

    `kind`: 0 done, 1 the segment ends elsewhere, 2 truncated, 3 no such segment, 4 sealed, 5 a wrong request,
    6 damaged, 7 unknown or not now.  `number`: the length after an append, or of the data; with 1 the actual length;
    with 2 the start offset.  `data`: the bytes of a read.  `message`: why it is not done."""

    kind: int
    number: int
    data: Buffer
    message: str


class SegmentState(NamedTuple):
    """The state of a segment.  `modified_ms`: ms since 1970."""

    exists: bool
    length: int
    start_offset: int
    sealed: bool
    modified_ms: int


class _RateCodec:
    """A 64-bit IEEE 754 number that is finite and not negative."""

    def write(self, value: float, out: list[Buffer]) -> None:
        if not math.isfinite(value) or value < 0:
            raise ProtocolError(f"{value} is no rate")
        out.append(_DOUBLE.pack(value))

    def read(self, payload: Buffer, at: int) -> tuple[float, int]:
        end = at + _DOUBLE.size
        if len(payload) < end:
            raise ProtocolError("a rate is cut short")
        value: float = _DOUBLE.unpack_from(payload, at)[0]
        if not math.isfinite(value) or value < 0:
            raise ProtocolError(f"{value} is no rate")
        return value, end


TableChanges = Annotated[
    tuple[TableChange, ...], ListCodec(StructCodec(TableChange, tuple, (BYTES, LONG, FLAG, FLAG, BYTES)))
]
RatesOfSegments = Annotated[tuple[SegmentRates, ...], ListCodec(StructCodec(SegmentRates, tuple, (_RateCodec(),) * 9))]
OffsetWrites = Annotated[tuple[OffsetWrite, ...], ListCodec(StructCodec(OffsetWrite, tuple, (TEXT, LONG, BYTES)))]
SegmentRanges = Annotated[tuple[SegmentRange, ...], ListCodec(StructCodec(SegmentRange, tuple, (TEXT, LONG, INT)))]
BatchOutcomes = Annotated[
    tuple[BatchOutcome, ...], ListCodec(StructCodec(BatchOutcome, tuple, (BYTE, LONG, BYTES, TextCodec(clip=True))))
]
SegmentStates = Annotated[
    tuple[SegmentState, ...], ListCodec(StructCodec(SegmentState, tuple, (FLAG, LONG, LONG, FLAG, LONG)))
]
ScaleRequestList = Annotated[tuple[ScaleRequest, ...], ListCodec(StructCodec(ScaleRequest, tuple, (TEXT, BYTE)))]


@command(FIRST_INTERNAL)
class Introduce(Command):
    """The first request of an internal connection.  Answer: Introduced, or AuthTokenCheckFailed and the end."""

    request_id: Long
    secret: Blob


@command(1_000_001)
class Introduced(Command):
    """Answer to Introduce: internal commands are accepted from now on."""

    request_id: Long


@command(1_000_002)
class OutcomeUnknown(Command):
    """The answer that a request may have failed or taken effect.  Public connections are closed instead."""

    request_id: Long
    segment: Text
    message: Prose


@command(1_000_003)
class ConditionFailed(Command):
    """The condition of a request did not hold; nothing was changed."""

    request_id: Long
    segment: Text
    message: Prose


@command(1_000_004)
class CreateFreshSegment(Command):
    """A CreateSegment of a segment that never existed.  Answer: SegmentCreated.

    Only controllers of earlier versions send it."""

    request_id: Long
    segment: Text
    target_rate: Int
    scale_type: Byte
    rollover_size_bytes: Long


@command(1_000_005)
class ChangeTable(Command):
    """A request to change a table atomically.  Answer: TableEntriesUpdated (-1 for a removal) or ConditionFailed."""

    request_id: Long
    segment: Text
    changes: TableChanges


@command(1_000_006)
class ScanTable(Command):
    """A request for up to `limit` entries from key `start` on, ascending; `bounded`: only those before `end`.

    Answer: TableEntriesRead, with fewer entries if more would be too long, and none only at the end."""

    request_id: Long
    segment: Text
    start: Blob
    bounded: Flag
    end: Blob
    limit: Int


@command(1_000_007)
class DeleteTable(Command):
    """A request to delete a table.  `unchanged_since`: only if the table is at this position; -1: in any case.

    Answer: SegmentDeleted, TableSegmentNotEmpty or ConditionFailed."""

    request_id: Long
    segment: Text
    must_be_empty: Flag
    unchanged_since: Long


@command(1_000_008)
class ReadBytes(Command):
    """A request for bytes, without waiting.  Answer: BytesRead, with fewer bytes or, only at the end, none."""

    request_id: Long
    segment: Text
    offset: Long
    limit: Int


@command(1_000_009)
class BytesRead(Command):
    """Answer to ReadBytes."""

    request_id: Long
    data: Blob


@command(1_000_010)
class AppendAt(Command):
    """A request to append `data` as it is if the segment's length is `expected_offset`.  Answer: AppendedAt or
    ConditionFailed."""

    request_id: Long
    segment: Text
    expected_offset: Long
    data: Blob


@command(1_000_011)
class AppendedAt(Command):
    """Answer to AppendAt: the data is durable."""

    request_id: Long


@command(1_000_012)
class GetRates(Command):
    """A request for the rates of segments.  Answer: RatesMeasured."""

    request_id: Long
    segments: Texts


@command(1_000_013)
class RatesMeasured(Command):
    """Answer to GetRates: the rates of each segment; zero for a missing one."""

    request_id: Long
    rates: RatesOfSegments


@command(1_000_014)
class GetGrown(Command):
    """A request for the segments that may have grown since this connection asked last.  Answer: SegmentsGrown."""

    request_id: Long


@command(1_000_015)
class SegmentsGrown(Command):
    """Answer to GetGrown.  `more`: there are more, so ask again at once."""

    request_id: Long
    segments: Texts
    more: Flag


@command(1_000_016)
class AwaitScaleRequests(Command):
    """A request that is answered when the rates of segments require scaling.  Answer: ScaleRequests."""

    request_id: Long


@command(1_000_017)
class ScaleRequests(Command):
    """Answer to AwaitScaleRequests."""

    request_id: Long
    requests: ScaleRequestList


@command(1_000_018)
class UseQuotas(Command):
    """A request to enforce these quotas and no others.  `stores`: rates are divided by this number of stores.  Answer:
    QuotasUsed."""

    request_id: Long
    stores: Int
    quotas: Texts


@command(1_000_019)
class QuotasUsed(Command):
    """Answer to UseQuotas: the quotas are in force."""

    request_id: Long


@command(1_000_020)
class SegmentsCreated(Command):
    """Answer to CreateFreshSegments: all segments exist now."""

    request_id: Long


@command(1_000_021)
class CreateFreshSegments(Command):
    """A request to create segments that never existed, without looking them up.  Answer: SegmentsCreated."""

    request_id: Long
    segments: Texts


@command(1_000_022)
class BackupStep(Command):
    """One step of a backup, as JSON (`store/backup_session.py`).  Answer: BackupStepDone."""

    request_id: Long
    step: Text


@command(1_000_023)
class BackupStepDone(Command):
    """Answer to BackupStep, as JSON."""

    request_id: Long
    answer: Text


@command(1_000_024)
class MeasureScope(Command):
    """A request for the bytes of a scope in the containers that the store serves.  Answer: ScopeMeasured."""

    request_id: Long
    scope: Text


@command(1_000_025)
class ScopeMeasured(Command):
    """Answer to MeasureScope.  `containers`: the number of containers that were counted."""

    request_id: Long
    bytes: Long
    containers: Int


@command(1_000_026)
class CreateSegmentAt(Command):
    """A request to create a segment that begins and ends at `offset`.  `mirror`: clients may only read it.

    `table`: it is a table, with keys of `key_length` bytes, or of any length with 0.  Answer: SegmentCreated."""

    request_id: Long
    segment: Text
    offset: Long
    mirror: Flag
    table: Flag
    key_length: Int
    target_rate: Int
    scale_type: Byte
    rollover_size_bytes: Long


@command(1_000_027)
class MergeAt(Command):
    """A request to merge `source` into `segment` if that ends at `expected_offset`.  Answer: MergedAt."""

    request_id: Long
    segment: Text
    source: Text
    expected_offset: Long


@command(1_000_028)
class MergedAt(Command):
    """Answer to MergeAt.  `merged`: whether the source was merged.  `length`: where the segment ends now."""

    request_id: Long
    merged: Flag
    length: Long


@command(1_000_029)
class AppendBatch(Command):
    """A request to append bytes at offsets of segments, in order for each segment.  Answer: BatchDone.

    `begin_events`: an event begins at each of the offsets."""

    request_id: Long
    begin_events: Flag
    writes: OffsetWrites


@command(1_000_030)
class ReadBatch(Command):
    """A request for bytes of segments, without waiting.  Answer: BatchDone, with fewer bytes only at the end."""

    request_id: Long
    ranges: SegmentRanges


@command(1_000_031)
class BatchDone(Command):
    """Answer to AppendBatch and ReadBatch: the outcome of each item, in order."""

    request_id: Long
    outcomes: BatchOutcomes


@command(1_000_032)
class GetStates(Command):
    """A request for the states of segments.  Answer: StatesRead."""

    request_id: Long
    segments: Texts


@command(1_000_033)
class StatesRead(Command):
    """Answer to GetStates: the state of each segment, in order."""

    request_id: Long
    states: SegmentStates


@command(1_000_034)
class SetMirror(Command):
    """A request to let clients change a segment, or only read it (`mirror`).  Answer: SegmentPolicyUpdated."""

    request_id: Long
    segment: Text
    mirror: Flag


@command(1_000_040)
class ChangeTableAt(Command):
    """A request to change a table atomically if it is at a position.  Answer: TableChangedAt or ConditionFailed."""

    request_id: Long
    segment: Text
    position: Long
    changes: TableChanges


@command(1_000_041)
class TableChangedAt(Command):
    """Answer to ChangeTableAt.  `position`: that of the table behind the changes."""

    request_id: Long
    position: Long


@command(1_000_042)
class FollowTable(Command):
    """A request for the changes of a table behind a position, about `limit` bytes of them.  Answer: TableFollowed."""

    request_id: Long
    segment: Text
    position: Long
    limit: Int


@command(1_000_043)
class TableFollowed(Command):
    """Answer to FollowTable: changes in order, and the position behind them.  `lost`: they are not known any more."""

    request_id: Long
    lost: Flag
    position: Long
    changes: TableChanges
