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
    """Return the name of a stream from its message."""
    return StreamName(info.scope, info.stream)


def stream_info(name: StreamName) -> pb.StreamInfo:
    """Return the message for a stream's name."""
    return pb.StreamInfo(scope=name.scope, stream=name.stream)


def stream_config(message: pb.StreamConfig) -> StreamConfig:
    """Return the configuration in a message, without checking numbers.  Raises Invalid: the type of a policy."""
    scaling, retention = message.scalingPolicy, message.retentionPolicy
    try:
        scale_type, retention_type = ScaleType(scaling.scaleType), RetentionType(retention.retentionType)
    except ValueError as error:
        raise Invalid(f"unknown type of policy: {error}") from None
    return StreamConfig(
        ScalingPolicy(scale_type, scaling.targetRate, scaling.scaleFactor, max(1, scaling.minNumSegments)),
        RetentionPolicy(retention_type, retention.retentionParam, retention.retentionMax),
        tuple(dict.fromkeys(message.tags.tag)),  # in the given order, each once
        message.timestampAggregationTimeout,
        message.rolloverSizeBytes,
    )


def config_message(name: StreamName, config: StreamConfig) -> pb.StreamConfig:
    """Return the message for a configuration, with every sub-message present, as clients expect."""
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
    """Return the message for a packed segment id."""
    return pb.SegmentId(streamInfo=stream_info(name), segmentId=segment)


def segment_range(name: StreamName, segment: int, low: float, high: float) -> pb.SegmentRange:
    """Return the message for a segment with its key range."""
    return pb.SegmentRange(segmentId=segment_id(name, segment), minKey=low, maxKey=high)


def cut_message(name: StreamName, cut: Mapping[int, int]) -> pb.StreamCut:
    """Return the message for a stream cut."""
    return pb.StreamCut(streamInfo=stream_info(name), cut=dict(cut))


_LOW_64_BITS = (1 << 64) - 1


def transaction(message: pb.TxnId) -> int:
    """Return the 128-bit id of a transaction from its message."""
    # The message's fields are signed, but the id is not.
    return (message.highBits & _LOW_64_BITS) << 64 | message.lowBits & _LOW_64_BITS


def transaction_message(txn: int) -> pb.TxnId:
    """Return the message for a transaction's id."""
    return pb.TxnId(highBits=_signed(txn >> 64), lowBits=_signed(txn & _LOW_64_BITS))


def _signed(bits: int) -> int:
    return bits - (1 << 64) if bits >> 63 else bits


def page_token(names: Sequence[str], asked: str) -> pb.ContinuationToken:
    """Return the continuation token of a page of names: its last name, or `asked`, the token of the request, if empty.

    Clients ask for pages until one is *empty*; they never stop by the token.  Some clients need the token to be set."""
    return pb.ContinuationToken(token=names[-1] if names else asked)
