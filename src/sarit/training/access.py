"""The streams of a loader by the client: connects, makes the plan of an epoch, finds boundaries, reads."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.client.blocking.connection import connect
from sarit.client.limits import DEFAULT_RETRY_TIMEOUT_SECONDS
from sarit.core.cuts import StreamCut, to_text
from sarit.core.errors import Corrupt, Invalid, NotFound, Truncated
from sarit.core.limits import EVENT_HEADER_BYTES
from sarit.core.names import SegmentId, StreamName
from sarit.training.frames import FixedFrames, Frames, frame_batch
from sarit.training.limits import TRAINING_READ_BYTES, TRAINING_SEARCH_BYTES, TRAINING_WALK_BYTES
from sarit.training.plan import Part, Plan, plan_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from sarit.client.blocking.client import Client
    from sarit.client.core.login import Credentials, Tls
    from sarit.training.source import Source

HEAD: Final = "head"
TAIL: Final = "tail"


@dataclass(frozen=True, slots=True)
class Target:
    """How a process of a training job connects; it is pickled to workers, with the credentials."""

    address: str | None = None
    retry_timeout: float = DEFAULT_RETRY_TIMEOUT_SECONDS
    credentials: Credentials | None = None
    tls: Tls | None = None

    def connect(self) -> Client:
        """Return a new client.  Raises Unreachable, TimedOut, Invalid."""
        return connect(self.address, retry_timeout=self.retry_timeout, credentials=self.credentials, tls=self.tls)


class EventSource:
    """Implements `Source` with events."""

    header_bytes = EVENT_HEADER_BYTES

    def __init__(self, client: Client, stream: StreamName) -> None:
        self._client = client
        self._name = stream
        self._stream = client.stream(stream)

    def __repr__(self) -> str:
        return f"EventSource({self._name})"

    def creation(self) -> str:
        """Return the id that tells the stream from others of its name.  Raises NotFound."""
        return (self._stream.creation_id() or b"").hex()

    def boundary(self, part: Part, known: int, target: int) -> int:
        """Return where the first event begins at `target` or after it.  Raises Truncated, Corrupt."""
        segment = SegmentId.unpack(part.segment)
        try:
            at = self._known_before(segment, known, target)
            while at < target:
                most = min(TRAINING_WALK_BYTES, target - at + EVENT_HEADER_BYTES)
                ends = self._stream.event_ends(segment, at, part.end, most)
                if not ends:
                    raise Corrupt(f"{self._name.segment(segment)}: no whole event between {at} and {part.end}")
                at = ends[min(bisect_left(ends, target), len(ends) - 1)]
            return at
        except NotFound as error:
            raise Truncated(f"{error}: it was truncated away", -1) from None

    def _known_before(self, segment: SegmentId, known: int, target: int) -> int:
        """Return the last boundary up to `target` that the store knows, or `known`."""
        reach = TRAINING_SEARCH_BYTES
        while True:
            low = max(known, target - reach)
            found = self._stream.boundaries(segment, low, target + 1, max(reach // 4, 1))
            if found:
                return found[-1]
            if low == known:
                return known
            reach *= 4

    def read(self, part: Part, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the events between two boundaries.  Raises Truncated, Corrupt."""
        try:
            yield from self._client.segment_batches(self._name, SegmentId.unpack(part.segment), start, end)
        except NotFound as error:
            raise Truncated(f"{error}: it was truncated away", -1) from None

    def close(self) -> None:
        """Release the connections."""
        self._client.close()


