"""JSON in and out: bodies of requests to values, values to documents.  Pure."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any, Final

from sarit.core.envelope import Envelope
from sarit.core.errors import Corrupt, Invalid
from sarit.core.names import SegmentId
from sarit.core.policies import RetentionPolicy, RetentionType, ScaleType, ScalingPolicy
from sarit.core.times import parse_event_time

if TYPE_CHECKING:
    from sarit.core.policies import StreamConfig

_SCALE_TYPES: Final = {
    "fixed": ScaleType.FIXED, "bytes": ScaleType.KILOBYTES_PER_SECOND, "events": ScaleType.EVENTS_PER_SECOND,
}  # fmt: skip
_RETENTION_TYPES: Final = {"none": RetentionType.NONE, "time": RetentionType.TIME, "size": RetentionType.SIZE}
_SEGMENT = re.compile(r"(\d{1,10})\.(\d{1,10})")


def text_of(body: dict[str, Any], name: str, default: str | None = None) -> str:
    """Return a field that is text.  Raises Invalid."""
    found = body.get(name, default)
    if not isinstance(found, str):
        raise Invalid(f"{name}: give text")
    return found


def number_of(body: dict[str, Any], name: str, default: int | None = None) -> int:
    """Return a field that is a whole number.  Raises Invalid."""
    found = body.get(name, default)
    if isinstance(found, bool) or not isinstance(found, int):
        raise Invalid(f"{name}: give a whole number")
    return found


def scaling_of(found: Any) -> ScalingPolicy:
    """Return the scaling policy of {"type": fixed|bytes|events, "target", "factor", "segments"}.  Raises Invalid.

    `target`: KiB or events per second and segment."""
    if not isinstance(found, dict) or found.get("type") not in _SCALE_TYPES:
        raise Invalid(f"scaling: give an object whose type is one of {', '.join(_SCALE_TYPES)}")
    kind, segments = _SCALE_TYPES[found["type"]], number_of(found, "segments", 1)
    if kind is ScaleType.FIXED:
        made = ScalingPolicy(min_segments=segments)
    else:
        made = ScalingPolicy(kind, number_of(found, "target"), number_of(found, "factor", 2), segments)
    made.check()
    return made


def retention_of(found: Any) -> RetentionPolicy:
    """Return the retention policy of {"type": none|time|size, "limit", "maximum"}, in ms or bytes.  Raises Invalid."""
    if not isinstance(found, dict) or found.get("type") not in _RETENTION_TYPES:
        raise Invalid(f"retention: give an object whose type is one of {', '.join(_RETENTION_TYPES)}")
    kind = _RETENTION_TYPES[found["type"]]
    if kind is RetentionType.NONE:
        return RetentionPolicy()
    made = RetentionPolicy(kind, number_of(found, "limit"), number_of(found, "maximum", 0))
    made.check()
    return made


def tags_of(found: Any) -> tuple[str, ...]:
    """Return a list of tags.  Raises Invalid."""
    if not isinstance(found, list) or not all(isinstance(tag, str) for tag in found):
        raise Invalid("tags: give a list of texts")
    return tuple(found)


def config_document(config: StreamConfig) -> dict[str, Any]:
    """Return the document of a configuration, which `scaling_of`, `retention_of` and `tags_of` can read."""
    scaling, retention = config.scaling, config.retention
    return {
        "scaling": {
            "type": next(name for name, kind in _SCALE_TYPES.items() if kind is scaling.type),
            "target": scaling.target_rate,
            "factor": scaling.scale_factor,
            "segments": scaling.min_segments,
        },
        "retention": {
            "type": next(name for name, kind in _RETENTION_TYPES.items() if kind is retention.type),
            "limit": retention.limit,
            "maximum": retention.maximum,
        },
        "tags": list(config.tags),
    }


def segment_text(segment: SegmentId) -> str:
    """Return a segment as the console writes it: NUMBER.EPOCH."""
    return f"{segment.number}.{segment.epoch}"


def segment_of(text: str) -> SegmentId:
    """Parse NUMBER.EPOCH.  Raises Invalid."""
    found = _SEGMENT.fullmatch(text)
    if found is None:
        raise Invalid(f"{text[:40]!r} is no segment: give NUMBER.EPOCH")
    return SegmentId(int(found[2]), int(found[1]))


def bytes_document(data: bytes, most: int) -> dict[str, Any]:
    """Return at most `most` bytes for a browser, which decides how to show them."""
    return {"base64": base64.b64encode(data[:most]).decode(), "bytes": len(data), "cut": len(data) > most}


def event_document(event: bytes, segment: SegmentId, offset: int, most: int) -> dict[str, Any]:
    """Return the document of one event: its segment, offset, payload, and the fields of its envelope if it has one."""
    document: dict[str, Any] = {"segment": segment_text(segment), "offset": offset, "size": len(event)}
    payload = event
    if Envelope.is_envelope(event):
        try:
            found = Envelope.parse(event)
        except (Invalid, Corrupt) as error:
            document["envelope_error"] = str(error)
        else:
            payload = found.payload
            headers = [{"name": name, **bytes_document(value, most)} for name, value in found.headers]
            document["envelope"] = {"key": found.key, "event_time_us": found.event_time, "headers": headers}
    return document | {"payload": bytes_document(payload, most)}


def payload_of(body: dict[str, Any], name: str = "text") -> bytes:
    """Return bytes that a user entered: the text field `name`, or the field "base64".  Raises Invalid."""
    if "base64" in body:
        try:
            return base64.b64decode(text_of(body, "base64"), validate=True)
        except ValueError:
            raise Invalid("base64: that is not base64") from None
    try:
        return text_of(body, name).encode()
    except UnicodeEncodeError:
        raise Invalid(f"{name}: it has half a surrogate pair: give it as base64") from None


def event_of(body: dict[str, Any], key: str | None, now_ms: int) -> bytes:
    """Return the event to write: the payload, or an envelope of it, its key, its time and its headers.

    "headers": a list of {"name", and "value" or "base64"}; "event_time": as `sarit write --event-time` takes it;
    "envelope": true makes one without either.  Raises Invalid."""
    payload = payload_of(body)
    headers, time = body.get("headers", []), text_of(body, "event_time", "")
    if not isinstance(headers, list) or not all(isinstance(header, dict) for header in headers):
        raise Invalid("headers: give a list of objects with name and value")
    if not headers and not time and body.get("envelope") is not True:
        return payload
    pairs = [(text_of(header, "name"), payload_of(header, "value")) for header in headers]
    return bytes(Envelope(payload, key=key, event_time=parse_event_time(time, now_ms) * 1000 if time else None,
                          headers=pairs))  # fmt: skip
