"""A stream that scales under load while faults strike: writers by key, transactions, and a reader that is killed.

A *sequence* is one writer's events of one key, or one transaction's of one key; it is a writer of its own in the
history.  The reader is a process (`reader_process.py`) that is killed with -9 now and then and continues after its last
complete report: every event exactly once, by position.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING, Final

from checkers import log as log_checker
from checkers import txn as txn_checker
from checkers.log import ANY_SEGMENT, TORN, LogHistory, Violation
from checkers.stream import StreamHistory
from sarit.core.errors import Conflict, Invalid, NotFound, Unavailable
from sarit.core.names import SegmentId
from simulation.events import body, parse
from tests.chaos.events import ROOT, SCOPE
from tests.chaos.parts import Pulse, now

if TYPE_CHECKING:
    import random
    from collections.abc import Coroutine
    from typing import Any

    from sarit.client.aio import Client
    from sarit.client.transactions.transaction import Transaction, TransactionalWriter

NAME: Final = f"{SCOPE}/elastic"
KILLED_READER: Final = 0
HEADER_BYTES: Final = 8
_WRITERS: Final = 2
_KEYS: Final = 6
_MOST_SEGMENTS: Final = 8
_MOST_FILLER: Final = 700
_LEASE_SECONDS: Final = 300.0


class Elastic:
    """See the head of the module."""

    def __init__(self, address: str, rng: random.Random) -> None:
        self.address = address
        self.rng = rng
        self.pulse = Pulse()
        self.log = LogHistory()
        self.stream = StreamHistory()
        self.transactions: dict[int, int] = {}
        self.stored: set[tuple[int, int]] = set()
        self.scales = self.kills = 0
        self._acked: dict[int, int] = {}
        self._sequences = 0
        self._scans = 0
        self._numbers: dict[int, int] = {}
        self._reader = KilledReader(self)

    async def create(self, client: Client) -> None:
        """Make the stream."""
        await client.create_stream(NAME, segments=2)

    def work(self, client: Client) -> dict[str, Coroutine[Any, Any, None]]:
        """See `Part`."""
        writers = {f"elastic writer {number}": self._write(client, number) for number in range(_WRITERS)}
        return {
            **writers,
            "scaler": self._scale(client),
            "transactions": self._commit(client),
            "killed reader": self._reader.run(),
        }

    def check(self) -> list[Violation]:
        """See `Part`."""
        return [*log_checker.check(self.log), *txn_checker.check(self.log, self.transactions), *self.stream.check()]

    @property
    def acked_events(self) -> int:
        """Over all sequences."""
        return sum(self._acked.values())

    # -- writers --------------------------------------------------------------------------------

    def _new_sequence(self) -> int:
        self._sequences += 1
        return self._sequences

    def _event(self, sequence: int, number: int) -> bytes:
        return body(sequence, number, self.rng.randrange(_MOST_FILLER))

    def _sent(self, sequence: int, number: int, event: bytes) -> None:
        self.log.sent(sequence, number, ANY_SEGMENT, HEADER_BYTES + len(event), now())

    def _ack(self, sequence: int, number: int) -> None:
        self.log.acked(sequence, number, ANY_SEGMENT, -1, now())
        self._acked[sequence] = number

    async def _write(self, client: Client, writer_number: int) -> None:
        writer = client.writer(NAME, buffer_bytes=self.rng.choice((20_000, 1_000_000)))
        sequences = {f"writer-{writer_number}-key-{key}": [self._new_sequence(), 0] for key in range(_KEYS)}
        while not self.pulse.stopping.is_set():
            for _ in range(self.rng.randint(1, 20)):
                key = self.rng.choice(list(sequences))
                sequences[key][1] += 1
                event = self._event(*sequences[key])
                self._sent(*sequences[key], event)
                writer.write(event, key)
            written = [(sequence, last) for sequence, last in sequences.values() if last]
            writer.flush_barrier().add_done_callback(
                lambda mark, written=written: self._marked(mark, written, f"elastic writer {writer_number}")  # type: ignore[misc]
            )
            await writer.drain()
            await asyncio.sleep(self.rng.random() * 0.3)
        await writer.close()

    def _marked(self, mark: asyncio.Future[None], written: list[tuple[int, int]], who: str) -> None:
        if not mark.cancelled() and mark.exception() is None:
            for sequence, number in written:
                self._ack(sequence, number)
            self.pulse.steps[who] += 1

    # -- transactions ---------------------------------------------------------------------------

    async def _commit(self, client: Client) -> None:
        writer = client.transactional_writer(NAME, lease_seconds=_LEASE_SECONDS)
        while not self.pulse.stopping.is_set():
            await asyncio.sleep(self.rng.random() * 0.3)
            with contextlib.suppress(Unavailable, NotFound):  # it began or not; nobody will ever see it
                await self._transaction(writer)
            self.pulse.steps["transactions"] += 1
        await writer.close()

    async def _transaction(self, writer: TransactionalWriter) -> None:
        transaction = await writer.begin()
        sequences = {f"key-{key}": [self._new_sequence(), 0] for key in range(self.rng.choice((1, 3)))}
        events: list[tuple[int, int, bytes]] = []
        for _ in range(self.rng.randint(1, 40)):
            key = self.rng.choice(list(sequences))
            sequences[key][1] += 1
            sequence, number = sequences[key]
            events.append((sequence, number, self._event(sequence, number)))
            transaction.write(events[-1][2], key)
        try:
            if self.rng.random() < 0.2:
                await transaction.abort()
                return
            await transaction.flush()
        except Conflict:
            return
        for event in events:
            self._sent(*event)
        if len(sequences) == 1:
            self.transactions[events[0][0]] = len(events)
        await self._decided(writer, transaction, [(sequence, last) for sequence, last in sequences.values() if last])

    async def _decided(
        self, writer: TransactionalWriter, transaction: Transaction, sequences: list[tuple[int, int]]
    ) -> None:
        while True:
            try:
                await writer.commit(transaction.id)
            except Unavailable:
                continue
            except Conflict:
                for sequence, last in sequences:
                    for number in range(1, last + 1):
                        self.log.refused(sequence, number)
            else:
                for sequence, last in sequences:
                    self._ack(sequence, last)
            break
        transaction.release()

    # -- scaling --------------------------------------------------------------------------------

    async def _scale(self, client: Client) -> None:
        stream = client.stream(NAME)
        while not self.pulse.stopping.is_set():
            await asyncio.sleep(self.rng.random() * 2)
            try:
                ranges = sorted(await stream.segments(), key=lambda found: found.low)
                self.stream.active([(found.low, found.high) for found in ranges])
                at = self.rng.randrange(len(ranges))
                if at and (len(ranges) >= _MOST_SEGMENTS or self.rng.random() < 0.5):
                    await stream.merge([ranges[at - 1].segment, ranges[at].segment])
                else:
                    await stream.split(ranges[at].segment, self.rng.choice((2, 3)))
            except (Unavailable, Conflict, Invalid, NotFound):  # it happened or not; a second try may find it done
                continue
            self.scales += 1
            self.pulse.steps["scaler"] += 1

    # -- reading --------------------------------------------------------------------------------

    def segment(self, packed: int) -> int:
        """The number of a segment."""
        return self._numbers.setdefault(packed, len(self._numbers))

    def got(self, reader: int, place: tuple[int, int], event: bytes, *, fresh: bool, begun: float) -> None:
        """A reader got an event at (packed segment, offset)."""
        sequence, number = parse(event) or (TORN, 0)
        self.row(reader, place, (sequence, number, HEADER_BYTES + len(event)), fresh=fresh, begun=begun)

    def row(
        self, reader: int, place: tuple[int, int], event: tuple[int, int, int], *, fresh: bool, begun: float
    ) -> None:
        """The same, of an event already parsed."""
        segment = self.segment(place[0])
        self.log.read(reader, (segment, place[1]), event, fresh=fresh, begun=begun, ended=now())
        if event[0] != TORN:
            self.stream.delivered(reader, segment, event[0], event[1])

    async def scan(self, client: Client) -> None:
        """Read from the head, with the successors; the killed reader must have read as much."""
        self._scans += 1
        await self._learn(client)
        seen: set[int] = set()
        events = 0
        async with client.reader(NAME, end="tail") as reader:
            while True:
                begun = now()
                batch = await reader.read_arrow()
                if batch is None:
                    break
                for event, packed, offset in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    self.stored.add(parse(event) or (TORN, 0))
                    self.got(self._scans, (packed, offset), event, fresh=packed not in seen, begun=begun)
                    seen.add(packed)
                events += batch.num_rows
        infos = await client.segment_infos(NAME, [SegmentId.unpack(packed) for packed in sorted(self._numbers)])
        for segment, info in infos.items():
            self.log.scanned(self._scans, self.segment(segment.packed), info.start_offset, info.end_offset)
        if self._scans == 1:
            await self._reader.until(events)

    async def _learn(self, client: Client) -> None:
        waiting = [found for found, _ in sorted((await client.stream_cut_head(NAME)).positions.items())]
        seen = set(waiting)
        while waiting:
            segment = waiting.pop()
            self.segment(segment.packed)
            for later in await client.successors(NAME, segment):
                self.stream.follows(
                    self.segment(later.segment.packed), sorted(self.segment(one.packed) for one in later.predecessors)
                )
                if later.segment not in seen:
                    seen.add(later.segment)
                    waiting.append(later.segment)


class KilledReader:
    """Restarts the reader's process again and again; records its complete reports."""

    def __init__(self, elastic: Elastic) -> None:
        self._elastic = elastic
        self._position = "head"
        self._seen: set[int] = set()
        self._events = 0
        self._process: asyncio.subprocess.Process | None = None

    async def run(self) -> None:
        """Until cancelled."""
        rng = self._elastic.rng
        try:
            while True:
                process = self._process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "tests.chaos.reader_process", self._elastic.address, NAME, self._position,
                    cwd=ROOT, stdout=asyncio.subprocess.PIPE, limit=1 << 26,
                )  # fmt: skip
                with contextlib.suppress(TimeoutError):
                    # The first batch may take long when the node is down.
                    await self._listen(process, 1)
                    async with asyncio.timeout(rng.choice((3, 10, 30)) * rng.random()):
                        await self._listen(process, None)
                assert process.returncode is None, f"the reader ended by itself: {process.returncode}"
                process.kill()
                await process.wait()
                self._elastic.kills += 1
        finally:
            self.kill()

    def kill(self) -> None:
        """End the process."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def until(self, events: int) -> None:
        """Wait until it has read this number of events."""
        while self._events < events:
            await asyncio.sleep(0.05)

    async def _listen(self, process: asyncio.subprocess.Process, reports: int | None) -> None:
        """Take this number of reports; drop what follows the last one."""
        assert process.stdout is not None
        rows: list[list[int]] = []
        begun = now()
        while reports is None or reports > 0:
            line = (await process.stdout.readline()).decode()
            if not line.endswith("\n"):
                await asyncio.sleep(0.1)  # it ended: its exit code is available soon
                return
            what, _, rest = line.strip().partition(" ")
            if what == "got":
                rows.append([int(field) for field in rest.split()])
                continue
            assert what == "at", line
            for packed, offset, sequence, number, length in rows:
                fresh = packed not in self._seen
                self._seen.add(packed)
                self._elastic.row(KILLED_READER, (packed, offset), (sequence, number, length), fresh=fresh, begun=begun)
            self._events += len(rows)
            self._position = rest
            self._elastic.pulse.steps["killed reader"] += 1
            rows, begun = [], now()
            reports = reports and reports - 1
