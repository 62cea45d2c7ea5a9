"""A stream that becomes a table while others read it: its writer, its committer, and what the table must have.

Events are JSON, each third one in an envelope; some are damaged, and become dead letters.  In the middle the columns
evolve: a column is added, another one is widened."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyiceberg.catalog import load_catalog

import sarit
import sarit.aio
from sarit.core.envelope import Envelope
from sarit.core.names import StreamName
from sarit.env.real import real_env
from sarit.lake import cuts
from sarit.lake.committer import Committer
from sarit.lake.pyiceberg_tables import PyIcebergTables
from sarit.process.jobs.stream_source import StreamSource
from sarit.serializers.payload_columns import json_columns
from tests.limits import HANG_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sarit.core.cuts import StreamCut
    from sarit.lake.catalogs import Catalogs
    from sarit.lake.settings import IcebergSettings

EVOLVES_AT: Final = 6_000  # the number of the first event with the columns of later
DAMAGED: Final = 97  # one event of so many

TAGS: Final = pa.list_(pa.struct([pa.field("name", pa.string()), pa.field("weight", pa.float64())]))
EARLIER: Final = pa.schema(
    [
        pa.field("n", pa.int64()),
        pa.field("small", pa.int32()),
        pa.field("text", pa.string()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("tags", TAGS),
    ]
)
LATER: Final = pa.schema(
    [pa.field("small", pa.int64()) if field.name == "small" else field for field in EARLIER]
    + [pa.field("more", pa.map_(pa.string(), pa.int64()))]
)

# What each engine is asked, with the names of the table and of its sum of a text's length.
QUESTION: Final = (
    'SELECT count(*), sum(n), sum(small), sum(length(text)), sum(sarit."offset" % 100003), count(sarit.key), '
    "count(sarit.time) FROM {table}"
)
AFTER_EVOLUTION: Final = (
    "SELECT sum(more['twice']), count(more), min(small), max(small), sum(tags[{first}].weight) FROM {table} "
    "WHERE n >= {evolves_at}"
)


class Question:
    """The sums of QUESTION over events that were added, as a reader of the table must find them."""

    def __init__(self) -> None:
        self.sums = (0, 0, 0, 0, 0, 0, 0)

    def add(self, event: bytes, offset: int) -> bool:
        """Add an event; whether it is one that can be decoded."""
        keyed = Envelope.is_envelope(event)
        try:
            value = json.loads(Envelope.parse(event).payload if keyed else event)
        except ValueError:
            return False
        more = (1, value["n"], value["small"], len(value["text"]), offset % 100003, int(keyed), int(keyed))
        self.sums = tuple(a + b for a, b in zip(self.sums, more, strict=True))  # type: ignore[assignment]
        return True


def damaged_event(number: int) -> bytes:
    """Return what is no JSON."""
    return b'{"n": %d, ' % number


def event_of(number: int, evolves_at: int = EVOLVES_AT) -> bytes | Envelope:
    """Return the event of a number."""
    if number % DAMAGED == DAMAGED - 1:
        return damaged_event(number)
    small = number if number < evolves_at else number + (1 << 40)
    value: dict[str, Any] = {
        "n": number, "small": small, "text": "x" * (number % 50), "at": f"2026-01-01T00:{number % 60:02}:00.25Z",
        "tags": [{"name": "one", "weight": number / 2}],
    }  # fmt: skip
    if number >= evolves_at:
        value["more"] = {"twice": 2 * number}
    document = json.dumps(value).encode()
    return document if number % 3 else Envelope(document, key=f"k{number}", event_time=number * 1_000_000)


class JsonChoice:
    """The columns of the stream's JSON: EARLIER, and LATER from the moment `evolved` is set."""

    wants_sample = False

    def __init__(self) -> None:
        self.evolved = False

    async def choose(self, before: str, sample: Sequence[bytes]) -> str:
        """Return the name of the columns."""
        return "later" if self.evolved else "earlier"

    async def open(self, chosen: str) -> Any:
        """Return the columns of a name."""
        return json_columns(LATER if chosen == "later" else EARLIER)


