"""Follows a stream for training: batches without an end, from a cut on, with exact positions.

There are no epochs, and events come as they are stored, in order per key.  Of several shards each reads everything and
keeps its own events, which a hash of where an event is stored decides: nobody has to agree on anything while the stream
scales.  So the number of shards is a part of the position, and cannot change on the way.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sarit.core.cuts import to_text
from sarit.core.errors import Conflict, Corrupt, Invalid
from sarit.training.frames import FixedFrames, frame_batch
from sarit.training.limits import TRAINING_READ_BYTES
from sarit.training.order import hashes
from sarit.training.state import MARK, VERSION

if TYPE_CHECKING:
    import pyarrow as pa

    from sarit.client.blocking.client import Client
    from sarit.core.names import StreamName
    from sarit.training.access import OpenStream
    from sarit.training.frames import Frames
    from sarit.training.settings import Settings

FOLLOW = "follow"


class EventTail:
    """The events of a stream from a cut on."""

    def __init__(self, client: Client, stream: StreamName, start: str, *, skip: bool) -> None:
        self._reader = client.reader(stream, start, skip_truncated=skip)

    def read(self, most: int) -> pa.RecordBatch | None:
        """Return up to `most` events, None when the stream is sealed; waits for them.  Raises Truncated."""
        return self._reader.read_arrow(most)

    def position(self) -> str:
        """Return the cut behind the events that were returned."""
        return to_text(self._reader.position())


class FrameTail:
    """The frames of a byte stream from an offset on; "tail" of frames of equal length is where the last whole one
    ends."""

    def __init__(self, client: Client, stream: StreamName, start: str, frames: Frames) -> None:
        self._name = stream
        self._frames = frames
        self._reader = client.byte_reader(stream)
        (segment,) = client.stream_cut_tail(stream).positions
        self._segment = segment.packed
        if start == "head":
            self._at = self._reader.head_offset()
        elif start == "tail":
            self._at = self._reader.tail_offset()
            self._at -= self._at % frames.frame_bytes if isinstance(frames, FixedFrames) else 0
        elif start.isascii() and start.isdigit():
            self._at = int(start)
        else:
            raise Invalid(f'of byte stream {stream}, give an offset, "head" or "tail" as start')
        self._reader.seek(self._at)
        self._rest = b""
        self._left: pa.RecordBatch | None = None

    def read(self, most: int) -> pa.RecordBatch | None:
        """Return up to `most` frames, None when the stream is sealed; waits for them.  Raises Truncated, Corrupt."""
        while self._left is None:
            piece = self._reader.read(TRAINING_READ_BYTES)
            if not piece:
                if self._rest:
                    raise Corrupt(f"{self._name} is sealed in the middle of a frame, which begins at {self._at}")
                return None
            self._rest += piece
            self._left, used = frame_batch(self._frames, self._rest, self._at, self._segment)
            self._rest, self._at = self._rest[used:], self._at + used
        found = self._left.slice(0, most)
        self._left = self._left.slice(most) if self._left.num_rows > most else None
        return found

    def position(self) -> str:
        """Return the offset behind the frames that were returned."""
        return str(self._at if self._left is None else self._left.column(2)[0].as_py())


class Following(Iterator[dict[str, Any]]):
    """The batches of one shard of a stream that goes on; they end when the stream is sealed.

    A call that fails hands out nothing, and the next one tries again."""

    def __init__(
        self, opened: OpenStream, start: str, creation: str, settings: Settings, shard: int, shards: int
    ) -> None:
        self._settings = settings
        self._stream = stream = opened.stream
        self._shard = shard
        self._shards = shards
        self._process = os.getpid()
        self._client = opened.target.connect()
        self._own_left: pa.RecordBatch | None = None  # was read, and is not handed out yet
        try:
            self._creation = (self._client.stream(stream).creation_id() or b"").hex()
            if creation not in ("", self._creation):
                raise Conflict(f"{stream} is not the stream of the state, but was deleted and made again")
            self._tail: EventTail | FrameTail
            if opened.frames is None:
                self._tail = EventTail(self._client, stream, start, skip=settings.skip)
            else:
                self._tail = FrameTail(self._client, stream, start, opened.frames)
            self._position = self._tail.position()
        except BaseException:
            self._client.close()
            raise

    def __repr__(self) -> str:
        return f"Following({self._stream}, shard {self._shard} of {self._shards})"

    def __reduce__(self) -> Any:
        raise Invalid("batches that were begun cannot be pickled: pickle the loader, or the state")

    @property
    def skipped_bytes(self) -> int:
        """Always 0: how much was truncated is not counted here."""
        return 0

    def __next__(self) -> dict[str, Any]:
        """Return the next batch; waits for it.  Raises Truncated, Corrupt, Invalid."""
        if self._process != os.getpid():
            raise Invalid(
                f"these batches belong to process {self._process}, from which this one was forked: begin new ones "
                "here, from the state"
            )
        while self._own_left is None:
            batch = self._tail.read(self._settings.batch_rows)
            if batch is None:
                raise StopIteration
            own = self._own(batch)
            if own.num_rows:
                self._own_left = own
            else:
                self._position = self._tail.position()
        values = self._settings.form.values(self._own_left)
        self._own_left, self._position = None, self._tail.position()
        return values

    def _own(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._shards == 1:
            return batch
        import numpy as np
        import pyarrow as pa

        segments, offsets = (batch.column(at).to_numpy().view(np.uint64) for at in (1, 2))
        owners = hashes(hashes(segments) ^ offsets) % np.uint64(self._shards)
        return batch.filter(pa.array(owners == np.uint64(self._shard)))

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last batch that was handed out."""
        return following_state(self._stream, self._position, self._creation, self._shard, self._shards)

    def close(self) -> None:
        """Stop reading, and release the connections."""
        if self._process == os.getpid():
            self._client.close()


def following_state(stream: StreamName, cut: str, creation: str, shard: int, shards: int) -> dict[str, Any]:
    """Return a position as plain values, for JSON."""
    return {
        MARK: VERSION, "of": FOLLOW, "stream": str(stream), "cut": cut, "creation": creation, "shard": shard,
        "shards": shards,
    }  # fmt: skip


def check_following(state: Any, stream: StreamName) -> None:
    """Check a position.  Raises Invalid: it is none, or of another stream."""
    if not isinstance(state, dict) or state.get("of") != FOLLOW or state.get(MARK) != VERSION:
        raise Invalid("that is no position of a reader that follows a stream: give what its state_dict returned")
    texts = [state.get(name) for name in ("stream", "cut", "creation")]
    numbers = [state.get(name) for name in ("shard", "shards")]
    if not all(isinstance(text, str) for text in texts) or not all(type(number) is int for number in numbers):
        raise Invalid("that position of a reader that follows a stream is damaged")
    if texts[0] != str(stream):
        raise Invalid(f"the state is of stream {texts[0]}, and this is a reader of {stream}")
