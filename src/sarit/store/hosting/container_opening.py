"""Opens a container: fences its former owner, recovers it, and lets it serve."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sarit.storage.names import container_prefix
from sarit.store.container.container import Container, ContainerLimits
from sarit.store.container.recovery import delete_transients, read_checkpoint, record_log, replay_log
from sarit.store.hosting.phases import Phases
from sarit.store.limits import SLOW_OPENING_SECONDS
from sarit.store.tiering.flusher import Flusher
from sarit.store.tiering.orphan_sweep import OrphanSweep

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.env.ports import Env
    from sarit.index.port import IndexProvider
    from sarit.log.port import LogProvider
    from sarit.storage.port import ChunkStorage
    from sarit.store.flow_control.memory_budget import MemoryBudget
    from sarit.store.flow_control.write_limiter import RateLimiters
    from sarit.store.statistics import StoreStatistics
    from sarit.store.tiering.checkpoint import FlushLimits


_log = logging.getLogger("sarit.store")


@dataclass(frozen=True, slots=True)
class Opened:
    """An opened container, and the background jobs that its owner must run."""

    container: Container
    flusher: Flusher
    orphan_sweep: OrphanSweep


def _ignore() -> None:
    """Do nothing: the default of `claimed`."""


async def open_container(
    number: int, env: Env, logs: LogProvider, indexes: IndexProvider, storage: ChunkStorage, budget: MemoryBudget,
    rate_limiters: RateLimiters, limits: ContainerLimits, flush: FlushLimits,
    on_failure: Callable[[Container, BaseException], None], *, accept_loss: bool = False,
    claimed: Callable[[], None] = _ignore, phases: Phases | None = None, statistics: StoreStatistics | None = None,
    lease: Callable[[], bool] | None = None,
) -> Opened:  # fmt: skip
    """Recover a container and let it serve.

    `accept_loss`: open it without missing or damaged parts of its log.  `claimed`: called after the log is claimed and
    before anything is changed; may raise.  `phases`: receives the time of each phase.  `lease`: whether the store's
    lease runs (see `Container`).  Raises Corrupt, Invalid (a newer format), Unavailable, Fenced."""
    # Claim the log before anything is read, which fences every former owner.  Read the index before the log is changed,
    # because it says what the log must hold.
    phases = phases or Phases(env.clock)
    with phases.phase("fence the log"):
        claim = await logs.claim(number)
    index = log = recording = None
    try:
        claimed()
        with phases.phase("open the index"):
            index = await indexes.open(number)
        with phases.phase("read the checkpoint"):
            checkpoint = await read_checkpoint(index)
        history = checkpoint.history
        if accept_loss and history.identity is None:
            # Begin above the epochs of the chunks, so that no name of a chunk is used twice: the index has no history.
            history = replace(history, epoch=await newest_chunk_epoch(storage, number))
        with phases.phase("begin the epoch"):
            log = await claim.open(history, accept_loss=accept_loss)
        # Record the epoch while the log is replayed, since that may take a request to an object store.
        recording = asyncio.ensure_future(record_log(index, log))
        parts = number, env, log, index, storage, budget, rate_limiters, limits, on_failure
        container = Container(*parts, statistics, lease)
        # Replay all of the log after the checkpoint before the first operation, whose frame number continues there.
        state, to_do = container.state, log.backlog_bytes() / 1e6
        with phases.phase(
            "replay", lambda: f"{state.applied_frame - checkpoint.frame:,} frames of {to_do:,.1f} MB done"
        ):
            await replay_log(container, checkpoint)
        with phases.phase("record the epoch"):
            await recording
        replayed = container.state.applied_frame - checkpoint.frame
        container.statistics.replayed_frames += replayed
        container.statistics.replayed_bytes += container.state.dirty.append_bytes
        # The owner starts the flusher when this returns.
        flusher = Flusher(container, flush, checkpoint.chunk_sequence)
        container.serve(flusher.wake)
        flusher.checkpoint_frame = checkpoint.frame
        # Delete after `serve`, since deletions go through the log.
        with phases.phase("delete transient segments"):
            await delete_transients(container)
        # A node's line that it serves sums up what was opened quickly.  In a cluster each opening is news.
        quick = lease is None and not replayed and phases.seconds < SLOW_OPENING_SECONDS
        _log.log(
            logging.DEBUG if quick else logging.INFO,
            "container %d: opened in %s; epoch %d, %d frames replayed, %d bytes not flushed",
            number, phases, log.epoch, replayed, container.state.dirty.append_bytes,
        )  # fmt: skip
        return Opened(container, flusher, OrphanSweep(container, checkpoint))
    # Close everything, also after a cancellation: files that stay open would make the next attempt fail.
    except BaseException:
        if recording is not None:
            recording.cancel()
            await asyncio.gather(recording, return_exceptions=True)
        await (claim.release() if log is None else log.close())
        if index is not None:
            await index.close()
        budget.forget(number)  # `serve` may have reported a charge
        raise


async def newest_chunk_epoch(storage: ChunkStorage, container: int) -> int:
    """Return the highest epoch that wrote a chunk of the container; 0 when there is none.  Raises Unavailable."""
    prefix = f"{container_prefix(container)}/e"
    epochs = [
        name.removeprefix(prefix).partition("/")[0] async for name, _ in storage.list(container_prefix(container))
    ]
    return max((int(epoch) for epoch in epochs if epoch.isdecimal()), default=0)