class CommittedStream:
    """A stream and its committer, which runs in a thread; `states`: what the table must have after each commit."""

    def __init__(
        self,
        controller: str,
        stream: str,
        catalogs: Catalogs,
        settings: IcebergSettings,
        event: Callable[[int], bytes | Envelope] = event_of,
    ) -> None:
        self.controller, self.stream, self.settings = controller, StreamName.parse(stream), settings
        self._catalogs = catalogs
        self._event = event
        self._columns = JsonChoice()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._commit()), daemon=True)
        self.rows = self.written = self.damaged = 0
        self.error: BaseException | None = None
        with sarit.connect(controller) as client:
            client.create_scope(self.stream.scope)
            client.create_stream(self.stream, segments=3)
        self._thread.start()

    def evolve(self) -> None:
        """Give the table the columns of LATER from now on."""
        self._columns.evolved = True

    def write(self, numbers: Iterable[int]) -> None:
        """Append events, and wait until they are durable."""
        count = damaged = 0
        with sarit.connect(self.controller) as client, client.writer(self.stream) as writer:
            for number in numbers:
                event = self._event(number)
                damaged += event == damaged_event(number)
                writer.write(event, key=str(number % 11))
                count += 1
        self.written += count
        self.damaged += damaged

    def scale(self, segments: int) -> None:
        """Scale the stream."""
        with sarit.connect(self.controller) as client:
            client.stream(self.stream).scale(segments)

    def wait_for_rows(self) -> None:
        """Wait until everything that was written so far is in the table, and at least one row."""
        end = time.monotonic() + HANG_SECONDS
        while self.rows < max(1, self.written - self.damaged):
            assert self.error is None, self.error
            assert time.monotonic() < end, f"{self.rows} rows of {self.written} events"
            time.sleep(0.02)

    async def _commit(self) -> None:
        env = real_env()
        worker = env.threads.worker("lake")
        try:
            async with await sarit.aio.connect(self.controller) as client:
                source = StreamSource(client.session, self.stream, env.clock)
                tables = PyIcebergTables(self._catalogs, self.settings.catalog)
                arguments = (source, tables, self._columns, self._saved, env, worker)
                committer = Committer(self.settings, *arguments)
                while not await committer.step():
                    self.rows = committer.state.rows
        except BaseException as error:
            self.error = error
            raise
        finally:
            await worker.close()

    async def _saved(self, state: bytes, held: StreamCut | None) -> None:
        """Save nothing: this committer is not started again."""

    def stop(self) -> None:
        """End the stream, and wait until all of it is in the table."""
        with sarit.connect(self.controller) as client:
            client.seal_stream(self.stream)
        self._thread.join(HANG_SECONDS)
        assert not self._thread.is_alive()
        assert self.error is None, self.error

    def catalog(self) -> Any:
        """Return the catalog, by PyIceberg."""
        return load_catalog(self.settings.catalog, **self._catalogs[self.settings.catalog])

    def table(self) -> Any:
        """Return the table as it is now."""
        return self.catalog().load_table(self.settings.identifier)

    def states(self) -> list[tuple[int, ...]]:
        """Return what QUESTION must find in each state of the table so far, from the stream itself: the events up to
        the cut of each of its snapshots, oldest first."""
        table = self.table()
        cut_texts = [found.summary[cuts.CUT_TO] for found in table.metadata.snapshots if cuts.CUT_TO in found.summary]
        question, found = Question(), [(0,) * 7]
        with sarit.connect(self.controller) as client:
            start: Any = client.cut(self.stream, "head")
            for text in cut_texts:
                end = cuts.parse_cut(text)
                for batch in client.stream(self.stream).batch(start, end).arrow_batches():
                    for event, offset in zip(batch["event"].to_pylist(), batch["offset"].to_pylist(), strict=True):
                        question.add(event, offset)
                found.append(question.sums)
                start = end
        return found