class FrameSource:
    """Implements `Source` with frames of a byte stream.  `whole`: the last frame must end where the part does."""

    def __init__(self, client: Client, stream: StreamName, frames: Frames, *, whole: bool) -> None:
        self._client = client
        self._name = stream
        self._frames = frames
        self._whole = whole
        self.header_bytes = frames.header_bytes

    def __repr__(self) -> str:
        return f"FrameSource({self._name}, {self._frames})"

    def creation(self) -> str:
        """Return the id that tells the stream from others of its name.  Raises NotFound."""
        return (self._client.stream(self._name).creation_id() or b"").hex()

    def boundary(self, part: Part, known: int, target: int) -> int:
        """Return where the first frame begins at `target` or after it.  Raises Truncated."""
        if isinstance(self._frames, FixedFrames):
            size = self._frames.frame_bytes
            return min(part.start + -(-(target - part.start) // size) * size, part.end)
        # Nothing but all of the part is a piece.
        raise Truncated(f"the frames of {self._name} were truncated: nobody knows where one begins", -1)

    def read(self, part: Part, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the frames between two offsets.  Raises Truncated, Corrupt."""
        with self._client.byte_reader(self._name, start) as reader:
            at, rest = start, b""
            while at + len(rest) < end:
                piece = reader.read(min(TRAINING_READ_BYTES, end - at - len(rest)))
                if not piece:
                    raise Corrupt(f"{self._name} ends at {at + len(rest)}, and was read up to {end} before")
                rest = rest + piece if rest else piece
                batch, used = frame_batch(self._frames, rest, at, part.segment)
                rest, at = rest[used:], at + used
                if batch is not None:
                    yield batch
            if rest and self._whole:
                raise Corrupt(f"{self._name}: offset {end} is in the middle of a frame, which begins at {at}")

    def close(self) -> None:
        """Release the connections."""
        self._client.close()


@dataclass(frozen=True, slots=True)
class OpenStream:
    """A stream and two cuts (of a byte stream: offsets) as a caller named them; it can be pickled."""

    target: Target
    stream: StreamName
    start: str | int
    end: str | int
    frames: Frames | None = None

    @property
    def fixed(self) -> bool:
        """Whether the cuts mean the same whenever and wherever somebody asks."""
        return self.start != HEAD and self.end != TAIL

    @property
    def between(self) -> tuple[str, str]:
        """The two cuts as text."""
        return str(self.start), str(self.end)

    def source(self) -> Source:
        """Connect.  Raises Unreachable, TimedOut, Invalid."""
        client = self.target.connect()
        if self.frames is None:
            return EventSource(client, self.stream)
        return FrameSource(client, self.stream, self.frames, whole=self.end != TAIL)

    def plan(self, piece_bytes: int) -> Plan:
        """Return the plan of an epoch.  Raises NotFound, Truncated, Invalid, Unavailable."""
        with self.target.connect() as client:
            creation = (client.stream(self.stream).creation_id() or b"").hex()
            if self.frames is None:
                slices = client.stream(self.stream).batch(str(self.start), str(self.end)).slices
                parts = [Part(part.segment.packed, part.start, part.end) for part in slices]
                return plan_of(self.stream, self.between, creation, parts, piece_bytes)
            part, frame_bytes = self._bytes(client), 0
            if isinstance(self.frames, FixedFrames):
                frame_bytes = self.frames.frame_bytes
                if self.end == TAIL:  # whose last frame is not whole yet, perhaps
                    part = Part(part.segment, part.start, part.end - (part.end - part.start) % frame_bytes)
            return plan_of(self.stream, self.between, creation, [part], piece_bytes, frame_bytes or -1)

    def _bytes(self, client: Client) -> Part:
        """Return the part of the byte stream's segment between the two offsets.  Raises Invalid, Truncated."""
        with client.byte_reader(self.stream) as reader:
            head, tail = reader.head_offset(), reader.tail_offset()
        start = head if self.start == HEAD else self.start
        end = tail if self.end == TAIL else self.end
        if not isinstance(start, int) or not isinstance(end, int):
            raise Invalid('of a byte stream, give offsets, "head" and "tail" as start and end')
        if not 0 <= start <= end <= tail:
            raise Invalid(f"{self.stream} has bytes up to {tail}: an epoch from {start} to {end} is none of it")
        if start < head:
            raise Truncated(f"{self.stream} was to be read from {start}, but begins at {head} now", head)
        cut = client.stream_cut_tail(self.stream)
        (segment,) = cut.positions
        return Part(segment.packed, start, end)


def cut_text(which: StreamCut | str, stream: StreamName) -> str:
    """Return a cut as text.  Raises Invalid: it is of another stream."""
    if isinstance(which, str):
        return which
    if which.stream != stream:
        raise Invalid(f"that is a cut of {which.stream}, not of {stream}")
    return to_text(which)
