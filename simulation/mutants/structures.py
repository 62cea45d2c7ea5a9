"""Mutants of shared data structures."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sarit.client.structures.leases import Leases
from sarit.client.structures.shared_copy import SharedCopy
from sarit.client.structures.table_head import Head
from simulation.mutants.patching import patched
from simulation.mutants.registry import mutant

if TYPE_CHECKING:
    from collections.abc import Iterator


@mutant("structures")
@contextmanager
def head_forgets_operations() -> Iterator[None]:
    """An addition to a list or a queue whose reply was lost is made again."""

    def wrong(self: Any, operation: bytes) -> int | None:
        return None

    with patched(Head, Head.number_of, wrong):
        yield


@mutant("structures")
@contextmanager
def lease_ends_at_once() -> Iterator[None]:
    """An item of a queue that another taker has is taken at once."""

    def wrong(self: Any, key: bytes, version: int, now: float) -> bool:
        return True

    with patched(Leases, Leases.ended, wrong):
        yield


@mutant("structures")
@contextmanager
def fresh_read_of_an_old_copy() -> Iterator[None]:
    """A fresh read of a counter or a map answers from what this process knew before."""

    async def wrong(self: Any, *, fresh: bool) -> Any:
        return self.shared.state

    with patched(SharedCopy, SharedCopy.read, wrong):
        yield
