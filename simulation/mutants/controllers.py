"""Mutants of the controller's background work: retention, watermarks, commits."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

from sarit.controller import keys
from sarit.controller.background.watermarks import Watermarks
from sarit.controller.calls import identity
from sarit.controller.catalog import Catalog
from sarit.controller.model import codec, retention, watermarks
from sarit.controller.model.creation import creation_id
from sarit.controller.model.cuts import lower_bound, upper_bound
from sarit.controller.scopes import Scopes
from sarit.controller.streams import Streams
from sarit.controller.transactions.commit_worker import CommitWorkers, LiveTransactions
from sarit.controller.transactions.transactions import Transactions
from simulation.mutants.patching import patched
from simulation.mutants.registry import mutant

if TYPE_CHECKING:
    from collections.abc import Iterator


@mutant("retention")
@contextmanager
def retention_ignores_subscribers() -> Iterator[None]:
    """Retention truncates what subscribers have not released yet."""
    with patched(retention, retention.released_by_all, lambda head, released, epochs: None):
        yield


@mutant("retention")
@contextmanager
def retention_truncates_too_much() -> Iterator[None]:
    """Retention truncates at the newest cut, not at one that leaves what the policy retains."""
    right = retention.truncation

    def wrong(policy: Any, tail: Any, cuts: Any, released: Any, epochs: Any) -> Any:
        found = right(policy, tail, cuts, released, epochs)
        return found if released is not None or found is None else dict(cuts[-1].cut)

    with patched(retention, retention.truncation, wrong):
        yield


@mutant("retention")
@contextmanager
def retention_maximum_not_enforced() -> Iterator[None]:
    """The maximum of a retention policy does not override subscribers."""
    right = retention.truncation

    def wrong(policy: Any, tail: Any, cuts: Any, released: Any, epochs: Any) -> Any:
        return right(replace(policy, maximum=0), tail, cuts, released, epochs)

    with patched(retention, retention.truncation, wrong):
        yield


@mutant(
    "retention",
    found_by="tests/unit/controller/test_retention.py::test_by_size_stream_begins_where_its_readers_released",
)
@contextmanager
def retention_at_recorded_cuts_only() -> Iterator[None]:
    """Retention by size truncates at what subscribers have released only behind a recorded cut that leaves enough."""
    right = retention.truncation

    def wrong(policy: Any, tail: Any, cuts: Any, released: Any, epochs: Any) -> Any:
        found = right(policy, tail, cuts, released, epochs)
        alone = right(policy, tail, cuts, None, epochs)
        if released is None or found is None or found != released.cut:
            return found
        return None if alone is None else lower_bound(epochs, [alone, found])

    with patched(retention, retention.truncation, wrong):
        yield


@mutant("watermarks")
@contextmanager
def watermark_from_fastest_writer() -> Iterator[None]:
    """A watermark has the time of the fastest writer, not of the slowest."""
    right = watermarks.verdict

    def wrong(last: Any, writers: Any, time_out: float, epochs: Any) -> Any:
        found = right(last, writers, time_out, epochs)
        return found if found.mark is None else replace(found, mark=replace(found.mark, lower=found.mark.upper))

    with patched(watermarks, watermarks.verdict, wrong):
        yield


@mutant("watermarks")
@contextmanager
def watermark_cut_from_one_writer() -> Iterator[None]:
    """The cut of a watermark has the position of one writer only."""
    with patched(watermarks, upper_bound, lambda epochs, bounds: upper_bound(epochs, [b for b in bounds if b][:1])):
        yield


@mutant("watermarks")
@contextmanager
def silent_writer_never_expires() -> Iterator[None]:
    """A writer that stopped without leaving delays all watermarks for ever."""
    with patched(Watermarks, Watermarks._time_out, lambda self, record: inf):
        yield


@mutant(
    "transactions",
    found_by="tests/unit/controller/test_transactions.py::test_commit_order_holds_for_decisions_during_a_scan",
)
@contextmanager
def commit_order_from_two_snapshots() -> Iterator[None]:
    """Commits are ordered by several scans of the catalog, without those decided between the scans (found by
    review)."""

    async def wrong(self: Any, name: Any) -> LiveTransactions:
        rows = await self._catalog.stream_records(name, keys.LIVE)
        out = [(keys.transaction_of(k), codec.decode_transaction(value.value), value.version) for k, value in rows]
        return LiveTransactions(out, out)

    with patched(CommitWorkers, CommitWorkers.live, wrong):
        yield


@mutant(
    "transactions",
    found_by="tests/unit/controller/test_crashes.py::test_lease_ends_at_its_stored_deadline_however_often_the_node_restarts",
)
@contextmanager
def lease_renewed_at_restart() -> Iterator[None]:
    """A controller that starts counts each lease from its start (found by review)."""
    right = Transactions.adopt

    async def wrong(self: Any, name: Any, txn: int) -> Any:
        record, _ = await right(self, name, txn)
        return record, record.lease_ms

    with patched(Transactions, Transactions.adopt, wrong):
        yield


@mutant(
    "scale safety",
    found_by="tests/unit/controller/test_crashes.py::test_entry_that_another_controller_has_written_since_is_not_removed",
)
@contextmanager
def pending_entry_of_another_removed() -> Iterator[None]:
    """A controller removes the pending-work entry that another one has written since (found by review)."""

    async def wrong(self: Any, entry: bytes, version: int) -> None:
        await self.remove_ended([entry])

    with patched(Catalog, Catalog.remove_pending_if_unchanged, wrong):
        yield


@mutant("scale safety", found_by="tests/unit/controller/test_slow_controllers.py")
@contextmanager
def swept_record_not_renewed() -> Iterator[None]:
    """The sweeper removes an entry although a change that rests on it may still be stored (found by review)."""

    async def wrong(self: Any, scope: str, key: bytes, value: bytes, version: int) -> bool:
        return True

    with patched(Catalog, Catalog.renew, wrong):
        yield


@mutant("retention", found_by="tests/unit/controller/test_interleavings.py")
@contextmanager
def retention_precondition_dropped() -> Iterator[None]:
    """Retention truncates although a new reader group began to read after its decision (found by review)."""
    right = Streams.truncate

    async def wrong(self: Any, name: Any, cut: Any, precondition: Any = None) -> Any:
        return await right(self, name, cut)

    with patched(Streams, Streams.truncate, wrong):
        yield


@mutant("identity")
@contextmanager
def scope_forgets_its_numbers() -> Iterator[None]:
    """A scope is deleted, and the segment numbers of its streams with it (found by a Spark checkpoint)."""

    async def wrong(self: Any, scope: str) -> None:
        return None

    with patched(Scopes, Scopes._keep_numbers, wrong):
        yield


@mutant("identity")
@contextmanager
def creation_id_of_the_name() -> Iterator[None]:
    """A stream that is made again has the creation id of the one before it."""

    def wrong(incarnation: bytes, name: str, first_number: int, stored: Any) -> bytes:
        return name.encode().ljust(16)[:16]

    with patched(identity, creation_id, wrong):
        yield
