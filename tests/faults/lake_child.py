"""Processes that commit a stream into a table and die by SIGKILL at a chosen call, for test_lake_kills.py.

`python -m tests.faults.lake_child` loads all modules, reads a command in JSON a line, carries it out in a child, and
prints the child's exit status, or what it found.
"""

from __future__ import annotations

import asyncio
import base64
import fcntl
import inspect
import json
import os
import random
import signal
import sys
import traceback
import zlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyiceberg.io.pyarrow  # noqa: F401
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog

import sarit.aio
from sarit.core.errors import Exists, Fenced, Unavailable
from sarit.core.names import SegmentId, StreamName
from sarit.env.real import real_env
from sarit.lake import cuts, problems
from sarit.lake.catalogs import Catalogs
from sarit.lake.committer import Committer
from sarit.lake.problems import TableProblem
from sarit.lake.pyiceberg_tables import ParquetFiles, PyIcebergTables, _OneAttempt
from sarit.lake.settings import IcebergSettings
from sarit.process.jobs.stream_source import StreamSource
from sarit.schemas.payloads import Rows
from tests.unit.lake.world import Numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sarit.core.cuts import StreamCut

STREAM = "shop/orders"
EVENTS = 24

# Where a process dies: before and after each of these calls.
CALLS: dict[str, tuple[Any, str]] = {
    "load": (PyIcebergTables, "load"),
    "create": (PyIcebergTables, "create"),
    "evolve": (PyIcebergTables, "evolve"),
    "write": (ParquetFiles, "write"),
    "close": (ParquetFiles, "close"),
    "append": (PyIcebergTables, "append"),
    "commit": (_OneAttempt, "commit_table"),
    "metadata": (SqlCatalog, "_write_metadata"),
}
POINTS = tuple(f"{when} {call}" for call in (*CALLS, "save") for when in ("before", "after"))


class FileRow:
    """The row of a job in a file: a claim fences the one before."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def _changed(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
        with open(f"{self._path}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            row = json.loads(self._path.read_text()) if self._path.exists() else {"fence": 0, "state": ""}
            row = change(row)
            new = self._path.with_suffix(".new")
            new.write_text(json.dumps(row))
            new.rename(self._path)
            return row

    def is_held(self, fence: int) -> bool:
        """Whether nobody has claimed the job since."""
        return bool(json.loads(self._path.read_text())["fence"] == fence)

    def claim(self) -> tuple[bytes, Callable[[bytes, StreamCut | None], Any], int]:
        row = self._changed(lambda row: {**row, "fence": row["fence"] + 1})
        mine = row["fence"]

        def change(row: dict[str, Any], state: bytes) -> dict[str, Any]:
            if row["fence"] != mine:
                raise Fenced("another process has claimed the job")
            return {**row, "state": base64.b64encode(state).decode()}

        async def save(state: bytes, held: StreamCut | None) -> None:
            self._changed(lambda row: change(row, state))

        return base64.b64decode(row["state"]), save, mine


class GrowingColumns:
    """Numbers, and as many more columns as the text says."""

    wants_sample = False

    def __init__(self, columns: int) -> None:
        self._count = columns

    async def choose(self, before: str, sample: Sequence[bytes]) -> str:
        return str(max(self._count, int(before or 0)))

    async def open(self, chosen: str) -> Any:
        return _Grown(int(chosen))


class _Grown(Numbers):
    def __init__(self, columns: int) -> None:
        super().__init__()
        self.schema = pa.schema([*Numbers.schema, *(pa.field(f"c{n}", pa.int64()) for n in range(columns))])

    def read(self, payloads: pa.Array) -> Rows:
        found = super().read(payloads)
        more = len(self.schema) - len(found.columns)
        return Rows([*found.columns, *[found.columns[0]] * more], found.bad)


def die_at(point: str, nth: int) -> Callable[[str], None]:
    """Make this process kill itself at the nth time it comes to a point.  Returns what counts."""
    left = nth

    def count(at: str) -> None:
        nonlocal left
        if at == point:
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    def wrap(owner: Any, name: str, call: str) -> None:
        right = getattr(owner, name)

        def wrong(*args: Any, **options: Any) -> Any:
            count(f"before {call}")
            found = right(*args, **options)
            count(f"after {call}")
            return found

        setattr(
            owner, name, staticmethod(wrong) if isinstance(inspect.getattr_static(owner, name), staticmethod) else wrong
        )

    for call, (owner, name) in CALLS.items():
        wrap(owner, name, call)
    return count


def catalogs(asked: dict[str, Any]) -> Catalogs:
    return Catalogs({"lake": asked["catalog"]})


async def commit(asked: dict[str, Any]) -> None:
    """Write events, and commit until all are in the table."""
    count = die_at(asked["point"], asked["nth"])
    chance = random.Random(asked["run"])
    async with await sarit.aio.connect(asked["controller"]) as client:
        for make in (client.create_scope("shop"), client.create_stream(STREAM, segments=2)):
            with suppress(Exists):
                await make
        async with client.writer(STREAM) as writer:
            for number in range(asked["events"]):
                word = b"bad" if chance.random() < 0.1 else b"%d" % (asked["run"] * 1000 + number)
                writer.write(word, key=str(number))
        if asked["scale"]:
            await client.stream(STREAM).scale(asked["scale"])
        await _commit_all(client, asked, count)


async def _commit_all(client: Any, asked: dict[str, Any], count: Callable[[str], None]) -> None:
    env = real_env()
    worker = env.threads.worker("lake")
    row = FileRow(Path(asked["directory"]) / f"{asked['table']}.row")
    settings = IcebergSettings(f"lake.shop.{asked['table']}", interval_seconds=0, target_bytes=asked["target"])
    columns: Any = GrowingColumns(asked["columns"])
    source = StreamSource(client.session, StreamName.parse(STREAM), env.clock)
    while True:
        state, right, fence = row.claim()

        async def save(state: bytes, held: StreamCut | None, right: Any = right) -> None:
            count("before save")
            await right(state, held)
            count("after save")

        committer = Committer(
            settings, source, PyIcebergTables(catalogs(asked), "lake"), columns, save, env, worker, state
        )
        try:
            while committer.state.cut is None or committer.state.intent is not None:
                await committer.step()
            while await source.bytes_behind(committer.state.cut):
                await committer.step()
                while committer.state.intent is not None:
                    await committer.step()
            break
        except Unavailable as error:
            print(f"again: {error}", file=sys.stderr)
            await asyncio.sleep(0.02)
        except Fenced:
            pass
        except TableProblem as error:
            # Who has lost the job finds commits of those who have it now.
            if error.name != problems.OTHER_COMMITTER or row.is_held(fence):
                raise
    await worker.close()


async def judge(asked: dict[str, Any]) -> dict[str, Any]:
    """Compare the rows of each snapshot, and the dead letters, with the stream's events.  Returns counts."""
    events: dict[tuple[int, int], bytes] = {}
    async with await sarit.aio.connect(asked["controller"]) as client:
        reader = await client.stream(STREAM).batch()
        async for batch in reader.arrow_batches():
            for event, segment, offset in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                events[segment, offset] = event
    catalog = load_catalog("lake", **catalogs(asked)["lake"])
    table = catalog.load_table(("shop", asked["table"]))
    dead: set[tuple[int, int]] = set()
    if catalog.table_exists(("shop", f"{asked['table']}__dlq")):
        letters = catalog.load_table(("shop", f"{asked['table']}__dlq")).scan().to_arrow()
        listed = list(zip(letters["segment"].to_pylist(), letters["offset"].to_pylist(), strict=True))
        dead = set(listed)
        assert len(listed) == len(dead), "a dead letter is there twice"
        assert all(events[place] == raw for place, raw in zip(listed, letters["raw"].to_pylist(), strict=True))
    files: dict[str, list[tuple[tuple[int, int], bytes]]] = {}
    by_id = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
    before: tuple[set[str], str] = (set(), "")
    for snapshot in table.metadata.snapshots:
        summary = snapshot.summary.additional_properties
        paths = {e.data_file.file_path for m in snapshot.manifests(table.io) for e in m.fetch_manifest_entry(table.io)}
        assert snapshot.parent_snapshot_id in (None, *by_id)
        assert before[0] <= paths
        assert not before[1] or summary[cuts.CUT_FROM] == before[1], "the cuts do not follow each other"
        start, end = (cuts.parse_cut(summary[name]) for name in (cuts.CUT_FROM, cuts.CUT_TO))
        rows = [row for path in sorted(paths - before[0]) for row in _rows(table.io, path, files)]
        wanted = {
            place: event for place, event in events.items()
            if _is_before(place, end) and not _is_before(place, start) and place not in dead
        }  # fmt: skip
        assert len(rows) == len(wanted), (len(rows), len(wanted))
        assert dict(rows) == wanted
        before = paths, summary[cuts.CUT_TO]
    total = [row for path in before[0] for row in files[path]]
    assert {**dict(total), **{place: events[place] for place in dead}} == events
    # PyIceberg's own scan has the same rows.
    scanned = table.scan().to_arrow()
    assert scanned.num_rows == len(total) == len(events) - len(dead)
    checks = [zlib.crc32(b"".join(sorted(each))) for each in (
        [text.encode() for text in scanned["text"].to_pylist()],
        [event for place, event in events.items() if place not in dead],
    )]  # fmt: skip
    assert checks[0] == checks[1]
    return {"events": len(events), "dead": len(dead), "snapshots": len(by_id), "columns": len(table.schema().columns)}


