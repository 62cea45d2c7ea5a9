"""How a starting node claims its long-term storage."""

import asyncio
import shutil

import pytest

from sarit.core.errors import Invalid, Unavailable
from sarit.env.real import real_env
from sarit.process.limits import OWNERSHIP_CHECK_SECONDS, RETAINED_OWNERSHIP_TOKENS
from sarit.process.ownership.claims import DirectoryClaim, claim_directory, claim_long_term_storage, own_token
from sarit.process.ownership.directory_content import LAST_START, OWNER_CHUNK_WRITTEN
from sarit.process.ownership.guarded_storage import GuardedStorage
from sarit.process.settings import NodeConfig
from sarit.storage.memory import MemoryChunks
from sarit.storage.open import open_storage

ON_A_LOOP = asyncio.Runner()  # one for all: storage lives on the loop that opened it


class Away(MemoryChunks):
    """Nothing answers."""

    async def read(self, name, offset, length):
        raise Unavailable("no route to host")

    def list_nothing(self, prefix):
        raise Unavailable("no route to host")


def start(directory, storage, url="s3://bucket/prefix") -> DirectoryClaim:
    config = NodeConfig(str(directory), storage_url=url)
    claimed = claim_directory(config, real_env())
    try:
        ON_A_LOOP.run(claim_long_term_storage(config, real_env(), storage, claimed))
    finally:
        claimed.lock.close()
    return claimed


@pytest.mark.parametrize("names", [["passwd"], ["lib", "log"], [".bashrc", "lock"], ["index", "index.html"]])
def test_directory_that_is_not_empty_and_not_a_nodes_is_refused_and_left_as_it_was(tmp_path, names):
    """The data of a node was put into /etc."""
    for name in names:
        (tmp_path / name).mkdir()
    with pytest.raises(Invalid, match=f"{tmp_path} is not empty and not Sarit's .it holds .*: name an empty directory"):
        claim_directory(NodeConfig(str(tmp_path), accept_data_loss=True), real_env())
    with pytest.raises(Invalid, match=f"{tmp_path} is not empty and not Sarit's .it holds .*: name an empty directory"):
        ON_A_LOOP.run(open_storage(f"file://{tmp_path}", real_env()))
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_new_volume_and_a_start_that_did_not_get_far_are_no_foreign_directories(tmp_path):
    (tmp_path / "lost+found").mkdir()
    for name in ("lock", "meta.new"):
        (tmp_path / name).touch()
    storage = MemoryChunks()
    first = start(tmp_path, storage)
    (tmp_path / "notes").touch()
    assert start(tmp_path, storage).node == first.node


def test_chunks_that_were_copied_without_hidden_files_are_no_foreign_directory(tmp_path):
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "owner.chunk").touch()
    (tmp_path / "c0000").mkdir()
    ON_A_LOOP.run(ON_A_LOOP.run(open_storage(f"file://{tmp_path}", real_env())).close())


def test_unavailable_storage_prevents_only_the_first_start(tmp_path, caplog):
    for _ in range(2):
        with pytest.raises(Unavailable):
            start(tmp_path, Away())
    assert not (tmp_path / OWNER_CHUNK_WRITTEN).exists()
    storage = MemoryChunks()
    first = start(tmp_path, storage)
    assert (tmp_path / OWNER_CHUNK_WRITTEN).exists()
    assert start(tmp_path, Away()).node == first.node
    assert "long-term storage is unavailable" in caplog.text
    start(tmp_path, storage)
    with pytest.raises(Invalid, match="is it mounted"):
        start(tmp_path, MemoryChunks())


class AwayAfterTheOwnerChunk(MemoryChunks):
    """The owner chunk can be written; then nothing can be listed."""

    def list(self, prefix):
        if self.chunks:
            raise Unavailable("no route to host")
        return super().list(prefix)


def test_directory_without_any_token_is_complete_after_a_start_in_an_outage(tmp_path):
    storage, failing = MemoryChunks(), AwayAfterTheOwnerChunk()
    failing.chunks = storage.chunks
    with pytest.raises(Unavailable):
        start(tmp_path, failing)
    assert (tmp_path / OWNER_CHUNK_WRITTEN).exists()
    start(tmp_path, Away())  # served from here on: all pieces must be there at the next start
    assert (tmp_path / LAST_START).exists()
    start(tmp_path, storage)
    start(tmp_path, storage)


def test_storage_url_may_change_before_first_use(tmp_path):
    with pytest.raises(Unavailable):
        start(tmp_path, Away(), "s3://misspelt")
    first = start(tmp_path, MemoryChunks(), "s3://bucket")
    with pytest.raises(Invalid, match="was made with --storage s3://bucket, not s3://other: start it with that again"):
        start(tmp_path, MemoryChunks(), "s3://other")
    (tmp_path / OWNER_CHUNK_WRITTEN).unlink()
    (tmp_path / "log").mkdir()
    with pytest.raises(Invalid, match="was made with"):
        start(tmp_path, MemoryChunks(), "s3://other")
    assert len(first.node) == 32


