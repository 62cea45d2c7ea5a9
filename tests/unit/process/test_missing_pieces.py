"""A data directory of which pieces are missing: the node serves everything right, or refuses and names them.

Every subset of the pieces is removed.  A refusal changes nothing: with the pieces put back the node starts.  With
--accept-data-loss it starts, says what it accepted, and then starts normally; the old log is refused afterwards.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import shutil

import pytest

from sarit.core.errors import Corrupt, Invalid
from sarit.env.real import real_env
from sarit.index.sqlite import SqliteIndexProvider
from sarit.log.local import LocalLogProvider
from sarit.process.ownership.claims import claim_directory, claim_long_term_storage
from sarit.process.settings import NodeConfig
from sarit.storage.open import open_storage
from sarit.store.store import SegmentStore, StartPolicy, StoreLimits, container_of
from sarit.store.tiering.checkpoint import FlushLimits
from tests.unit.store.harness import Writer, read_all

PIECES = ("log", "log/0", "index", "index/container-0.db", "chunks", "meta", "last-start")
LIMITS = StoreLimits(containers=2, flush=FlushLimits(inline_below_bytes=100), disk_reserve_bytes=0)
LOG_FILE_BYTES = 64 * 1024
NAMES = [
    next(name for name in (f"a/b{at}/0.#epoch.0" for at in range(99)) if container_of(name, 2) == n) for n in (0, 1)
]
FLUSHED, IN_LOG = b"flushed" * 100, b"in the log alone"


class Directory:
    """Starts and stops a store on a data directory, as a node does."""

    def __init__(self, path) -> None:
        self.path = path

    async def start(self, **options) -> SegmentStore:
        config = NodeConfig(str(self.path), containers=2, limits=LIMITS, **options)
        env = real_env()
        claim = claim_directory(config, env)
        try:
            storage = await open_storage(f"file://{self.path}/chunks", env)
            await claim_long_term_storage(config, env, storage, claim)
            store = SegmentStore(
                env, LocalLogProvider(env, f"{self.path}/log", LOG_FILE_BYTES),
                SqliteIndexProvider(env, f"{self.path}/index", 1 << 20), storage, LIMITS, str(self.path),
                StartPolicy(config.accept_data_loss, config.allow_damaged, claim.damaged),
            )  # fmt: skip
            try:
                await store.start()
            except BaseException:
                store.skip_flush()
                await store.stop()
                raise
            claim.mark_complete(config, env)
        finally:
            claim.lock.close()
        return store

    async def fill(self) -> None:
        """In each container bytes that a chunk holds, and bytes that the log holds alone."""
        store = await self.start()
        for name in NAMES:
            await store.container(name).create(name)
        await self.append(store, FLUSHED, 1)
        await store.stop()
        store = await self.start()
        for task in [task for hosted in store._hosted for task in hosted.tasks]:
            task.cancel()  # no checkpoint from here on
        await self.append(store, IN_LOG, 2)
        store.skip_flush()
        await store.stop()

    @staticmethod
    async def append(store: SegmentStore, data: bytes, number: int) -> None:
        for name in NAMES:
            writer = Writer(store, name)
            await writer.set_up()
            writer.append(data, number)
            assert not (await writer.wait_for_replies()).errors

    async def content(self, **options) -> list[bytes]:
        store = await self.start(**options)
        try:
            return [await read_all(store, name) for name in NAMES]
        finally:
            store.skip_flush()
            await store.stop()


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    path = tmp_path_factory.mktemp("filled") / "data"
    asyncio.run(Directory(path).fill())
    return path


@pytest.fixture
def directory(filled, tmp_path):
    shutil.copytree(filled, tmp_path / "data")
    return Directory(tmp_path / "data")


def remove(directory: Directory, pieces, kept) -> None:
    """Move pieces to `kept`."""
    for piece in pieces:
        path = directory.path / piece
        if path.exists():
            target = kept / piece
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)


def put_back(directory: Directory, kept) -> None:
    shutil.copytree(kept, directory.path, dirs_exist_ok=True)


def listing(directory: Directory) -> list[str]:
    paths = (path.relative_to(directory.path) for path in directory.path.rglob("*"))
    return sorted(str(path) for path in paths if not str(path).endswith(("-wal", "-shm")))


# A piece goes with the folder that it is in.
SUBSETS = [
    subset
    for size in range(1, len(PIECES) + 1)
    for subset in itertools.combinations(PIECES, size)
    if not any(piece.partition("/")[0] in subset for piece in subset if "/" in piece)
]
WHOLE = [FLUSHED + IN_LOG] * 2


@pytest.mark.parametrize("subset", SUBSETS, ids="+".join)
def test_missing_pieces_are_named_and_may_be_put_back(subset, directory, tmp_path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    remove(directory, subset, kept)
    before = listing(directory)
    if set(subset) >= {"log", "index", "chunks", "meta", "last-start"}:
        assert not [name for name in before if name not in ("lock", "storage-marked")]
    with pytest.raises(Invalid) as refused:
        asyncio.run(directory.content())
    said = str(refused.value)
    assert listing(directory) == before, "a refusal changes nothing"
    assert "accept-data-loss" in said
    if "meta" in subset:
        assert "(meta)" in said
    else:
        for piece in subset:
            within = piece.split("/")[0]
            assert f"({piece})" in said or (within != piece and f"({within})" in said), piece
    put_back(directory, kept)
    assert asyncio.run(directory.content()) == WHOLE


def test_new_directory_is_not_refused(tmp_path) -> None:
    directory = Directory(tmp_path / "new")

    async def main() -> None:
        store = await directory.start()
        await store.stop()

    asyncio.run(main())
    assert '"complete": true' in (directory.path / "meta").read_text()


@pytest.mark.parametrize("subset", SUBSETS, ids="+".join)
def test_accepted_loss_is_named_and_the_next_start_is_normal(subset, directory, tmp_path, caplog) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    remove(directory, subset, kept)

    async def main() -> None:
        caplog.set_level(logging.WARNING)
        store = await directory.start(accept_data_loss=True)
        assert any("data loss accepted" in record.message for record in caplog.records)
        assert all(health.state.value == "serving" for health in store.health())
        caplog.clear()
        for name in NAMES:
            if await store.container(name).metadata.find(name) is None:
                await store.container(name).create(name)
            writer = Writer(store, name, b"n" * 16)
            await writer.set_up()
            writer.append(b"new", 1)
            assert not (await writer.wait_for_replies()).errors
        store.skip_flush()
        await store.stop()
        store = await directory.start()
        for at, name in enumerate(NAMES):
            segment = await store.reads(name).find(name)
            if "chunks" in subset:
                assert segment.length >= 3
                continue
            data = await read_all(store, name)
            assert data in (WHOLE[at] + b"new", FLUSHED + b"new", b"new"), data
            lost_log = "log" in subset or (at == 0 and "log/0" in subset)
            lost_index = "index" in subset or (at == 0 and "index/container-0.db" in subset)
            if not lost_log and not lost_index:
                assert data == WHOLE[at] + b"new"
        store.skip_flush()
        await store.stop()
        assert not [record.message for record in caplog.records if "loss" in record.message]

    asyncio.run(main())


def test_epochs_go_on_above_those_of_chunks_when_log_and_index_are_lost(directory, tmp_path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    remove(directory, ["log", "index"], kept)
    (newest, *_) = sorted((directory.path / "chunks" / "c0000").iterdir(), reverse=True)

    async def main() -> None:
        store = await directory.start(accept_data_loss=True)
        assert store.serving()[0].log.epoch > int(newest.name.removeprefix("e"))
        store.skip_flush()
        await store.stop()

    asyncio.run(main())


def test_old_log_is_refused_after_its_loss_was_accepted(directory, tmp_path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    remove(directory, ["log"], kept)
    assert asyncio.run(directory.content(accept_data_loss=True)) == [FLUSHED] * 2
    shutil.rmtree(directory.path / "log")
    put_back(directory, kept)
    with pytest.raises(Corrupt, match="container 0 failed: .*is a log of another history.*--accept-data-loss"):
        asyncio.run(directory.content())


@pytest.mark.parametrize(
    ("source", "target", "match"),
    [
        ("log/1", "log/0", "says it is file . of container 1"),
        ("index/container-1.db", "index/container-0.db", "a log of another history"),
    ],
)
def test_piece_of_another_container_is_refused(source, target, match, directory) -> None:
    if (directory.path / source).is_dir():
        shutil.rmtree(directory.path / target)
        shutil.copytree(directory.path / source, directory.path / target)
    else:
        shutil.copy(directory.path / source, directory.path / target)
    with pytest.raises(Corrupt, match=match):
        asyncio.run(directory.content())


def test_log_of_another_node_is_refused(directory, tmp_path) -> None:
    other = Directory(tmp_path / "other")
    asyncio.run(other.fill())
    shutil.rmtree(directory.path / "log")
    shutil.copytree(other.path / "log", directory.path / "log")
    with pytest.raises(Corrupt, match="container 0 failed: .*another history.*container 1 failed"):
        asyncio.run(directory.content())


def test_older_copy_of_the_log_is_refused(directory, tmp_path) -> None:
    shutil.copytree(directory.path / "log", tmp_path / "older")
    assert asyncio.run(directory.content()) == WHOLE
    shutil.rmtree(directory.path / "log")
    shutil.copytree(tmp_path / "older", directory.path / "log")
    with pytest.raises(Corrupt, match="an older copy of the durable log"):
        asyncio.run(directory.content())


@pytest.mark.parametrize("piece", ["log/0", "index/container-0.db"])
def test_other_containers_are_served_when_damage_is_allowed(piece, directory, tmp_path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    remove(directory, [piece], kept)

    async def main() -> None:
        store = await directory.start(allow_damaged=True)
        assert await read_all(store, NAMES[1]) == WHOLE[1]
        with pytest.raises(Corrupt, match=f"container 0 failed: .*is missing .{piece}"):
            store.container(NAMES[0])
        assert [health.state.value for health in store.health()] == ["failed", "serving"]
        store.skip_flush()
        await store.stop()

    asyncio.run(main())
    put_back(directory, kept)
    assert asyncio.run(directory.content()) == WHOLE


# Where SQLite keeps its marks, the schema's format (it answered "unsupported file format"), our version, and our mark.
@pytest.mark.parametrize("at", [0, 16, 40, 44, 56, 60, 68])
def test_other_containers_are_served_when_the_header_of_an_index_is_damaged(at, directory) -> None:
    path = directory.path / "index" / "container-0.db"
    data = bytearray(path.read_bytes())
    data[at : at + 16] = bytes(byte ^ 0xFF for byte in data[at : at + 16])
    path.write_bytes(data)

    async def main() -> None:
        store = await directory.start(allow_damaged=True)
        assert await read_all(store, NAMES[1]) == WHOLE[1]
        with pytest.raises(Corrupt, match="container 0 failed: .*container-0.db"):
            store.container(NAMES[0])
        assert [health.state.value for health in store.health()] == ["failed", "serving"]
        store.skip_flush()
        await store.stop()

    with pytest.raises((Corrupt, Invalid), match="container-0.db"):
        asyncio.run(directory.start())
    asyncio.run(main())
    assert path.read_bytes() == data, "the damaged index was changed"
