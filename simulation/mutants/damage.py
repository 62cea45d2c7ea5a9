"""Mutants of what damage does: records of the index."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from sarit.index import memory
from sarit.index.limits import INDEX_CHECKSUM_BYTES
from sarit.index.record_seals import unseal
from simulation.mutants.patching import patched
from simulation.mutants.registry import mutant

if TYPE_CHECKING:
    from collections.abc import Iterator


@mutant("damage is refused")
@contextmanager
def checksums_of_index_records_not_compared() -> Iterator[None]:
    """A record of the index is served whatever its checksum."""

    def wrong(key: bytes, stored: bytes) -> bytes:
        return stored[INDEX_CHECKSUM_BYTES:]

    with patched(memory, unseal, wrong):
        yield
