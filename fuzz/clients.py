"""The clients' decoders: events, entries of synchronizers, states of groups, watermarks.

Each is (function of bytes, errors it may raise, examples); see `targets.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sarit.client.core.framing import parse_events
from sarit.client.groups import codec
from sarit.client.groups.position import Checkpoint, Position
from sarit.client.groups.state import (
    AcquireSegment,
    AddReader,
    CheckpointPublished,
    CheckpointReader,
    CreateCheckpoint,
    ReleaseSegment,
    RemoveReader,
    SegmentCompleted,
    UpdateDistance,
)
from sarit.client.groups.values import GroupConfig, GroupSegment, KeyPart
from sarit.client.streams import watermarks as client_watermarks
from sarit.client.sync import configuration, membership_list
from sarit.client.sync.revisioned_stream import Revision
from sarit.client.sync.synchronizer import decode_entry, encode_initial, encode_updates
from sarit.controller.model import watermarks as controller_watermarks
from sarit.controller.model.epochs import SegmentRange
from sarit.core.cuts import StreamCut
from sarit.core.envelope import Envelope
from sarit.core.envelope_columns import decode
from sarit.core.errors import Corrupt, Invalid
from sarit.core.names import SegmentId, StreamName

if TYPE_CHECKING:
    from collections.abc import Callable

_STREAM: Final = StreamName("s", "t")
_ENVELOPE: Final = Envelope("21.5", key="ann", event_time=5, headers=[("source", b"north"), ("n", b"")])
_SEGMENT: Final = GroupSegment(_STREAM, SegmentId(0, 0))
_NEXT: Final = GroupSegment(_STREAM, SegmentId(1, 3))
_WHOLE: Final = KeyPart(0.0, 1.0)
_REVISION: Final = Revision(0, 0)


def _back(decode: Callable[[bytes], Any], encode: Callable[[Any], bytes]) -> Callable[[bytes], None]:
    """Decoding an encoded value gives the same bytes again (bytes, since a NaN is not equal to itself)."""

    def run(data: bytes) -> None:
        found = decode(data)
        again = encode(found)
        assert encode(decode(again)) == again, f"{found!r} came back as {decode(again)!r}"

    return run


def _events(data: bytes) -> None:
    events, end = parse_events(data, 0)
    assert sum(map(len, events)) + 8 * len(events) == end <= len(data)


def _entry(data: bytes) -> None:
    found = decode_entry(data)
    assert data == (encode_initial(found) if isinstance(found, bytes) else encode_updates(found))


def _membership(data: bytes) -> None:
    held = membership_list.decode(data)
    assert membership_list.decode(membership_list.encode(held)) == held


def _membership_update(data: bytes) -> None:
    held = membership_list.apply(
        membership_list.MembershipList(1000, 1, {}, {}), membership_list.join("a", "b"), _REVISION
    )
    membership_list.encode(membership_list.apply(held, data, _REVISION))


def _settings_update(data: bytes) -> None:
    configuration.apply({"a": 1, "b": [2]}, data, _REVISION)


def _mark_entries(data: bytes) -> None:
    controller_watermarks.last_entry(data)


_UPDATES: Final = (
    AddReader("r"),
    RemoveReader("r", {_SEGMENT: 5}),
    AcquireSegment("r", _SEGMENT),
    ReleaseSegment("r", _SEGMENT, 7),
    UpdateDistance("r", 7, {_SEGMENT: 0}, {_SEGMENT: _WHOLE}),
    SegmentCompleted("r", _SEGMENT, {_NEXT: frozenset((_SEGMENT,))}, {_SEGMENT: _WHOLE, _NEXT: _WHOLE}),
    CheckpointReader("c", "r", {_SEGMENT: 5}),
    CreateCheckpoint("c"),
    CheckpointPublished(True),
)
_CONFIG: Final = GroupConfig({_STREAM: {SegmentId(0, 0): 5}}, {_STREAM: None})
_MARK: Final = controller_watermarks.Watermark(5, 9, ((SegmentRange(0.0, 1.0, 0), 70),))


def _envelope(data: bytes) -> object:
    """One event, and as the middle one of a column: both decoders agree."""
    found = decode([bytes(_ENVELOPE), data, bytes(_ENVELOPE)])
    assert found.bad.tolist()[::2] == [False, False]
    assert found.columns["payload"].to_pylist()[::2] == [_ENVELOPE.payload] * 2
    try:
        envelope = Envelope.parse(data)
    except (Corrupt, Invalid):
        assert found.bad[1]
        raise
    assert not found.bad[1]
    assert bytes(envelope) == data
    assert found.columns["payload"][1].as_py() == envelope.payload
    assert found.columns["key"][1].as_py() == envelope.key
    return envelope


DECODERS: Final[dict[str, tuple[Callable[[bytes], object], tuple[type[Exception], ...], tuple[bytes, ...]]]] = {
    "events": (_events, (Corrupt,), (b"\0\0\0\0\0\0\0\5hello" * 3, b"\0" * 7)),
    "envelope": (_envelope, (Corrupt, Invalid), (bytes(_ENVELOPE), bytes(Envelope(b"hi")))),
    "synchronizer_entry": (_entry, (Corrupt,), (encode_initial(b"state"), encode_updates([b"one", b"", b"two"]))),
    "group_update": (_back(codec.decode, codec.encode), (Corrupt,), tuple(map(codec.encode, _UPDATES))),
    "group_config": (
        _back(codec.decode_config, codec.encode_config),
        (Corrupt, Invalid),
        (codec.encode_config(_CONFIG),),
    ),
    "group_position": (
        _back(Position.from_bytes, Position.to_bytes),
        (Invalid,),
        (Position({_SEGMENT: 10, _NEXT: -1}, {_SEGMENT: _WHOLE}).to_bytes(),),
    ),
    "group_checkpoint": (
        _back(Checkpoint.from_bytes, Checkpoint.to_bytes),
        (Invalid,),
        (Checkpoint("c", {_STREAM: StreamCut(_STREAM, {SegmentId(0, 0): 5})}).to_bytes(),),
    ),
    "watermark": (client_watermarks.decode, (Invalid,), (controller_watermarks.encode(_MARK),)),
    "mark": (
        _back(controller_watermarks.decode, controller_watermarks.encode),
        (Corrupt,),
        (controller_watermarks.encode(_MARK),),
    ),
    "mark_entries": (_mark_entries, (Corrupt,), (controller_watermarks.encode_entry(_MARK) * 2,)),
    "membership_list": (
        _membership,
        (Corrupt,),
        (membership_list.encode(membership_list.MembershipList(1000, 1, {}, {})),),
    ),
    "membership_update": (
        _membership_update,
        (Corrupt,),
        (
            membership_list.join("b", "c"),
            membership_list.leave(1),
            membership_list.heartbeat(1),
            membership_list.describe(1, "d"),
        ),
    ),
    "settings": (configuration.decode, (Corrupt,), (configuration.encode({"a": [1, {"b": None}]}),)),
    "settings_update": (_settings_update, (Corrupt,), (b'{"set":{"a":5},"remove":["b"]}',)),
}
