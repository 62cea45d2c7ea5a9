"""A small data directory with everything a node stores: streams in chunks and inlined, tables, attributes, a log tail.

`make` writes one and returns its contents; `read` opens a directory and returns what it serves.  Both use the real log,
index and storage in this process, with small sizes.
"""

from __future__ import annotations

import asyncio
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sarit.core.errors import SaritError
from sarit.env.real import real_env
from sarit.index.sqlite import SqliteIndexProvider
from sarit.log.local import LocalLogProvider
from sarit.process.ownership.claims import claim_directory, claim_long_term_storage
from sarit.process.settings import NodeConfig
from sarit.storage.open import open_storage
from sarit.store.container.offset_appends import append_in_order
from sarit.store.container.writer_session import WriterSession
from sarit.store.store import SegmentStore, StoreLimits
from sarit.store.tiering.checkpoint import FlushLimits
from sarit.wire.limits import NO_VERSION
from tests.unit.store.harness import WRITER, Replies, Writer, read_all

if TYPE_CHECKING:
    from pathlib import Path

    from sarit.env.ports import Env

LOG_FILE_BYTES = 32 << 10
_POLL_SECONDS = 0.01
STREAMS = tuple(f"scope/stream{number}/0.#epoch.0" for number in range(3))
TABLE = "scope/table"
# Copies of another installation's segment and table, which begin at these offsets.
MIRROR, MIRROR_START = "scope/mirror/7.#epoch.2", 1 << 40
MIRROR_TABLE, MIRROR_POSITION = "scope/mirror_kvtable/0.#epoch.0", 1 << 48
KEYS = [b"key%d" % number for number in range(6)]
LIMITS = StoreLimits(
    containers=1,
    disk_reserve_bytes=0,
    late_writes_seconds=1000,
    flush=FlushLimits(interval_seconds=1000, inline_below_bytes=200, trigger_bytes=1 << 30),
)

Served = dict[str, Any]


@dataclass
class Opened:
    """An open store on a directory, and what must be closed."""

    store: SegmentStore
    lock: Any
    tasks: list[Any] = field(default_factory=list)

    async def close(self) -> None:
        """End it as a crash does: nothing is flushed."""
        try:
            for hosted in self.store._hosted:
                for task in hosted.tasks:
                    task.cancel()
                await asyncio.gather(*hosted.tasks, return_exceptions=True)
            for task in [*self.store._background._tasks]:
                task.cancel()
            await asyncio.gather(*self.store._background._tasks, return_exceptions=True)
            for opened in self.store.opened():
                await opened.container.log.close()
                await opened.container.index.close()
            await self.store.parts.storage.close()
        finally:
            self.lock.close()


async def open_store(directory: Path, env: Env | None = None) -> Opened:
    """Open a directory as a node does.  Raises what a node's start raises."""
    env = env or real_env()
    config = NodeConfig(data_dir=str(directory), containers=1)
    claim = claim_directory(config, env)
    storage = None
    try:
        storage = await open_storage(f"file://{directory}/chunks", env)
        await claim_long_term_storage(config, env, storage, claim)
        logs = LocalLogProvider(env, f"{directory}/log", LOG_FILE_BYTES)
        store = SegmentStore(env, logs, SqliteIndexProvider(env, f"{directory}/index"), storage, LIMITS)
        await store.start()
    except BaseException:
        if storage is not None:
            await storage.close()
        claim.lock.close()
        raise
    return Opened(store, claim.lock)