def _rows(io: Any, path: str, files: dict[str, Any]) -> list[tuple[tuple[int, int], bytes]]:
    if path not in files:
        with io.new_input(path).open() as source:
            found = pq.read_table(source)
        where = found["sarit"].combine_chunks().flatten()
        places = zip(where[0].to_pylist(), where[1].to_pylist(), strict=True)
        files[path] = [(at, text.encode()) for at, text in zip(places, found["text"].to_pylist(), strict=True)]
    found_rows: list[tuple[tuple[int, int], bytes]] = files[path]
    return found_rows


def _is_before(place: tuple[int, int], cut: StreamCut) -> bool:
    """Every scale of the test replaces all segments, so the segments of a cut have one epoch."""
    segment = SegmentId.unpack(place[0])
    epoch = next(iter(cut.positions)).epoch
    return segment.epoch < epoch or (segment.epoch == epoch and place[1] < cut.positions[segment])


def serve() -> None:
    """Carry out commands, each in a child.  "start" does not wait for it; "wait" waits for all that were started."""
    started: list[int] = []
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["do"] == "wait":
            print(json.dumps({"statuses": [os.waitpid(pid, 0)[1] for pid in started]}), flush=True)
            started.clear()
            continue
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.close(read)
            code = 1
            try:
                found = asyncio.run(judge(asked) if asked["do"] == "judge" else commit(asked))
                if asked["do"] == "judge":
                    os.write(write, json.dumps(found).encode())
                code = 0
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
            os._exit(code)
        os.close(write)
        if asked["do"] == "start":  # nobody reads what it finds
            os.close(read)
            started.append(child)
            print("{}", flush=True)
            continue
        with os.fdopen(read) as pipe:
            found = pipe.read()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(json.dumps({"status": status, "found": json.loads(found) if found else None}), flush=True)


if __name__ == "__main__":
    serve()
