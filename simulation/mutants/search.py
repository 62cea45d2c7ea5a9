"""Mutants of the indexer of a stream: cuts, files, takeovers, shards, old blobs."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from sarit.search import index_plan
from sarit.search.indexer import Indexer
from simulation.mutants.patching import patched
from simulation.mutants.registry import mutant

if TYPE_CHECKING:
    from collections.abc import Iterator

_INVARIANT: Final = "each event once in the index"
_READABLE: Final = "what an index names can be read"


@mutant(_INVARIANT)
@contextmanager
def cut_saved_before_its_files() -> Iterator[None]:
    """A commit of an index saves the new cut with the files of the commit before."""
    right = index_plan.committed

    def wrong(state: Any, added: Any, shard: Any, files: Any, closed_bytes: Any, now_ms: Any) -> Any:
        made = right(state, added, shard, files, closed_bytes, now_ms)
        if state.growing is None or made.growing is None or not state.growing.files:
            return made
        return replace(made, growing=replace(made.growing, files=state.growing.files))

    with patched(index_plan, right, wrong):
        yield


@mutant(_INVARIANT)
@contextmanager
def index_resumed_without_its_files() -> Iterator[None]:
    """Who takes an index over begins an empty shard at the cut, in place of the growing one."""

    async def wrong(self: Any, shard: Any) -> Any:
        return await self._open(())

    with patched(Indexer, Indexer._resume, wrong):
        yield


@mutant(_INVARIANT)
@contextmanager
def stream_indexed_again_from_its_head() -> Iterator[None]:
    """Who takes an index over reads the stream from its head, with the files that are there."""
    right = Indexer._take_over

    async def wrong(self: Any) -> Any:
        await right(self)
        return await self._source.edge("head")

    with patched(Indexer, right, wrong):
        yield


@mutant(_INVARIANT)
@contextmanager
def closed_shard_forgotten() -> Iterator[None]:
    """The list of closed shards is written without those that another worker has closed."""
    right = Indexer._store_shards

    async def wrong(self: Any, shards: Any, growing: Any) -> None:
        await right(self, shards[-1:], growing)

    with patched(Indexer, right, wrong):
        yield


@mutant(_READABLE)
@contextmanager
def blobs_deleted_while_searches_read() -> Iterator[None]:
    """A blob is deleted as soon as no commit names it, though a search may still read it."""
    right = Indexer._close_shard

    async def wrong(self: Any) -> None:
        await right(self)
        needed = index_plan.blobs_of(self.state, self.shards)
        for name in await self._blobs.names(f"{self.state.stream_id}/"):
            if name not in needed:
                await self._blobs.delete(name)

    with patched(Indexer, right, wrong):
        yield


__all__ = [
    "blobs_deleted_while_searches_read", "closed_shard_forgotten", "cut_saved_before_its_files",
    "index_resumed_without_its_files", "stream_indexed_again_from_its_head",
]  # fmt: skip
