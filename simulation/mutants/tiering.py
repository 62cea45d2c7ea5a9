"""Mutants of chunks: writing, garbage collection, orphan sweeps, reading."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from sarit.core import names
from sarit.core.errors import Unavailable
from sarit.env.whole_files import read_whole, replace_whole
from sarit.process.ownership import claims as ownership
from sarit.process.ownership import tokens as ownership_tokens
from sarit.process.ownership.directory_content import LAST_START
from sarit.storage import starts
from sarit.storage.packs import PieceChecksums
from sarit.store.container import reads, state
from sarit.store.container.damage_report import note_damage
from sarit.store.container.extents import ExtentCache
from sarit.store.container.metadata_cache import MetadataCache
from sarit.store.container.reads import ChunkReader
from sarit.store.tiering import compaction, references, scrub
from sarit.store.tiering.chunk_gc import ChunkGC
from sarit.store.tiering.compaction import Compactor
from sarit.store.tiering.compaction_sweep import CompactionSweep
from sarit.store.tiering.flusher import Flusher
from sarit.store.tiering.orphan_sweep import OrphanSweep
from simulation.mutants.patching import patched
from simulation.mutants.registry import mutant

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


@mutant("stable bytes")
@contextmanager
def chunk_cache_key_collision() -> Iterator[None]:
    """The chunk cache confuses chunks of the same length."""
    right = ChunkReader._start

    def wrong(self: Any, chunk: str, number: int, checksums: Any, reader: Any) -> Any:
        for (other, _, block), task in self._blocks.items():
            same = task.done() and not task.cancelled() and not task.exception()
            if block == number and other != chunk and same and len(task.result()) == checksums.length:
                return task
        return right(self, chunk, number, checksums, reader)

    with patched(ChunkReader, ChunkReader._start, wrong):
        yield


@mutant("long-term storage is a prefix")
@contextmanager
def refused_chunk_counted_as_written() -> Iterator[None]:
    """A chunk write that long-term storage refused counts as done."""
    right = Flusher._write_chunk

    async def wrong(self: Any, runs: Any, garbage: set[str], turns: Any) -> None:
        storage = self._container.storage

        class Believing:
            async def write(self, *arguments: Any) -> None:
                try:
                    await storage.write(*arguments)
                except Unavailable:
                    return

            def __getattr__(self, name: str) -> Any:
                return getattr(storage, name)

        self._container.storage = Believing()
        try:
            await right(self, runs, garbage, turns)
        finally:
            self._container.storage = storage

    with patched(Flusher, Flusher._write_chunk, wrong):
        yield


@mutant("long-term storage is a prefix")
@contextmanager
def sweep_deletes_committed_chunks() -> Iterator[None]:
    """The sweep after recovery deletes the last committed chunk."""
    right = OrphanSweep._resolved

    async def wrong(self: Any, epoch: int) -> int:
        return await right(self, epoch) - 1

    with patched(OrphanSweep, OrphanSweep._resolved, wrong):
        yield


@mutant("long-term storage is a prefix")
@contextmanager
def orphans_not_swept() -> Iterator[None]:
    """Chunks that were written and never committed are never deleted."""

    async def wrong(self: Any, *, record_swept: bool = True) -> int:
        return 0

    with patched(OrphanSweep, OrphanSweep.run, wrong):
        yield


@mutant("long-term storage is a prefix", found_by="tests/unit/store/tiering/test_orphan_sweep.py")
@contextmanager
def late_chunks_not_swept() -> Iterator[None]:
    """An epoch is swept only once: writes that arrive later are never deleted."""
    right = OrphanSweep.run

    async def wrong(self: Any, *, record_swept: bool = True) -> int:
        return 0 if record_swept else await right(self, record_swept=True)

    with patched(OrphanSweep, OrphanSweep.run, wrong):
        yield


@mutant("stable bytes", found_by="tests/unit/store/tiering/test_slices.py")
@contextmanager
def extents_read_before_memory_follows() -> Iterator[None]:
    """Extents are loaded for a merge once a commit has ended, before memory follows it: some come twice."""
    right = MetadataCache.committed

    @asynccontextmanager
    async def wrong(self: Any, batch: Any) -> AsyncIterator[None]:
        async with right(self, batch):
            self.commits.end()
            try:
                yield
            finally:
                self.commits.begin()

    with patched(MetadataCache, MetadataCache.committed, wrong):
        yield


@mutant("long-term storage is a prefix")
@contextmanager
def garbage_not_deleted() -> Iterator[None]:
    """Chunks that a commit dropped are not deleted."""
    right = ChunkGC.collect

    async def wrong(self: Any, **how: Any) -> None:
        storage = self._container.storage

        class Keeping:
            async def delete(self, name: str) -> None:
                return

        self._container.storage = Keeping()
        try:
            await right(self, **how)
        finally:
            self._container.storage = storage

    with patched(ChunkGC, ChunkGC.collect, wrong):
        yield


@mutant("long-term storage is a prefix", found_by="tests/unit/store/tiering/test_truncation_during_flush.py")
@contextmanager
def truncated_block_in_no_extent() -> Iterator[None]:
    """A block that is truncated while its chunk is written is missing from the extents (found by the simulation)."""
    right = Flusher._assign_chunk

    def wrong(self: Any, run: Any, name: str, checksums: Any) -> None:
        before = [(snapshot.block, snapshot.block.chunk) for snapshot in run if snapshot.block.released]
        right(self, run, name, checksums)
        for block, chunk in before:
            block.chunk = chunk

    with patched(Flusher, Flusher._assign_chunk, wrong):
        yield


@mutant("long-term storage is a prefix")
@contextmanager
def pack_deleted_with_its_first_piece() -> Iterator[None]:
    """A pack is garbage as soon as one of its pieces is."""

    async def wrong(index: Any, pack: str, dropped: Any) -> bool:
        return False

    with patched(references, references._has_other_pieces, wrong):
        yield


@mutant("long-term storage is a prefix", found_by="tests/unit/store/tiering/test_packs.py")
@contextmanager
def pack_kept_without_pieces() -> Iterator[None]:
    """A pack is not deleted when its last piece is dropped."""

    async def wrong(index: Any, pack: str, dropped: Any) -> bool:
        return True

    with patched(references, references._has_other_pieces, wrong):
        yield


@mutant("stable bytes")
@contextmanager
def piece_of_a_pack_is_its_neighbour() -> Iterator[None]:
    """Each piece of a pack is recorded where the piece before it begins, and with its checksums of the other."""
    right = PieceChecksums.finish

    def wrong(self: Any) -> Any:
        pieces = right(self)
        shifted = [pieces[0], *pieces[:-1]]
        lengths = [one.length for one in pieces]
        return [
            before if before.length == length else one
            for one, before, length in zip(pieces, shifted, lengths, strict=True)
        ]

    with patched(PieceChecksums, PieceChecksums.finish, wrong):
        yield


@mutant("stable bytes")
@contextmanager
def pieces_of_a_pack_share_cached_blocks() -> Iterator[None]:
    """The cache of chunk blocks does not distinguish the pieces of a pack."""
    right = ChunkReader._start

    def wrong(self: Any, chunk: str, number: int, checksums: Any, reader: Any) -> Any:
        for (other, begin, block), task in self._blocks.items():
            done = task.done() and not task.cancelled() and not task.exception()
            confused = done and (other, block) == (chunk, number) and begin != checksums.begin
            if confused and len(task.result()) >= checksums.length:
                return task
        return right(self, chunk, number, checksums, reader)

    with patched(ChunkReader, ChunkReader._start, wrong):
        yield


@mutant("long-term storage is its node's")
@contextmanager
def ownership_token_published_before_recorded() -> Iterator[None]:
    """A start publishes its ownership token in long-term storage before the data directory has it."""

    async def wrong(files: Any, directory: str, storage: Any, token: str, *, accept_loss: bool) -> None:
        path = f"{directory}/{LAST_START}"
        known = ownership_tokens.decode_tokens(read_whole(files, path)) if files.exists(path) else []
        held = ownership_tokens.next_tokens(known, await ownership_tokens.newest_token(storage), token)
        await ownership_tokens.write_token(storage, held[-1])
        replace_whole(files, path, ownership_tokens.encode_tokens(held))

    with patched(ownership, ownership._claim_start, wrong):
        yield


@mutant(
    "damage is never served",
    found_by="tests/unit/simulation/test_damage.py::test_damage_is_refused_and_all_else_is_served[1]",
)
@contextmanager
def checksum_not_verified_on_read() -> Iterator[None]:
    """A read from long-term storage does not compare the bytes with their checksums."""
    right = ChunkReader._load

    async def wrong(self: Any, chunk: str, begin: int, length: int, checksums: Any, reader: Any) -> Any:
        return await self._storage.read(chunk, begin, length)

    with patched(ChunkReader, right, wrong):
        yield


@mutant(
    "damage is never served",
    found_by="tests/unit/simulation/test_damage.py::test_damage_is_refused_and_all_else_is_served[3]",
)
@contextmanager
def compaction_launders_damage() -> Iterator[None]:
    """Compaction does not verify what it reads: the new chunk has checksums that match the damage."""
    right = Compactor._read_chunk

    async def wrong(self: Any, segment: Any, extent: Any, packs: Any) -> Any:
        return await self._container.storage.read(extent.chunk, extent.object_offset, extent.length)

    with patched(Compactor, right, wrong):
        yield


@mutant(
    "small extents are joined",
    found_by="tests/unit/store/tiering/test_compaction.py::test_segments_that_were_evicted_are_compacted",
)
@contextmanager
def compaction_forgets_evicted_segments() -> Iterator[None]:
    """Compaction knows only what it counted, and forgets a segment that is not in memory (found by review)."""

    async def present(self: Any, segment_ids: Any) -> Any:
        return [self._state.segments[number] for number in segment_ids if number in self._state.segments]

    async def nothing(self: Any) -> None:
        return

    with (
        patched(MetadataCache, MetadataCache.load, present),
        patched(CompactionSweep, CompactionSweep.advance, nothing),
    ):
        yield


@mutant(
    "small extents are joined",
    found_by="tests/unit/store/tiering/test_compaction.py"
    "::test_small_extents_stay_bounded_while_many_segments_trickle[short of memory]",
)
@contextmanager
def compaction_gives_way_for_ever() -> Iterator[None]:
    """Compaction joins nothing while memory is short (found by review)."""
    right = Compactor._ready

    def wrong(self: Any, count: int) -> Any:
        return [] if self._container.budget.over_soft_limit else right(self, count)

    with patched(Compactor, Compactor._ready, wrong):
        yield


@mutant("located offsets are event boundaries")
@contextmanager
def pieces_of_a_large_event_are_boundaries() -> Iterator[None]:
    """A merge of a transient segment retains where each of its appends began."""

    def wrong(name: str) -> bool:
        return False

    with patched(state, names.is_transient, wrong):
        yield


@mutant("located offsets are event boundaries", found_by="tests/unit/store/tiering/test_event_boundaries.py")
@contextmanager
def joined_extents_begin_with_appends() -> Iterator[None]:
    """Compaction takes the beginning of each extent for that of an append."""
    right = starts.join

    def wrong(runs: Any, length: int, step: int) -> bytes:
        return right([(offset, packed or starts.FIRST) for offset, packed in runs], length, step)

    with patched(starts, starts.join, wrong):
        yield


@mutant("bounds")
@contextmanager
def extents_cached_without_bound() -> Iterator[None]:
    """Extents that were read stay in memory (found by review)."""
    right = ExtentCache.put

    def wrong(self: Any, segment: int, run: Any) -> None:
        limit, self.limit = self.limit, 1 << 40
        try:
            right(self, segment, run)
        finally:
            self.limit = limit

    with patched(ExtentCache, ExtentCache.put, wrong):
        yield


@mutant("bounds")
@contextmanager
def segments_evicted_by_number_alone() -> Iterator[None]:
    """Segments are evicted when there are too many of them, whatever they take (found by review)."""
    right = MetadataCache._evict_idle

    def wrong(self: Any, excess: int, most_bytes: int, *, cached: bool) -> None:
        right(self, excess, 1 << 40, cached=cached)

    with patched(MetadataCache, MetadataCache._evict_idle, wrong):
        yield


@mutant(
    "damage is reported",
    found_by="tests/unit/store/container/test_damaged_chunks.py::test_damage_is_noted_by_the_owner_alone",
)
@contextmanager
def damage_noted_by_any_owner() -> Iterator[None]:
    """A missing chunk is reported as damage without a proof that no other owner has deleted it (found by a seed)."""

    async def wrong(container: Any, segment: str, offset: int, error: Any) -> Any:
        return container.damage.found(segment, offset, error)

    with (
        patched(reads, note_damage, wrong),
        patched(compaction, note_damage, wrong),
        patched(scrub, note_damage, wrong),
    ):
        yield
