"""A segment store in memory that speaks wire frames, and a controller for it; both with faults on request.

Only what a client sees: appends with event numbers, reads (parked at the tail), info, seal, truncate, transient
segments and merges.  It checks what a real store must: event numbers exactly continued per connection, or the
connection is closed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from sarit.client.core.values import SegmentRange, Successor
from sarit.core.errors import NotFound
from sarit.core.limits import NULL_ATTRIBUTE_VALUE
from sarit.core.names import SegmentId, StreamName
from sarit.store.limits import MAX_READ_BYTES
from sarit.wire import commands as c
from sarit.wire.damage import damage_reply
from sarit.wire.frames import AppendAssembler, FrameReader, data_appended
from sarit.wire.limits import WIRE_VERSION

APPEND_BLOCK, APPEND_BLOCK_END = 3, 4


@dataclass
class Segment:
    """Bytes and writers of one segment."""

    data: bytearray = field(default_factory=bytearray)
    start: int = 0
    sealed: bool = False
    keep: bool = True
    length: int = 0
    writers: dict[bytes, int] = field(default_factory=dict)
    parked: list[tuple[Peer, c.ReadSegment]] = field(default_factory=list)
    appends: int = 0
    damaged_from: int | None = None

    def append(self, parts) -> None:
        for part in parts:
            self.length += len(part)
            if self.keep:
                self.data += part
        self.appends += 1


class FakeStore:
    """`segments` by name.  Faults:

    `drop_before` / `drop_after`: numbers of appends (counted over the store) at which the connection is cut before
    or after the append is applied, without an ack.  `ack_delay`: seconds before acks.  `mute`: segments that
    acks are not sent for until `speak`.  `foreign`: segments that another store has.  `stand_still`: as by SIGSTOP.
    """

    def __init__(self) -> None:
        self.segments: dict[str, Segment] = {}
        self.peers: set[Peer] = set()
        self.refused_reads = 0
        self.drop_before: set[int] = set()
        self.drop_after: set[int] = set()
        self.ack_delay = 0.0
        self.mute: set[str] = set()
        self.foreign: set[str] = set()
        self.held_back: list[tuple[Peer, bytes]] = []
        self.appends = 0
        self.setups = 0
        self.port = 0
        self.transients = 0
        self.lose_merge_replies = 0
        self.max_read = MAX_READ_BYTES
        self.stands_still = False
        self._server = None

    def stand_still(self) -> None:
        """The kernel takes connections and bytes, and nobody reads them."""
        self.stands_still = True
        for peer in self.peers:
            peer.transport.pause_reading()

    def go_on(self) -> None:
        self.stands_still = False
        for peer in self.peers:
            peer.transport.resume_reading()

    def speak(self) -> None:
        """Send the delayed acks."""
        self.mute.clear()
        for peer, ack in self.held_back:
            peer.send(ack)
        self.held_back.clear()

    async def start(self, network, port: int = 0) -> None:
        self._server = await network.serve(lambda: Peer(self), "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()
        self.drop_all()

    def drop_all(self) -> None:
        for peer in list(self.peers):
            peer.transport.abort()

    def create(self, name: str, **options) -> Segment:
        return self.segments.setdefault(name, Segment(**options))

    def seal(self, name: str) -> None:
        segment = self.segments[name]
        segment.sealed = True
        parked, segment.parked = segment.parked, []
        for peer, read in parked:
            peer.send(c.encode(c.SegmentIsSealed(read.request_id, name, "", read.offset)))

    def wake(self, segment: Segment) -> None:
        parked, segment.parked = segment.parked, []
        for peer, read in parked:
            peer.read(read)


class Peer(asyncio.BufferedProtocol):
    """One connection."""

    def __init__(self, store: FakeStore) -> None:
        self.store = store
        self.reader = FrameReader()
        self.assembler = AppendAssembler()
        self.writers: dict[bytes, list] = {}
        self.transients: list[str] = []
        self.handlers = {
            c.Hello: lambda _: self.send(c.encode(c.OUR_HELLO)),
            c.KeepAlive: lambda _: self.send(c.encode(c.KeepAlive())),
            c.SetupAppend: self.setup,
            c.ReadSegment: self.read,
            c.GetStreamSegmentInfo: self.info,
            c.CreateTransientSegment: self.transient,
            c.ConditionalBlockEnd: self.conditional,
            c.MergeSegments: self.merge,
            c.TruncateSegment: self.truncate,
            c.SealSegment: self.seal,
        }

    def connection_made(self, transport) -> None:
        self.transport = transport
        self.store.peers.add(self)
        if self.store.stands_still:
            transport.pause_reading()

    def connection_lost(self, exc) -> None:
        self.store.peers.discard(self)
        for name in self.transients:
            self.store.segments.pop(name, None)

    def get_buffer(self, sizehint):
        return self.reader.get_buffer(sizehint)

    def buffer_updated(self, count) -> None:
        for code, payload in self.reader.received(count):
            if self.transport.is_closing():
                return
            if code == APPEND_BLOCK_END:
                self.append(self.assembler.block_end(payload))
            else:
                command = c.decode(code, payload)
                self.handlers[type(command)](command)

    def send(self, data: bytes) -> None:
        if not self.transport.is_closing() and not self.store.stands_still:
            self.transport.write(data)

    def later(self, data: bytes) -> None:
        if self.store.ack_delay:
            asyncio.get_running_loop().call_later(self.store.ack_delay, self.send, data)
        else:
            self.send(data)

    def setup(self, command) -> None:
        self.store.setups += 1
        if command.segment in self.store.foreign:
            self.send(c.encode(c.WrongHost(command.request_id, command.segment, "")))
            return
        segment = self.store.segments.get(command.segment)
        if segment is None:
            self.send(c.encode(c.NoSuchSegment(command.request_id, command.segment)))
            return
        last = segment.writers.get(command.writer_id, NULL_ATTRIBUTE_VALUE)
        self.writers[command.writer_id] = [command.segment, last]
        self.later(c.encode(c.AppendSetup(command.request_id, command.segment, command.writer_id, last)))

    def append(self, append) -> None:
        store = self.store
        name, known = self.writers[append.writer_id]
        segment = store.segments.get(name)
        if segment is None:
            self.send(c.encode(c.NoSuchSegment(append.request_id, name)))
            return
        if segment.sealed:
            self.later(c.encode(c.SegmentIsSealed(append.request_id, name, "", append.last_event_number)))
            return
        store.appends += 1
        if store.appends in store.drop_before:
            self.transport.abort()
            return
        stored = segment.writers.get(append.writer_id, NULL_ATTRIBUTE_VALUE)
        if stored != known or append.last_event_number <= stored:
            self.send(c.encode(c.InvalidEventNumber(append.writer_id, append.request_id, "", append.last_event_number)))
            self.transport.close()
            return
        segment.append(append.parts)
        segment.writers[append.writer_id] = self.writers[append.writer_id][1] = append.last_event_number
        store.wake(segment)
        if store.appends in store.drop_after:
            self.transport.abort()
            return
        ack = data_appended(append.writer_id, append.last_event_number, stored, append.request_id, segment.length)
        if name in store.mute:
            store.held_back.append((self, ack))
        else:
            self.later(ack)

    def conditional(self, command) -> None:
        name, _ = self.writers[command.writer_id]
        segment = self.store.segments[name]
        if segment.length != command.expected_offset:
            self.send(c.encode(c.ConditionalCheckFailed(command.writer_id, command.event_number, command.request_id)))
            return
        segment.append([command.data])
        stored = segment.writers.get(command.writer_id, NULL_ATTRIBUTE_VALUE)
        segment.writers[command.writer_id] = command.event_number
        self.later(data_appended(command.writer_id, command.event_number, stored, command.request_id, segment.length))

    def transient(self, command) -> None:
        self.store.transients += 1
        name = f"{command.parent_segment}#transient.{command.writer_id.hex()}.{self.store.transients:032x}"
        self.store.create(name)
        self.transients.append(name)
        self.send(c.encode(c.SegmentCreated(command.request_id, name)))

    def merge(self, command) -> None:
        target, source = self.store.segments.get(command.target), self.store.segments.get(command.source)
        if target is None or source is None:
            missing = command.target if target is None else command.source
            self.send(c.encode(c.NoSuchSegment(command.request_id, missing)))
            return
        if target.sealed:
            self.send(c.encode(c.SegmentIsSealed(command.request_id, command.target)))
            return
        for update in command.attribute_updates:
            if target.writers.get(update.attribute_id, NULL_ATTRIBUTE_VALUE) != update.old_value:
                self.send(c.encode(c.SegmentAttributeUpdated(command.request_id, False)))
                return
        for update in command.attribute_updates:
            target.writers[update.attribute_id] = update.new_value
        target.append([source.data])
        del self.store.segments[command.source]
        self.store.wake(target)
        if self.store.lose_merge_replies:
            self.store.lose_merge_replies -= 1
            self.transport.abort()
            return
        self.send(c.encode(c.SegmentsMerged(command.request_id, command.target, command.source, target.length)))

    def info(self, command) -> None:
        segment = self.store.segments.get(command.segment)
        if segment is None:
            self.send(c.encode(c.NoSuchSegment(command.request_id, command.segment)))
            return
        info = c.StreamSegmentInfo(
            command.request_id, command.segment, True, segment.sealed, False, 0, segment.length, segment.start
        )
        self.send(c.encode(info))

    def truncate(self, command) -> None:
        self.store.segments[command.segment].start = command.truncation_offset
        self.send(c.encode(c.SegmentTruncated(command.request_id, command.segment)))

    def seal(self, command) -> None:
        self.store.seal(command.segment)
        self.send(c.encode(c.SegmentSealed(command.request_id, command.segment)))

    def read(self, command) -> None:
        segment = self.store.segments.get(command.segment)
        rid, name, at = command.request_id, command.segment, command.offset
        if segment is None:
            self.send(c.encode(c.NoSuchSegment(rid, name, "", at)))
        elif at < segment.start:
            self.send(c.encode(c.SegmentIsTruncated(rid, name, segment.start, "", at)))
        elif at >= segment.length and not segment.sealed:
            segment.parked.append((self, command))
        elif at > segment.length:
            self.send(c.encode(c.ErrorMessage(rid, name, "offset beyond the end", 0)))
        elif segment.damaged_from is not None and at >= segment.damaged_from:
            self.store.refused_reads += 1
            self.send(c.encode(damage_reply(rid, name, f"{name} is damaged at {at}", WIRE_VERSION)))
        else:
            limit = min(self.store.max_read, max(8, command.suggested_length))
            data = bytes(segment.data[at : at + limit])
            if segment.damaged_from is not None:
                data = data[: segment.damaged_from - at]
            end = len(data) < limit and at + len(data) == segment.length
            self.send(c.encode(c.SegmentRead(name, at, end and not segment.sealed, end and segment.sealed, data, rid)))


def overlap(one: SegmentRange, other: SegmentRange) -> bool:
    return one.low < other.high and other.low < one.high


class FakeController:
    """Streams of the fake store; the same calls as `client.controller.ControllerClient` makes."""

    address = "nowhere:1"

    def __init__(self, store: FakeStore) -> None:
        self.store = store
        self.current: dict[StreamName, list[SegmentRange]] = {}
        self.following: dict[tuple[StreamName, SegmentId], list[Successor]] = {}
        self.first: dict[StreamName, dict[SegmentId, int]] = {}
        self.failures: list[Exception] = []
        self.asked: list[SegmentId] = []
        self.elsewhere: dict[SegmentId, int] = {}

    def create(self, stream: str, segments: int = 1, **options) -> StreamName:
        name = StreamName.parse(stream)
        self.current[name] = [SegmentRange(SegmentId(0, n), n / segments, (n + 1) / segments) for n in range(segments)]
        self.first[name] = {r.segment: 0 for r in self.current[name]}
        for found in self.current[name]:
            self.store.create(name.segment(found.segment), **options)
        return name

    def scale(self, stream: StreamName, sealed: list[SegmentId], ranges: list[tuple[float, float]]) -> list[SegmentId]:
        """Replace `sealed` by new segments with `ranges`."""
        before = self.current[stream]
        epoch = max(r.segment.epoch for r in before) + 1
        number = max(r.segment.number for r in before) + 1
        new = [SegmentRange(SegmentId(epoch, number + i), low, high) for i, (low, high) in enumerate(ranges)]
        old = [r for r in before if r.segment in sealed]
        for found in new:
            self.store.create(stream.segment(found.segment))
        for gone in old:
            self.following[stream, gone.segment] = [
                Successor(n.segment, n.low, n.high, frozenset(o.segment for o in old if overlap(o, n)))
                for n in new
                if overlap(n, gone)
            ]
        self.current[stream] = sorted([r for r in before if r not in old] + new, key=lambda r: r.low)
        for gone in old:
            self.store.seal(stream.segment(gone.segment))
        return [n.segment for n in new]

    def seal(self, stream: StreamName) -> None:
        gone, self.current[stream] = self.current[stream], []
        for found in gone:
            self.store.seal(stream.segment(found.segment))

    async def current_segments(self, stream):
        if self.failures:
            raise self.failures.pop(0)
        if stream not in self.current:
            raise NotFound(f"stream {stream} does not exist")
        return list(self.current[stream])

    async def head_segments(self, stream):
        if stream not in self.first:
            raise NotFound(f"stream {stream} does not exist")
        return dict(self.first[stream])

    async def successors(self, stream, segment):
        if self.failures:
            raise self.failures.pop(0)
        return list(self.following.get((stream, segment), []))

    async def endpoint(self, stream, segment):
        self.asked.append(segment)
        return "127.0.0.1", self.elsewhere.get(segment, self.store.port)

    async def token(self, stream):
        return ""

    async def close(self):
        pass
