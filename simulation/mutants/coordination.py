"""Mutants of synchronizers and key-value tables."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sarit.client.sync.revisioned_stream import Revision, RevisionedStream
from sarit.client.sync.synchronizer import StateSynchronizer, encode_initial
from sarit.client.tables.partition import Partition
from sarit.core.errors import Conflict, Unavailable
from sarit.core.limits import EVENT_HEADER_BYTES
from simulation.mutants.patching import patched
from simulation.mutants.registry import mutant

if TYPE_CHECKING:
    from collections.abc import Iterator


@mutant("synchronizer")
@contextmanager
def synchronizer_update_unconditional() -> Iterator[None]:
    """A synchronizer writes its update unconditionally."""

    async def wrong(self: Any, expected: Revision, value: bytes) -> Revision:
        await self.write_unconditionally(value)
        return Revision(expected.offset + EVENT_HEADER_BYTES + len(value))

    with patched(RevisionedStream, RevisionedStream.write_conditionally, wrong):
        yield


@mutant("synchronizer")
@contextmanager
def lost_reply_treated_as_refusal() -> Iterator[None]:
    """A conditional write whose reply was lost is treated as refused."""
    right = RevisionedStream._set_up

    async def wrong(self: Any) -> Any:
        connection, _ = await right(self)
        return connection, -1

    with patched(RevisionedStream, RevisionedStream._set_up, wrong):
        yield


@mutant("synchronizer")
@contextmanager
def compaction_overwrites_updates() -> Iterator[None]:
    """A compaction writes the state of this process over newer updates of others."""

    async def wrong(self: Any, make: Any) -> None:
        async with self._lock:
            state, before = self._expect()
            await self.stream.write_unconditionally(encode_initial(make(state)))
            await self._truncate_history(before)

    with patched(StateSynchronizer, StateSynchronizer.compact, wrong):
        yield


@mutant("tables")
@contextmanager
def uncertain_change_reported_refused() -> Iterator[None]:
    """A table change that was applied, and whose reply was lost, is reported as refused."""
    right = Partition._send_alone

    async def wrong(self: Any, batch: Any, uncertain: bool, backoff: Any) -> Any:
        try:
            return await right(self, batch, uncertain, backoff)
        except Unavailable as error:
            if isinstance(error.__cause__, Conflict):
                raise error.__cause__ from None
            raise

    with patched(Partition, Partition._send_alone, wrong):
        yield