def test_another_directory_is_refused_every_time(tmp_path):
    storage = MemoryChunks()
    start(tmp_path / "one", storage)
    for _ in range(2):
        with pytest.raises(Invalid, match="belongs to the node"):
            start(tmp_path / "two", storage)


class Dies(MemoryChunks):
    """The process ends while it writes its ownership token: `before` the token is stored, or after."""

    def __init__(self, chunks, *, before):
        super().__init__()
        self.chunks = chunks.chunks
        self.before = before

    async def write(self, name, parts, limiter=None, observe=None):
        if "start-" not in name:
            return await super().write(name, parts, limiter, observe)
        if not self.before:
            await super().write(name, parts, limiter, observe)
        raise KeyboardInterrupt


@pytest.fixture(params=["memory", "directory", "obstore"])
def storage(request, tmp_path):
    if request.param == "memory":
        yield MemoryChunks()
        return
    url = "memory://" if request.param == "obstore" else f"file://{tmp_path}/shared"
    opened = ON_A_LOOP.run(open_storage(url, real_env()))
    yield opened
    ON_A_LOOP.run(opened.close())


def copy(directory, to):
    shutil.copytree(directory, to)
    return to


def test_copy_is_refused_after_original_restarted(tmp_path, storage):
    original = tmp_path / "original"
    start(original, storage)
    start(original, storage)
    other = copy(original, tmp_path / "copy")
    start(original, storage)
    held = names(storage)
    for _ in range(2):
        with pytest.raises(Invalid, match="another copy of this data directory was started"):
            start(other, storage)
    assert names(storage) == held
    start(original, storage)


def test_original_is_refused_after_copy_started(tmp_path, storage):
    start(tmp_path / "original", storage)
    start(copy(tmp_path / "original", tmp_path / "copy"), storage)
    with pytest.raises(Invalid, match="another copy"):
        start(tmp_path / "original", storage)
    start(tmp_path / "copy", storage)


class Clock:
    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now


def running(directory, storage):
    """The storage of a node that has started, and what it did when it met a copy."""
    start(directory, storage)
    met, clock = [], Clock()
    guarded = GuardedStorage(storage, clock)
    guarded._own, guarded._on_copy = own_token(real_env().files, str(directory)), lambda: met.append(True)
    return guarded, clock, met


def test_running_original_ends_before_it_deletes_anything_beside_its_copy(tmp_path, storage):
    """The copy was accepted, and both deleted what the other had."""
    original = tmp_path / "original"
    guarded, clock, met = running(original, storage)
    for name in ("c0000/e0000000001/000000000001-s1-0", "c0000/e0000000001/000000000002-s1-0"):
        ON_A_LOOP.run(guarded.write(name, [b"data"]))
    ON_A_LOOP.run(guarded.delete("c0000/e0000000001/000000000001-s1-0"))
    start(copy(original, tmp_path / "copy"), storage)
    held = names(storage)
    clock.now += OWNERSHIP_CHECK_SECONDS
    for _ in range(2):
        with pytest.raises(Unavailable, match="another copy of this data directory was started .* beside this one"):
            ON_A_LOOP.run(guarded.delete("c0000/e0000000001/000000000002-s1-0"))
    assert names(storage) == held
    assert met == [True]
    with pytest.raises(Invalid, match="beside this one"):
        guarded.raise_failure()


def test_running_original_asks_once_a_minute_and_deletes_nothing_while_storage_is_away(tmp_path):
    storage = MemoryChunks()
    guarded, clock, met = running(tmp_path / "data", storage)
    lists = []
    listed = storage.list
    storage.list = lambda prefix: lists.append(prefix) or listed(prefix)
    for _ in range(3):
        ON_A_LOOP.run(guarded.delete("c0000/x"))
    assert len(lists) == 1
    clock.now += OWNERSHIP_CHECK_SECONDS
    storage.list = Away().list_nothing
    with pytest.raises(Unavailable, match="nobody can say"):
        ON_A_LOOP.run(guarded.delete("c0000/x"))
    storage.list = listed
    ON_A_LOOP.run(guarded.delete("c0000/x"))
    for name in [name for name in names(storage) if "start-" in name]:  # an operator may
        ON_A_LOOP.run(storage.delete(name))
    clock.now += OWNERSHIP_CHECK_SECONDS
    ON_A_LOOP.run(guarded.delete("c0000/x"))
    assert not met


def test_running_original_watches_without_deleting(tmp_path, monkeypatch):
    monkeypatch.setattr("sarit.process.ownership.guarded_storage.OWNERSHIP_CHECK_SECONDS", 0.001)
    storage = MemoryChunks()
    original = tmp_path / "original"
    guarded, clock, _ = running(original, storage)
    start(copy(original, tmp_path / "copy"), storage)

    async def go():
        met = asyncio.Event()
        clock.now += 1
        guarded.guard(own_token(real_env().files, str(original)), met.set)
        await met.wait()
        await guarded.close()

    ON_A_LOOP.run(go())


