"""Where to begin in a stream, as text: head, tail, a cut, a time, or offsets of segments.

The text of a cut begins with a letter, a time with a digit or a minus, and offsets have the delimiter of epochs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sarit.core import cuts
from sarit.core.cuts import StreamCut
from sarit.core.errors import Invalid
from sarit.core.names import EPOCH_DELIMITER, SegmentId
from sarit.core.times import TIME_FORMS, parse_time
from sarit.env.real import real_env

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.client.blocking.client import Client
    from sarit.core.names import StreamName

METAVAR: Final = "head|tail|TIME|OFFSETS|CUT"
_CUT_BEGINS: Final = "H4s"  # gzip, in base64
HELP: Final = (
    'A time: "-10 minutes", "2026-01-31T12:00:00Z", or milliseconds since 1970.  Offsets, in bytes: '
    f"SEGMENT:OFFSET, as 0{EPOCH_DELIMITER}0:1024, several with commas; others begin at their start."
)


def position_of(client: Client, name: StreamName, text: str) -> StreamCut | str:
    """Return what readers and groups take for a position; a time and offsets become a cut.

    Raises Invalid, NotFound."""
    if EPOCH_DELIMITER in text:
        return _cut_of_offsets(client, name, _parse_offsets(text))
    if is_time(text):
        return client.stream(name).cut_at(parse_time(text, real_env().clock.wall_ms()))
    return checked_place(text)


def is_time(text: str) -> bool:
    """Return whether a position is meant as a time."""
    return text[:1].isdigit() or text.startswith("-") or text == "now"


def checked_place(text: str) -> str:
    """Return a position that is no time: head, tail, or what looks like a cut.  Raises Invalid."""
    if text.startswith(_CUT_BEGINS) or text in ("head", "tail", cuts.UNBOUNDED_TEXT):
        return text
    raise Invalid(f"{text[:40]!r} is no position: give head, tail, a cut, or a time: {TIME_FORMS}")


def cut_of(client: Client, name: StreamName, text: str) -> StreamCut:
    """Return the cut of a position, head and tail as they are now.  Raises Invalid, NotFound."""
    found = position_of(client, name, text)
    if isinstance(found, StreamCut):
        return found
    if found in ("head", "tail"):
        info = client.stream_info(name)
        return info.head if found == "head" else info.tail
    cut = cuts.from_text(found)
    if cut is None or cut.stream != name:
        raise Invalid(f"that is no cut of stream {name}")
    return cut


def _parse_offsets(text: str) -> dict[SegmentId, int]:
    found: dict[SegmentId, int] = {}
    for part in text.split(","):
        segment, _, offset = part.strip().partition(":")
        number, _, epoch = segment.partition(EPOCH_DELIMITER)
        if not all(each.isascii() and each.isdecimal() for each in (number, epoch, offset)):
            raise Invalid(
                f"{part.strip()!r} is no offset of a segment: give SEGMENT:OFFSET, as 0{EPOCH_DELIMITER}0:1024"
            )
        found[SegmentId(int(epoch), int(number))] = int(offset)
    return found


def _cut_of_offsets(client: Client, name: StreamName, offsets: Mapping[SegmentId, int]) -> StreamCut:
    epochs = [[each.segment for each in epoch.segments] for epoch in client.stream(name).epochs()]
    segments = next((found for found in reversed(epochs) if offsets.keys() <= set(found)), None)
    if segments is None:
        asked = ", ".join(map(str, offsets))
        raise Invalid(f"stream {name} has no epoch with {asked}: `sarit stream epochs {name}` lists its segments")
    positions = {}
    for segment, info in client.segment_infos(name, segments).items():
        at = offsets.get(segment, info.start_offset)
        if not info.start_offset <= at <= info.end_offset:
            raise Invalid(f"segment {segment} has the offsets {info.start_offset} to {info.end_offset}, not {at}")
        positions[segment] = at
    return StreamCut(name, positions)
