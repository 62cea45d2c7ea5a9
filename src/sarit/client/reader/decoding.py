"""How a reader decodes events: its deserializer, bound to each stream, and what becomes of an event that does not fit.

Events are decoded ahead of being handed out, some hundreds at once, on the event loop.  What was decoded counts as
consumed no earlier than other events do: when it is handed out.

An event that cannot be decoded raises Undecodable before it is consumed: each read raises it again, and a position lies
before it.  A reader that skips such events counts them.  With a dead-letter stream it first writes each there, as an
Envelope, and goes on when that is durable; an event may be there twice after a failure.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from sarit.client.core.deadline import Once
from sarit.client.limits import DECODED_AT_ONCE
from sarit.client.session.blocking_calls import off_loop
from sarit.client.streams import properties
from sarit.core.envelope import Envelope
from sarit.core.errors import Invalid, SaritError
from sarit.core.limits import EVENT_HEADER_BYTES
from sarit.core.names import StreamName
from sarit.core.texts import cut_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sarit.client.reader.cursor import Events
    from sarit.client.session.session import Session
    from sarit.core.names import SegmentId
    from sarit.serializers.protocols import Deserializer, Undecodable
    from sarit.serializers.registration import StreamDecoder

T = TypeVar("T")

RAISE: Final = "raise"
SKIP: Final = "skip"
_SHOWN_ERROR: Final = 1000


class DecodedEvents(Generic[T]):
    """Events of one list with their values, handed out one by one, as `Events` are.

    `raw`: the bytes of all.  Those before `next_index` are decoded or passed over, and `next_offset` is where the first
    one after them begins."""

    __slots__ = ("_count", "_starts", "end", "left", "next_index", "next_offset", "raw", "segment")

    def __init__(self, events: Events) -> None:
        self.segment = events.segment
        self.end = events.end
        self.next_index = 0
        self.next_offset = events.position()
        self.raw = list(events.left)
        self.left: Iterator[T] = iter(())
        self._count = 0
        self._starts: list[tuple[int, bytes]] = []

    def __repr__(self) -> str:
        return (
            f"DecodedEvents({self.segment}, {self.count_left()} decoded, {len(self.raw) - self.next_index} to decode)"
        )

    def add(self, values: list[T], starts: list[tuple[int, bytes]], next_index: int, next_offset: int) -> None:
        """Hand out these values next; `starts`: where the event of each begins, and its bytes."""
        self.left, self._count, self._starts = iter(values), len(values), starts
        self.next_index, self.next_offset = next_index, next_offset

    def count_left(self) -> int:
        """Return how many values are decoded and not handed out yet."""
        return int(self.left.__length_hint__())  # type: ignore[attr-defined]

    @property
    def finished(self) -> bool:
        """Whether every event is handed out or passed over."""
        return self.next_index == len(self.raw) and not self.count_left()

    def position(self) -> int:
        """Return the offset after the last event handed out, and after those passed over behind it."""
        left = self.count_left()
        return self._starts[-left][0] if left else self.next_offset

    def take(self) -> tuple[int, bytes, T]:
        """Hand out one value, with the offset and the bytes of its event."""
        offset, event = self._starts[-self.count_left()]
        return offset, event, next(self.left)

    def take_many(self, most: int) -> tuple[int, list[bytes], list[T]]:
        """Hand out up to `most` values, with the offset of the first and the bytes of all."""
        first = self._count - self.count_left()
        starts = self._starts[first : first + most]
        return starts[0][0], [event for _, event in starts], list(islice(self.left, most))


class Decoding(Generic[T]):
    """The deserializer of one reader, and what it does with events that do not fit.

    `writer` makes writers to dead-letter streams.  `skipped` counts events that were passed over, those in a
    dead-letter stream included."""

    def __init__(
        self,
        session: Session,
        deserializer: Deserializer[T],
        on_error: str | StreamName,
        writer: Callable[[StreamName], Any],
    ) -> None:
        if isinstance(on_error, str) and on_error not in (RAISE, SKIP) and "/" not in on_error:
            raise Invalid(f"on_error={on_error}: give raise, skip, or the name of a dead-letter stream, SCOPE/STREAM")
        dead = None if on_error in (RAISE, SKIP) else on_error
        self.skipped = 0
        self._session = session
        self._writer = writer
        self._deserializer = deserializer
        self._raises = on_error == RAISE
        self._dead_letters = StreamName.parse(dead) if isinstance(dead, str) else dead
        self._decoders: dict[StreamName, Once[StreamDecoder[T]]] = {}
        # The dead letters that are being written, by the place of the first: a call with a short timeout leaves them to
        # the next.
        self._letters: tuple[tuple[StreamName, SegmentId, int], Once[None]] | None = None

    def __repr__(self) -> str:
        return f"Decoding({type(self._deserializer).__name__}, {self.skipped} skipped)"

    async def open(self, stream: StreamName) -> StreamDecoder[T]:
        """Return the decoder of a stream.  Raises Invalid (the registry and the stream's header do not go together),
        NotFound, Unavailable."""
        decoder = self._decoders.get(stream)
        if decoder is None:
            decoder = self._decoders[stream] = Once(partial(self._bind, stream))
        return await decoder.get()

    async def _bind(self, stream: StreamName) -> StreamDecoder[T]:
        # Imported here: a client without serializers does without this room.
        from sarit.serializers.registration import StreamDecoder

        known = hasattr(self._deserializer, "registration")
        found = await properties.read(self._session, stream) if known else {}
        return StreamDecoder(self._deserializer, stream, found, self._session.env.clock)

    async def fill(self, stream: StreamName, events: DecodedEvents[T]) -> bool:
        """Decode the next of the events.  Returns False when none is left.

        A call that is cancelled has consumed nothing.  Raises Undecodable, Unavailable, and what writing to the
        dead-letter stream raises."""
        from sarit.serializers.protocols import SchemaNeeded

        decoder = await self.open(stream)
        values: list[T] = []
        starts: list[tuple[int, bytes]] = []
        bad: list[Undecodable] = []
        at, offset, raw = events.next_index, events.next_offset, events.raw
        end = at + DECODED_AT_ONCE
        while at < len(raw) and (at < end or not values):
            event = raw[at]
            try:
                value = decoder.decode(event)
            except SchemaNeeded as needed:
                if values:
                    break  # what is decoded is not kept waiting
                await off_loop(self._session, partial(decoder.fetch, needed.schema_id))
                continue
            except Exception as error:  # a user's deserializer raises any kind
                undecodable = _undecodable(decoder, stream, events.segment, offset, event, error)
                if self._raises:
                    if values:
                        break
                    raise undecodable from error
                bad.append(undecodable)
            else:
                values.append(value)
                starts.append((offset, event))
            offset += EVENT_HEADER_BYTES + len(event)
            at += 1
        if bad and self._dead_letters is not None:
            place = (stream, events.segment, bad[0].offset)
            if self._letters is None or self._letters[0] != place:
                self._letters = place, Once(partial(self._write_dead_letters, self._dead_letters, bad))
            await self._letters[1].get()
            self._letters = None
        self.skipped += len(bad)
        events.add(values, starts, at, offset)
        return bool(values)

    async def _write_dead_letters(self, stream: StreamName, bad: list[Undecodable]) -> None:
        async with self._writer(stream) as writer:
            for one in bad:
                writer.write(_dead_letter(one))
                await writer.drain()


def decoding_of(
    session: Session,
    deserializer: Deserializer[T] | None,
    on_error: str | StreamName,
    writer: Callable[[StreamName], Any],
) -> Decoding[T] | None:
    """Return the decoding of a reader; None: it reads bytes.  `writer`: as of `Decoding`.  Raises Invalid."""
    if deserializer is None:
        if on_error != RAISE:
            raise Invalid("on_error is for events that cannot be decoded: give a deserializer, too")
        return None
    return Decoding(session, deserializer, on_error, writer)


def _undecodable(
    decoder: StreamDecoder[T], stream: StreamName, segment: SegmentId, offset: int, event: bytes, error: Exception
) -> Undecodable:
    from sarit.serializers.protocols import Undecodable

    why = str(error) if isinstance(error, SaritError) else f"{type(error).__name__}: {error}"
    return Undecodable(cut_text(why, _SHOWN_ERROR), event, stream, segment, offset, decoder.schema_id(event))


def _dead_letter(bad: Undecodable) -> Envelope:
    """Return the event of a dead-letter stream: the bytes as they were, and where they came from.

    Its key is the segment, so that dead letters of a segment stay in order."""
    segment = bad.stream.segment(bad.segment)
    headers = {
        "sarit.stream": str(bad.stream),
        "sarit.segment": segment,
        "sarit.offset": str(bad.offset),
        "sarit.error": bad.why.encode("ascii", "backslashreplace").decode(),
    }
    if bad.schema_id is not None:
        headers["sarit.schema-id"] = str(bad.schema_id)
    return Envelope(bad.event, key=segment, headers=headers)
