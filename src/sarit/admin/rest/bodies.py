"""Bodies of the REST API from core values, and the other way round.  Pure.

Bodies are checked against their schema before they come here.  Retention is the one part where two fields say the same:
`value` in whole days, or `timeBasedRetention`.  Pravega's answers have both where they agree, so both are taken if they
agree.  Limits that are no whole minutes or MiB are shown rounded up: what is put back unchanged never deletes more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sarit.admin.rest.limits import MAX_RETENTION_PART, MAX_RETENTION_VALUE
from sarit.core.errors import Invalid
from sarit.core.limits import MIB
from sarit.core.policies import RetentionPolicy, RetentionType, ScaleType, ScalingPolicy, StreamConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.client.core.values import ScalingEvent
    from sarit.client.groups.group import GroupInfo
    from sarit.core.names import StreamName

_MS_PER_MINUTE: Final = 60_000
_MS_PER_HOUR: Final = 60 * _MS_PER_MINUTE
_MS_PER_DAY: Final = 24 * _MS_PER_HOUR
# A higher maximum means no maximum, for which the official clients send the largest integer.
_MOST_BYTES: Final = MAX_RETENTION_VALUE * MIB
_MOST_MS: Final = MAX_RETENTION_PART * _MS_PER_DAY

_SCALE_NAMES: Final = {
    ScaleType.FIXED: "FIXED_NUM_SEGMENTS",
    ScaleType.KILOBYTES_PER_SECOND: "BY_RATE_IN_KBYTES_PER_SEC",
    ScaleType.EVENTS_PER_SECOND: "BY_RATE_IN_EVENTS_PER_SEC",
}
_SCALE_TYPES: Final = {name: kind for kind, name in _SCALE_NAMES.items()}


def stream_config(body: Mapping[str, Any]) -> StreamConfig:
    """Return the configuration in a request to create or update a stream.  Raises Invalid."""
    scaling = body.get("scalingPolicy")
    retention = body.get("retentionPolicy")
    return StreamConfig(
        ScalingPolicy() if scaling is None else _scaling_policy(scaling),
        RetentionPolicy() if retention is None else _retention_policy(retention),
        tuple(dict.fromkeys(body.get("streamTags", ()))),
        body.get("timestampAggregationTimeout", 0),
        body.get("rolloverSizeBytes", 0),
    )


def _scaling_policy(body: Mapping[str, Any]) -> ScalingPolicy:
    kind = _SCALE_TYPES[body["type"]]
    rate, factor = body.get("targetRate", 0), body.get("scaleFactor", 0)
    if kind is ScaleType.FIXED:  # a body that a rate was left in, as Pravega takes it
        rate = factor = 0
    policy = ScalingPolicy(kind, rate, factor, body.get("minSegments", 1))
    policy.check()
    return policy


def _retention_policy(body: Mapping[str, Any]) -> RetentionPolicy:
    by_time = body["type"] == "LIMITED_DAYS"
    limit = _limit(body, by_time, "value", "timeBasedRetention")
    maximum = _limit(body, by_time, "maxValue", "maxTimeBasedRetention")
    if not limit:
        fields = "value (days) or timeBasedRetention" if by_time else "value (MiB)"
        raise Invalid(f"retentionPolicy: {fields} must be given and above 0; without a policy all data is retained")
    policy = RetentionPolicy(RetentionType.TIME if by_time else RetentionType.SIZE, limit, maximum)
    policy.check()
    return policy


def _limit(body: Mapping[str, Any], by_time: bool, plain: str, timed: str) -> int:
    value, parts = body.get(plain, 0), body.get(timed)
    if not by_time:
        if parts:
            raise Invalid(f"retentionPolicy: {timed} belongs to LIMITED_DAYS")
        return int(value) * MIB
    if not parts:
        return int(value) * _MS_PER_DAY
    found = (
        int(parts.get("days", 0)) * _MS_PER_DAY
        + int(parts.get("hours", 0)) * _MS_PER_HOUR
        + int(parts.get("minutes", 0)) * _MS_PER_MINUTE
    )
    if value and value * _MS_PER_DAY != found:
        raise Invalid(f"retentionPolicy: {plain} says {value} days, and {timed} says something else: give one of them")
    return found


def stream_property(stream: StreamName, config: StreamConfig) -> dict[str, Any]:
    """Return the document of a stream with its configuration."""
    scaling = config.scaling
    policy: dict[str, Any] = {"type": _SCALE_NAMES[scaling.type]}
    if scaling.type is not ScaleType.FIXED:
        policy |= {"targetRate": scaling.target_rate, "scaleFactor": scaling.scale_factor}
    found: dict[str, Any] = {
        "scopeName": stream.scope,
        "streamName": stream.stream,
        "scalingPolicy": policy | {"minSegments": scaling.min_segments},
    }
    if config.retention.type is not RetentionType.NONE:
        found["retentionPolicy"] = _retention_config(config.retention)
    return found | {
        "tags": list(config.tags),
        "timestampAggregationTimeout": config.timestamp_aggregation_ms,
        "rolloverSizeBytes": config.rollover_bytes,
    }


def _retention_config(policy: RetentionPolicy) -> dict[str, Any]:
    if policy.type is RetentionType.SIZE:
        found: dict[str, Any] = {"type": "LIMITED_SIZE_MB", "value": -(-policy.limit // MIB)}
        return found | ({"maxValue": -(-policy.maximum // MIB)} if 0 < policy.maximum <= _MOST_BYTES else {})
    days, parts = _time_parts(policy.limit)
    found = {"type": "LIMITED_DAYS", "value": days, "timeBasedRetention": parts}
    if 0 < policy.maximum <= _MOST_MS:
        days, parts = _time_parts(policy.maximum)
        found |= {"maxValue": days, "maxTimeBasedRetention": parts}
    return found


def _time_parts(limit_ms: int) -> tuple[int, dict[str, int]]:
    minutes = -(-limit_ms // _MS_PER_MINUTE)
    days, rest = divmod(minutes, _MS_PER_DAY // _MS_PER_MINUTE)
    hours, minutes = divmod(rest, _MS_PER_HOUR // _MS_PER_MINUTE)
    # As Pravega: the whole days again, but 0 when hours or minutes follow.
    return (0 if rest else days), {"days": days, "hours": hours, "minutes": minutes}


def scaling_event(event: ScalingEvent) -> dict[str, Any]:
    """Return the document of an epoch of a stream."""
    return {
        "timestamp": event.time_ms,
        "segments": [
            {
                "number": found.segment.number,
                "epoch": found.segment.epoch,
                "start": start_ms,
                "keyStart": found.low,
                "keyEnd": found.high,
            }
            for found, start_ms in event.segments
        ],
        "splits": event.splits,
        "merges": event.merges,
    }


def reader_group(scope: str, group: str, info: GroupInfo) -> dict[str, Any]:
    """Return the document of a reader group, with its streams and its online readers."""
    return {
        "scopeName": scope,
        "readerGroupName": group,
        "streamList": sorted(str(stream) for stream in info.config.starts),
        "onlineReaderIds": sorted(info.readers),
    }