def test_copy_of_directory_without_tokens_is_refused(tmp_path, storage):
    start(tmp_path / "original", storage)
    (tmp_path / "original" / LAST_START).unlink()
    for name in [name for name in names(storage) if "start-" in name]:
        ON_A_LOOP.run(storage.delete(name))
    other = copy(tmp_path / "original", tmp_path / "copy")
    start(tmp_path / "original", storage)
    with pytest.raises(Invalid, match="delete node/start-"):
        start(other, storage)


@pytest.mark.parametrize("before", [True, False])
def test_crash_between_token_file_and_token_chunk_allows_restart(tmp_path, before):
    storage = MemoryChunks()
    original = tmp_path / "original"
    start(original, storage)
    other = copy(original, tmp_path / "copy")
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            start(original, Dies(storage, before=before))
    between = copy(original, tmp_path / "between")
    start(original, storage)
    start(original, storage)
    for directory in (other, between):
        with pytest.raises(Invalid, match="another copy"):
            start(directory, storage)


def test_late_ownership_token_does_not_lock_out_the_owner(tmp_path):
    storage = MemoryChunks()
    start(tmp_path, storage)
    late = Lost(storage)
    start(tmp_path, late)  # its token is in flight, and reported as failed
    start(tmp_path, late)
    (first, _), (second, _) = late.lost
    storage.chunks[first] = late.lost[0][1]
    start(tmp_path, storage)
    storage.chunks[second] = late.lost[1][1]
    start(tmp_path, storage)


class Lost(Dies):
    """The write of an ownership token is delayed and reported as failed."""

    def __init__(self, chunks):
        super().__init__(chunks, before=False)
        self.lost = []

    async def write(self, name, parts, limiter=None, observe=None):
        self.lost.append((name, b"".join(parts)))
        raise Unavailable("no answer")


def test_stale_listing_admits_owner_and_refuses_copy(tmp_path):
    storage = MemoryChunks()
    original = tmp_path / "original"
    start(original, storage)
    other = copy(original, tmp_path / "copy")
    storage.faults.stale = 3
    for _ in range(5):
        start(original, storage)
    with pytest.raises(Invalid, match="another copy"):
        start(other, storage)
    storage.faults.stale = 0
    start(original, storage)
    start(original, storage)
    storage.faults.stale = 3  # its content is older than all that the directory holds
    start(original, storage)
    newest = copy(original, tmp_path / "newest")
    storage.faults.stale = 0
    start(original, storage)
    storage.faults.stale = 1
    with pytest.raises(Invalid, match="another copy of this data directory starts"):
        start(newest, storage)


def test_old_ownership_tokens_are_deleted(tmp_path, storage):
    for _ in range(RETAINED_OWNERSHIP_TOKENS + 3):
        start(tmp_path / "data", storage)
    assert len([name for name in names(storage) if "start-" in name]) == RETAINED_OWNERSHIP_TOKENS
    start(tmp_path / "data", storage)


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"version": 1, "marks": [], "check": ""}', None])
def test_damaged_token_file_is_reported_with_remedy(tmp_path, damage):
    storage = MemoryChunks()
    start(tmp_path, storage)
    path = tmp_path / LAST_START
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"[[1", b"[[2") if damage is None else damage)
    with pytest.raises(Invalid, match="is damaged .* delete this file, and the chunks node/start-"):
        start(tmp_path, storage)
    path.unlink()
    with pytest.raises(Invalid, match="delete node/start-"):
        start(tmp_path, storage)
    del storage.chunks["node/start-000000000001"]
    start(tmp_path, storage)
    path.write_bytes(b'{"version": 2}')
    with pytest.raises(Invalid, match="of format 2"):
        start(tmp_path, storage)


def test_damaged_ownership_token_is_reported(tmp_path):
    storage = MemoryChunks()
    start(tmp_path, storage)
    storage.chunks["node/start-000000000001"] = b"short"
    with pytest.raises(Invalid, match="delete node/start-000000000001"):
        start(tmp_path, storage)


def test_ownership_token_with_a_flipped_bit_is_damaged_and_not_of_another_copy(tmp_path):
    storage = MemoryChunks()
    start(tmp_path, storage)
    content = bytearray(storage.chunks["node/start-000000000001"])
    content[11] ^= 64
    storage.chunks["node/start-000000000001"] = bytes(content)
    with pytest.raises(Invalid, match="damaged ownership token .*: delete node/start-000000000001"):
        start(tmp_path, storage)


def test_torn_write_of_token_file_does_no_harm(tmp_path):
    storage = MemoryChunks()
    start(tmp_path, storage)
    (tmp_path / f"{LAST_START}.new").write_bytes(b"{")
    start(tmp_path, storage)


def test_damaged_meta_is_reported(tmp_path):
    start(tmp_path, MemoryChunks())
    for damage in (b"", b"{", b"7"):
        (tmp_path / "meta").write_bytes(damage)
        with pytest.raises(Invalid, match="meta is damaged"):
            start(tmp_path, MemoryChunks())


def names(storage):
    async def listed():
        return [name async for name, _ in storage.list("node")]

    return ON_A_LOOP.run(listed())


def test_chunks_in_memory_are_for_tests():
    for url in ("memory://", "MEMORY:"):
        with pytest.raises(Invalid, match="is for tests"):
            NodeConfig("data", storage_url=url).validated()
