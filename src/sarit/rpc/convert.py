"""Conversions between messages of the controller API and core values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.core.errors import Invalid
from sarit.core.names import StreamName
from sarit.core.policies import RetentionPolicy, RetentionType, ScaleType, ScalingPolicy, StreamConfig
from sarit.rpc.generated import controller_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def stream_name(info: pb.StreamInfo) -> StreamName:
    """`scope/stream` of a message."""
    return StreamName(info.scope, info.stream)


def stream_info(name: StreamName) -> pb.StreamInfo:
    """The message for a stream's name."""
    return pb.StreamInfo(scope=name.scope, stream=name.stream)


def stream_config(message: pb.StreamConfig) -> StreamConfig:
    """The configuration in a message; numbers are not checked here.  Raises Invalid for an unknown type."""
    scaling, retention = message.scalingPolicy, message.retentionPolicy
    try:
        scale_type, retention_type = ScaleType(scaling.scaleType), RetentionType(retention.retentionType)
    except ValueError as error:
        raise Invalid(f"unknown type of policy: {error}") from None
    return StreamConfig(
        ScalingPolicy(scale_type, scaling.targetRate, scaling.scaleFactor, max(1, scaling.minNumSegments)),
        RetentionPolicy(retention_type, retention.retentionParam, retention.retentionMax),
        tuple(dict.fromkeys(message.tags.tag)),  # in the order given, each once
        message.timestampAggregationTimeout,
        message.rolloverSizeBytes,
    )


def config_message(name: StreamName, config: StreamConfig) -> pb.StreamConfig:
    """The configuration as a client expects it: every sub-message present."""
    scaling, retention = config.scaling, config.retention
    return pb.StreamConfig(
        streamInfo=stream_info(name),
        scalingPolicy=pb.ScalingPolicy(
            scaleType=int(scaling.type),  # type: ignore[arg-type]
            targetRate=scaling.target_rate,
            scaleFactor=scaling.scale_factor,
            minNumSegments=scaling.min_segments,
        ),
        retentionPolicy=pb.RetentionPolicy(
            retentionType=int(retention.type),  # type: ignore[arg-type]
            retentionParam=retention.limit,
            retentionMax=retention.maximum,
        ),
        tags=pb.Tags(tag=config.tags),
        timestampAggregationTimeout=config.timestamp_aggregation_ms,
        rolloverSizeBytes=config.rollover_bytes,
    )


def segment_id(name: StreamName, segment: int) -> pb.SegmentId:
    """The message for a packed segment id."""
    return pb.SegmentId(streamInfo=stream_info(name), segmentId=segment)


def segment_range(name: StreamName, segment: int, low: float, high: float) -> pb.SegmentRange:
    """A segment with the range of keys it serves."""
    return pb.SegmentRange(segmentId=segment_id(name, segment), minKey=low, maxKey=high)


def cut_message(name: StreamName, cut: Mapping[int, int]) -> pb.StreamCut:
    """A stream cut."""
    return pb.StreamCut(streamInfo=stream_info(name), cut=dict(cut))


_LOW_64_BITS = (1 << 64) - 1


def transaction(message: pb.TxnId) -> int:
    """The 128-bit id of a transaction."""
    # The fields are signed; the id is not.
    return (message.highBits & _LOW_64_BITS) << 64 | message.lowBits & _LOW_64_BITS


def transaction_message(txn: int) -> pb.TxnId:
    """The message for a transaction's id."""
    return pb.TxnId(highBits=_signed(txn >> 64), lowBits=_signed(txn & _LOW_64_BITS))


def _signed(bits: int) -> int:
    return bits - (1 << 64) if bits >> 63 else bits


def page_token(names: Sequence[str], asked: str) -> pb.ContinuationToken:
    """The continuation token of a page of names.

    Clients ask until a page is *empty* and never use the token to stop.  The token of a page is therefore its last
    name, and an empty page returns the token of its request.  It is always set: some clients need it."""
    return pb.ContinuationToken(token=names[-1] if names else asked)
