"""What indexers, searchers and continuous queries need of the world, in memory: for tests and the simulation."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sarit.core.cuts import StreamCut
from sarit.core.errors import Conflict, Corrupt, NotFound
from sarit.core.names import SegmentId
from sarit.search.ports import EventSlice, endless

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from sarit.core.names import StreamName
    from sarit.search.ports import RowChange

    # Called before and after each change: a test fails there, or is cancelled.
    Gate = Callable[[str], Awaitable[None]]


async def _open_gate(_: str) -> None:
    return None


class MemoryBlobs:
    """Blobs by name.  `gate`: awaited with the name of each call before it changes anything, and after it."""

    def __init__(self, gate: Gate = _open_gate) -> None:
        self.blobs: dict[str, bytearray] = {}
        self.gate = gate

    def __repr__(self) -> str:
        return f"<MemoryBlobs, {len(self.blobs)} blobs>"

    async def append(self, name: str, parts: Sequence[bytes]) -> int:
        """Append parts, durably, to a blob that may not exist yet.  Returns the offset of the first of them."""
        await self.gate("append")
        blob = self.blobs.setdefault(name, bytearray())
        offset = len(blob)
        for part in parts:
            blob += part
        await self.gate("appended")
        return offset

    async def read(self, name: str, offset: int, length: int) -> bytes:
        """Return exactly `length` bytes from `offset`.  Raises NotFound, Corrupt (it is shorter)."""
        await self.gate("read")
        if name not in self.blobs:
            raise NotFound(f"blob {name} does not exist")
        found = bytes(self.blobs[name][offset : offset + length])
        if len(found) != length:
            raise Corrupt(f"blob {name} ends before {offset + length}")
        return found

    async def delete(self, name: str) -> None:
        """Delete a blob; succeeds when it does not exist."""
        await self.gate("delete")
        self.blobs.pop(name, None)
        await self.gate("deleted")

    async def names(self, prefix: str) -> list[str]:
        """Return the names of all blobs that begin with a prefix, in order."""
        await self.gate("names")
        return sorted(name for name in self.blobs if name.startswith(prefix))


class MemoryRows:
    """Rows by key, each with a version."""

    def __init__(self) -> None:
        self._rows: dict[bytes, tuple[bytes, int]] = {}
        self._position = 0

    def __repr__(self) -> str:
        return f"<MemoryRows, {len(self._rows)} rows>"

    async def get(self, keys: Sequence[bytes]) -> list[tuple[bytes, int] | None]:
        """Return (value, version) of each key; None: there is none."""
        return [self._rows.get(key) for key in keys]

    async def put(self, key: bytes, value: bytes | None, version: int | None) -> int:
        """Set the value of a key, or remove it (None), if it has a version; None: if there is none.

        Returns the new version; of a removal -1.  Raises Conflict, and changes nothing."""
        found = self._rows.get(key)
        if (None if found is None else found[1]) != version:
            raise Conflict(f"row {key!a} has another version")
        self._position += 1
        if value is None:
            self._rows.pop(key, None)
            return -1
        self._rows[key] = (value, self._position)
        return self._position

    async def put_all(self, changes: Sequence[RowChange], mark: tuple[bytes, bytes] | None = None) -> list[int]:
        """Do the same for several rows, for all or for none.  Raises Conflict.

        `mark`: a key and the value that it gets together with them, whatever it has."""
        for key, _, version in changes:
            if self._rows.get(key, (b"", None))[1] != version:
                raise Conflict(f"row {key!a} has another version")
        if mark is not None:
            self._position += 1
            self._rows[mark[0]] = mark[1], self._position
        return [await self.put(*change) for change in changes]

    async def scan(self, prefix: bytes) -> list[tuple[bytes, bytes, int]]:
        """Return (key, value, version) of all keys that begin with a prefix, ascending."""
        return sorted((key, *row) for key, row in self._rows.items() if key.startswith(prefix))


class MemoryEvents:
    """A stream of one segment after another, in memory.  `header`: bytes before each event, that are part of it."""

    def __init__(self, stream: StreamName, segments: int = 1, header: int = 8) -> None:
        self.stream = stream
        self.stream_id = "0" * 31 + "1"
        self.heads = {SegmentId(0, number): 0 for number in range(segments)}
        self.sealed = False
        self._header = header
        self._events: dict[SegmentId, list[tuple[int, bytes]]] = {segment: [] for segment in self.heads}
        self._ends = dict.fromkeys(self.heads, 0)
        self._grown = asyncio.Event()

    def __repr__(self) -> str:
        return f"<MemoryEvents {self.stream}>"

    def write(self, *events: bytes, segment: int = 0) -> None:
        """Append events to a segment."""
        into = SegmentId(0, segment)
        for event in events:
            self._events[into].append((self._ends[into], event))
            self._ends[into] += self._header + len(event)
        self._grown.set()

    def truncate(self, segment: int, offset: int) -> None:
        """Truncate a segment."""
        self.heads[SegmentId(0, segment)] = offset

    def places(self) -> list[tuple[int, int]]:
        """Return the segment and offset of each event that was ever written, in order."""
        return sorted((segment.packed, at) for segment, events in self._events.items() for at, _ in events)

    async def identity(self) -> str:
        """Return the creation id of the stream, in hexadecimal digits."""
        return self.stream_id

    async def edge(self, which: str) -> StreamCut:
        """Return the cut of the "head" or the "tail"."""
        return StreamCut(self.stream, dict(self.heads if which == "head" else self._ends))

    async def bytes_behind(self, cut: StreamCut) -> int:
        """Return how many bytes the stream has behind a cut."""
        return sum(end - max(cut.positions[s], self.heads[s]) for s, end in self._ends.items())

    async def is_finished(self, cut: StreamCut) -> bool:
        """Return whether the stream is sealed, and nothing is behind a cut."""
        return self.sealed and not await self.bytes_behind(cut)

    async def is_before(self, earlier: StreamCut, later: StreamCut) -> bool:
        """Return whether a cut is nowhere behind another one."""
        return all(offset <= later.positions[segment] for segment, offset in earlier.positions.items())

    async def is_truncated(self, cut: StreamCut) -> bool:
        """Return whether everything before a cut is truncated."""
        return all(offset <= self.heads[segment] for segment, offset in cut.positions.items())

    async def appended_ms(self, cut: StreamCut) -> int:
        """Return about when the events behind a cut were appended: always the same time."""
        return 1_700_000_000_000

    async def follow(
        self, start: StreamCut, until_due: Callable[[], float] = endless
    ) -> AsyncGenerator[EventSlice | None, None]:
        """Yield the events behind a cut as they come; None whenever there is nothing at hand, without waiting."""
        at = dict(start.positions)
        while True:
            self._grown.clear()
            read = False
            for segment, events in self._events.items():
                lost = max(0, self.heads[segment] - at[segment])
                at[segment] += lost
                new = [(offset, event) for offset, event in events if offset >= at[segment]]
                if new or lost:
                    at[segment] = self._ends[segment]
                    offsets, found = [offset for offset, _ in new], [event for _, event in new]
                    read = True
                    yield EventSlice(segment.packed, offsets, found, StreamCut(self.stream, dict(at)), lost)
            if not read:
                yield None
                await asyncio.sleep(0)