async def make(directory: Path, *, stop: bool, event_bytes: int = 800) -> Served:
    """Fill a new directory, end as `kill -9` does or by a clean stop, and return what it holds.

    `event_bytes` is that of a large event: two of them make a chunk."""
    working = directory.with_name(directory.name + "-working")
    opened = await open_store(working)
    store = opened.store
    (served,) = store.opened()
    tables = store.tables(TABLE)
    for name in STREAMS:
        await served.container.create(name)
    await tables.create(TABLE, 0)
    await served.container.create(MIRROR, offset=MIRROR_START, mirror=True)
    await store.tables(MIRROR_TABLE).create(MIRROR_TABLE, 0, position=MIRROR_POSITION, mirror=True)
    for turn in range(3):
        for number, name in enumerate(STREAMS):
            writer = Writer(store, name)
            last = max(await writer.set_up(), 0)
            for event in range(last + 1, last + 3):
                writer.append(bytes((65 + turn, event)) * (40 if number == 1 else event_bytes // 2), event)
            await writer.wait_for_replies()
            writer.session.close()
        await tables.update(TABLE, [(key, b"%d of %s" % (turn, key), NO_VERSION) for key in KEYS[turn : turn + 4]])
        await _copy(store, turn, event_bytes)
        if turn < 2:
            await served.flusher.checkpoint()
    await served.container.truncate(STREAMS[2], event_bytes + 100)
    await served.container.seal(STREAMS[2])
    if stop:
        await served.flusher.checkpoint()
    contents = await _contents(store)
    assert not [value for value in contents.values() if isinstance(value, SaritError)], contents
    if not stop:
        await _log_files_at_rest(served.container.log)
        shutil.copytree(working, directory)
    await opened.close()
    if stop:
        shutil.copytree(working, directory)
    shutil.rmtree(working)
    return contents


async def _copy(store: SegmentStore, turn: int, event_bytes: int) -> None:
    """Append to the mirror, merge what was staged, and change its table."""
    container = store.container(MIRROR)
    staging = f"{MIRROR}#transaction.{turn:032x}"
    await container.create(staging, mirror=True)
    end = (await container.info(MIRROR)).length
    first, second = b"direct%d" % turn * 20, b"staged%d" % turn * (event_bytes // 7)
    assert await append_in_order(container, [(MIRROR, end, first), (staging, 0, second)]) == [
        end + len(first),
        len(second),
    ]
    _, durable = await container.begin_merge(MIRROR, staging, offset=end + len(first))
    await durable
    await store.tables(MIRROR_TABLE).update(MIRROR_TABLE, [(KEYS[turn], b"%d" % turn, NO_VERSION)])


async def _log_files_at_rest(log: Any) -> None:
    """Wait until the log is idle: a copy of the directory is of one moment then, and the log knows its end."""
    # The last frames are known to be durable then.  Before, rot in them is taken for what a power cut leaves.
    while log._writer.watermark < log._writer.durable:
        await asyncio.sleep(_POLL_SECONDS)
    # The thread works in order.  A file that was made is followed by one in reserve: hence two rounds.
    for _ in range(2):
        await log._file_manager._worker.run(lambda: None)


async def read(directory: Path, env: Env | None = None) -> Served:
    """What a directory serves: for each thing its value, or the error of its reader.  Raises what opening raises."""
    opened = await open_store(directory, env)
    try:
        return await _contents(opened.store)
    finally:
        with suppress(SaritError):
            await opened.close()


async def _contents(store: SegmentStore) -> Served:
    served: Served = {}

    async def note(what: str, call: Any) -> None:
        try:
            served[what] = await call
        except SaritError as error:
            served[what] = error

    async def writer_of(name: str) -> int:
        session = WriterSession(WRITER, Replies())
        await store.container(name).set_up_writer(name, session)
        session.close()
        return session.last

    for name in STREAMS:
        await note(f"bytes of {name}", read_all(store, name))
        await note(f"info of {name}", _info(store, name))
        await note(f"writer of {name}", writer_of(name))
    await note(f"bytes of {MIRROR}", read_all(store, MIRROR))
    await note(f"info of {MIRROR}", _info(store, MIRROR))
    await note("mirror scan", store.tables(MIRROR_TABLE).scan(MIRROR_TABLE, b"", None, 100))
    for key in KEYS:
        await note(f"entry {key!r}", store.tables(TABLE).get(TABLE, [key]))
    await note("scan", store.tables(TABLE).scan(TABLE, b"", None, 100))
    await note("absent segment", _absent(store))
    return served


async def _info(store: SegmentStore, name: str) -> tuple[int, int, bool]:
    info = await store.container(name).info(name)
    return info.length, info.start_offset, info.sealed


async def _absent(store: SegmentStore) -> bool:
    return await store.container("scope/absent/0.#epoch.0").metadata.find("scope/absent/0.#epoch.0") is None


__all__ = ["LIMITS", "Opened", "Served", "make", "open_store", "read"]
