"""The values of `mirror/attachments.py` as messages of mirror.proto, and back.  All readers raise Invalid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.controller.model import codec
from sarit.core.errors import Corrupt, Invalid
from sarit.core.names import is_internal_name
from sarit.core.policies import MAX_SEGMENTS_PER_STREAM
from sarit.mirror.attachments import (
    NO_POSITION,
    GroupFacts,
    PartitionState,
    StreamCuts,
    TableChanges,
    TableFacts,
    TableState,
)
from sarit.mirror.limits import MAX_MIRROR_PATH, MIRROR_ID_BYTES
from sarit.mirror.messages import bounded, shown, stream_of
from sarit.mirror.values import MirrorStatus
from sarit.rpc.generated import mirror_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")


def _record(decode: Callable[[bytes], T], data: bytes) -> T:
    try:
        return decode(data)
    except Corrupt as error:
        raise Invalid(f"a message between the sides of a link has a record that cannot be read: {error}") from None


def _least(least: int, *numbers: int) -> None:
    if min(numbers) < least:
        raise Invalid(f"a message between the sides of a link has a number below {least}")


def table_message(facts: TableFacts) -> pb.MirrorTableFacts:
    """Return the facts of a table as a message."""
    return pb.MirrorTableFacts(
        table=facts.name.stream, creationId=facts.creation_id, createdMs=facts.created_ms, partitions=facts.partitions,
        primaryKeyLength=facts.primary_key_length, secondaryKeyLength=facts.secondary_key_length,
        rolloverBytes=facts.rollover_bytes, positions=facts.positions, path=facts.path,
    )  # fmt: skip


def table_of(message: pb.MirrorTableFacts, scope: str) -> TableFacts:
    """Return the facts of a table in a message."""
    bounded(message.path, MAX_MIRROR_PATH)
    bounded(message.positions, MAX_SEGMENTS_PER_STREAM)
    if len(message.creationId) != MIRROR_ID_BYTES:
        raise Invalid("a table in a message between the sides of a link has no id of its creation")
    _least(
        0, message.createdMs, message.partitions, message.primaryKeyLength, message.secondaryKeyLength,
        message.rolloverBytes, *message.positions,
    )  # fmt: skip
    return TableFacts(
        stream_of(scope, message.table), message.creationId, message.createdMs, message.partitions,
        message.primaryKeyLength, message.secondaryKeyLength, message.rolloverBytes, tuple(message.positions),
        tuple(message.path),
    )  # fmt: skip


def partition_message(state: PartitionState) -> pb.MirrorPartition:
    """Return the state of a partition as a message."""
    return pb.MirrorPartition(source=state.source, position=state.position, comparison=state.comparison)


def partition_of(message: pb.MirrorPartition) -> PartitionState:
    """Return the state of a partition in a message."""
    _least(NO_POSITION, message.source, message.position, message.comparison)
    return PartitionState(message.source, message.position, message.comparison)


def table_state_message(state: TableState) -> pb.MirrorTableState:
    """Return the state of a table as a message."""
    return pb.MirrorTableState(
        table=state.name.stream, status=int(state.status), partitions=map(partition_message, state.partitions),
        reason=state.reason,
    )  # fmt: skip


def table_state_of(message: pb.MirrorTableState, scope: str) -> TableState:
    """Return the state of a table in a message."""
    try:
        status = MirrorStatus(message.status)
    except ValueError:
        raise Invalid(f"a table has the unknown status {message.status}: the peer is of another version") from None
    bounded(message.partitions, MAX_SEGMENTS_PER_STREAM)
    partitions = tuple(map(partition_of, message.partitions))
    return TableState(stream_of(scope, message.table), status, partitions, shown(message.reason))


def changes_message(changes: TableChanges) -> pb.MirrorTableChanges:
    """Return rows of a table as a message."""
    return pb.MirrorTableChanges(
        table=changes.name.stream, partition=changes.partition, since=changes.since, until=changes.until,
        rows=[pb.MirrorRow(key=key, value=value or b"", removed=value is None) for key, value in changes.rows],
        low=changes.low, high=changes.high, lost=changes.lost,
    )  # fmt: skip


def changes_of(message: pb.MirrorTableChanges, scope: str) -> TableChanges:
    """Return rows of a table in a message."""
    _least(NO_POSITION, message.since, message.until)
    _least(0, message.partition)
    return TableChanges(
        stream_of(scope, message.table), message.partition, message.since, message.until,
        tuple((row.key, None if row.removed else row.value) for row in message.rows), message.low,
        message.high if message.HasField("high") else None, message.lost,
    )  # fmt: skip


def cuts_message(cuts: StreamCuts) -> pb.MirrorStreamCuts:
    """Return recorded cuts as a message."""
    return pb.MirrorStreamCuts(stream=cuts.name.stream, cuts=map(codec.encode_cut, cuts.cuts))


def cuts_of(message: pb.MirrorStreamCuts, scope: str) -> StreamCuts:
    """Return recorded cuts in a message."""
    records = tuple(_record(codec.decode_cut, data) for data in message.cuts)
    return StreamCuts(stream_of(scope, message.stream), records)


def group_message(group: GroupFacts) -> pb.MirrorGroup:
    """Return a reader group as a message."""
    return pb.MirrorGroup(group=group.group, record=codec.encode_group(group.record))


def group_of(message: pb.MirrorGroup) -> GroupFacts:
    """Return a reader group in a message."""
    if not is_internal_name(message.group):
        raise Invalid("a message between the sides of a link names no reader group")
    return GroupFacts(message.group, _record(codec.decode_group, message.record))
