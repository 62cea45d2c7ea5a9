"""The format string of `sarit read --line`: what is printed for each event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from sarit.cli.envelopes import headers_text, one_line, text_of_time
from sarit.core import cuts
from sarit.core.cuts import StreamCut
from sarit.core.envelope import Envelope
from sarit.core.errors import Corrupt, Invalid
from sarit.core.limits import EVENT_HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sarit.core.names import SegmentId

T = TypeVar("T")
NONE: Final = b"-"  # for what an event has not
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "\\": b"\\"}


class Shown:
    """One event, and where it is: `offset` in bytes, where it begins in `segment`; `cut` is before it and its batch."""

    __slots__ = ("_cut", "_event", "envelope", "offset", "segment")

    def __init__(self, event: bytes, segment: SegmentId, offset: int, cut: StreamCut) -> None:
        self._event = event
        self._cut = cut
        self.segment = segment
        self.offset = offset
        self.envelope = Envelope.parse(event) if Envelope.is_envelope(event) else Envelope(event)

    def after(self) -> str:
        """Return the text of the cut after the event."""
        end = self.offset + EVENT_HEADER_BYTES + len(self._event)
        return cuts.to_text(StreamCut(self._cut.stream, {**self._cut.positions, self.segment: end}))


_FIELDS: Final[dict[str, Callable[[Shown], bytes]]] = {
    "k": lambda shown: NONE if shown.envelope.key is None else one_line(shown.envelope.key),
    "t": lambda shown: NONE if shown.envelope.event_time is None else b"%s" % str(
        text_of_time(shown.envelope.event_time)
    ).encode(),
    "h": lambda shown: one_line(headers_text(shown.envelope)) or NONE,
    "v": lambda shown: shown.envelope.payload,
    "l": lambda shown: b"%d" % len(shown.envelope.payload),
    "s": lambda shown: str(shown.segment).encode(),
    "o": lambda shown: b"%d" % shown.offset,
    "c": lambda shown: shown.after().encode(),
    "%": lambda shown: b"%",
}  # fmt: skip
HELP: Final = (
    "%k key, %t time, %h headers, %v value, %l its length in bytes, %s segment, %o offset in it, %c cut after the "
    "event, %% a percent sign; \\t and \\n."
)


class EventFormat:
    """A format string, parsed once."""

    def __init__(self, text: str) -> None:
        """Parse a format string.  Raises Invalid."""
        self._parts: list[bytes | Callable[[Shown], bytes]] = []
        rest = iter(text)
        for character in rest:
            if character == "%":
                self._parts.append(_found(_FIELDS, next(rest, ""), "%"))
            elif character == "\\":
                self._parts.append(_found(_ESCAPES, next(rest, ""), "\\"))
            else:
                self._parts.append(character.encode(errors="surrogateescape"))

    def __repr__(self) -> str:
        return f"<EventFormat of {len(self._parts)} parts>"

    def lines(self, events: Sequence[bytes], cut: StreamCut, segment: SegmentId) -> Iterator[bytes]:
        """Yield the line of each event of a batch, which begins at `cut`.  Raises Invalid: an envelope is damaged."""
        offset = cut.positions[segment]
        for event in events:
            try:
                shown = Shown(event, segment, offset, cut)
            except Corrupt as error:
                raise Invalid(f"{error}; without --line the bytes are shown as they are") from None
            yield b"".join(part if isinstance(part, bytes) else part(shown) for part in self._parts)
            offset += EVENT_HEADER_BYTES + len(event)


def _found(table: dict[str, T], name: str, before: str) -> T:
    if name not in table:
        known = ", ".join(f"{before}{each}" for each in table)
        raise Invalid(f"{before}{name} stands for nothing in --line: there are {known}")
    return table[name]
