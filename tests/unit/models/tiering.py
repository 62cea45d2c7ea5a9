"""Flush, truncation and garbage collection of one segment: log, long-term storage and index, with crashes in between.

A segment takes units 0, 1, 2 ... and is truncated now and then; every change is a frame of the log, durable at once.
The flusher works in rounds: take a snapshot, write data that is only in memory as a chunk (a write that reports failure
may have happened: use another name, the first is garbage), commit to the index, truncate the log, delete garbage; now
and then two chunks are compacted to one.  While a chunk waits to be written, an early reclaim may commit the removal of
extents below the start, so that their chunks are deleted without waiting for it.  A crash leaves log, chunks and index;
recovery replays the log over the index and deletes orphans: chunks of earlier epochs that no commit resolved.

Invariant in every state, since the process may die in any: index and log together have every unit from the start of the
segment to its end, in chunks that exist and hold the right units.  When no work is left, the index names every chunk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

Chunk = tuple[int, int]  # epoch, sequence number
Extent = tuple[int, int, Chunk]  # first unit, end, chunk
Op = tuple[str, int]  # ("append", unit) or ("truncate", start)


class Index(NamedTuple):
    """What is committed.  `settled`: per epoch, the highest chunk number that its commits resolved."""

    frame: int = 0
    start: int = 0
    end: int = 0
    extents: tuple[Extent, ...] = ()
    garbage: frozenset[Chunk] = frozenset()
    settled: tuple[tuple[int, int], ...] = ()
    swept: int = 0


class Flush(NamedTuple):
    """A round of the flusher.  `written`: its chunk, once it certainly exists."""

    frame: int
    start: int
    end: int
    written: Chunk | None = None
    garbage: frozenset[Chunk] = frozenset()
    ready: bool = False


class State(NamedTuple):
    """`log`: its frames from number `base` + 1 on.  `flushed`: up to which unit memory knows of chunks."""

    log: tuple[Op, ...] = ()
    base: int = 0
    chunks: frozenset[tuple[Chunk, int, int]] = frozenset()
    index: Index = Index()
    epoch: int = 1
    up: bool = True
    start: int = 0
    end: int = 0
    flushed: int = 0
    sequence: int = 0
    flush: Flush | None = None
    truncate_log: int = 0
    writes: int = 0
    join: Extent | None = None
    joins: int = 0


@dataclass(frozen=True, slots=True)
class Tiering:
    """Bounds, and the mutants to apply."""

    appends: int = 2
    crashes: int = 1
    failed_writes: int = 1
    log_truncated_before_commit: bool = False
    garbage_deleted_before_commit: bool = False
    sweep_ignores_settled: bool = False
    extent_dropped_one_early: bool = False
    failed_write_forgotten: bool = False
    early_reclaim_of_read_data: bool = False

    def first(self) -> State:
        """An empty segment."""
        return State()

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """See the head of the module."""
        if not state.up:
            yield "recovers", self._recover(state)
            return
        if state.epoch <= self.crashes:
            yield "crashes", state._replace(up=False, flush=None, truncate_log=0, join=None)
        if state.end < self.appends:
            yield "appends", state._replace(end=state.end + 1, log=(*state.log, ("append", state.end)))
        for start in range(state.start + 1, state.end + 1):
            if start in (state.start + 1, state.end):
                yield f"truncates at {start}", state._replace(start=start, log=(*state.log, ("truncate", start)))
        yield from self._flusher(state)
        if state.index.swept < state.epoch - 1:
            yield "sweeps", self._sweep(state)

    def _flusher(self, state: State) -> Iterator[tuple[str, State]]:
        index, flush = state.index, state.flush
        if state.truncate_log:
            yield "truncates the log", self._truncated_log(state, state.truncate_log)._replace(truncate_log=0)
            return
        if state.join is not None:
            yield from self._joining(state, state.join)
            return
        if flush is None:
            if len(index.extents) > 1 and not state.joins:
                joined = (index.extents[0][0], index.extents[-1][1], (state.epoch, state.sequence + 1))
                there = state.chunks | {(joined[2], joined[0], joined[1])}
                yield "joins chunks", state._replace(chunks=there, join=joined, sequence=state.sequence + 1, joins=1)
            if state.base + len(state.log) > index.frame:
                snapshot = Flush(state.base + len(state.log), state.start, state.end, ready=state.flushed >= state.end)
                yield "captures", state._replace(flush=snapshot)
            yield from self._collecting(state)
            return
        if not flush.ready:
            yield from self._early_reclaim(state)
            yield from self._collecting(state)
            sequence = state.sequence + 1
            name = (state.epoch, sequence)
            there = state.chunks | {(name, state.flushed, flush.end)}
            done = flush._replace(written=name, ready=True)
            yield "writes a chunk", state._replace(chunks=there, sequence=sequence, flush=done)
            if state.writes < self.failed_writes:
                doubtful = flush if self.failed_write_forgotten else flush._replace(garbage=flush.garbage | {name})
                failed = state._replace(sequence=sequence, flush=doubtful, writes=state.writes + 1)
                yield "fails to write", failed
                yield "fails to write, but it is there", failed._replace(chunks=there)
            return
        yield "commits", self._commit(state, flush)
        if self.log_truncated_before_commit and state.base < flush.frame:
            yield "truncates the log too early", self._truncated_log(state, flush.frame)

    def _collecting(self, state: State) -> Iterator[tuple[str, State]]:
        index = state.index
        for chunk in sorted(index.garbage):
            gone = frozenset(c for c in state.chunks if c[0] != chunk)
            yield "deletes garbage", state._replace(chunks=gone)
            if gone == state.chunks:
                yield "forgets garbage", state._replace(index=index._replace(garbage=index.garbage - {chunk}))

    def _early_reclaim(self, state: State) -> Iterator[tuple[str, State]]:
        index = state.index
        start = state.end if self.early_reclaim_of_read_data else state.start
        remaining = tuple(extent for extent in index.extents if extent[1] > start)
        if remaining != index.extents:
            dropped = {extent[2] for extent in index.extents} - {extent[2] for extent in remaining}
            yield (
                "early reclaim",
                state._replace(index=index._replace(extents=remaining, garbage=index.garbage | dropped)),
            )

    def _joining(self, state: State, joined: Extent) -> Iterator[tuple[str, State]]:
        index = state.index
        old = frozenset(extent[2] for extent in index.extents)
        settled = tuple(sorted((dict(index.settled) | {state.epoch: state.sequence}).items()))
        committed = index._replace(extents=(joined,), garbage=index.garbage | old, settled=settled)
        yield "commits the join", state._replace(index=committed, join=None)
        if self.garbage_deleted_before_commit:
            yield (
                "deletes garbage too early",
                state._replace(chunks=frozenset(c for c in state.chunks if c[0] not in old)),
            )

    def _commit(self, state: State, flush: Flush) -> State:
        index = state.index
        remaining = [
            e for e in index.extents if (e[0] >= flush.start if self.extent_dropped_one_early else e[1] > flush.start)
        ]
        dropped = {e[2] for e in index.extents} - {e[2] for e in remaining}
        if flush.written is not None:
            if flush.end > flush.start:
                remaining.append((state.flushed, flush.end, flush.written))
            else:
                dropped.add(flush.written)
        settled = dict(index.settled) | {state.epoch: state.sequence}
        committed = Index(
            flush.frame, flush.start, flush.end, tuple(remaining), index.garbage | dropped | flush.garbage,
            tuple(sorted(settled.items())), index.swept,
        )  # fmt: skip
        return state._replace(
            index=committed, flush=None, flushed=max(state.flushed, flush.end), truncate_log=flush.frame
        )

    def _truncated_log(self, state: State, frame: int) -> State:
        return state._replace(log=state.log[frame - state.base :], base=frame)

    def _sweep(self, state: State) -> State:
        """In one step: nothing else uses these chunks."""
        settled = {} if self.sweep_ignores_settled else dict(state.index.settled)
        chunks = frozenset(c for c in state.chunks if c[0][0] >= state.epoch or c[0][1] <= settled.get(c[0][0], 0))
        return state._replace(chunks=chunks, index=state.index._replace(swept=state.epoch - 1))

    def _recover(self, state: State) -> State:
        start, end = replayed(state)
        return state._replace(up=True, epoch=state.epoch + 1, start=start, end=end, flushed=state.index.end)

    def wrong(self, state: State) -> str:
        """See the head of the module."""
        index = state.index
        if state.base > index.frame:
            return "the log is truncated above the checkpoint: what lay between is gone"
        start, end = replayed(state)
        if (start, end) != truth(state):
            return f"recovery would find units {start} to {end}, not {truth(state)}"
        there = {name: (first, end) for name, first, end in state.chunks}
        for unit in range(start, min(end, index.end)):
            covering = [e for e in index.extents if e[0] <= unit < e[1]]
            if len(covering) != 1:
                return f"unit {unit} is in {len(covering)} extents"
            first, end = there.get(covering[0][2], (0, 0))
            if not first <= unit < end:
                return f"unit {unit} is not in chunk {covering[0][2]}"
        return ""

    def unfinished(self, state: State) -> str:
        """No work is left: the index names everything in long-term storage."""
        leaked = {name for name, *_ in state.chunks} - {extent[2] for extent in state.index.extents}
        return f"chunks {sorted(leaked)} stay for ever" if leaked else ""


def replayed(state: State) -> tuple[int, int]:
    """Start and end as recovery would find them: the index, and the log after its frame."""
    start, end = state.index.start, state.index.end
    for what, value in state.log[max(0, state.index.frame - state.base) :]:
        if what == "append":
            end = max(end, value + 1)
        else:
            start = max(start, value)
    return start, end


def truth(state: State) -> tuple[int, int]:
    """The acknowledged state: frames are durable at once, and memory has applied all of them."""
    return state.start, state.end


__all__ = ["State", "Tiering"]
