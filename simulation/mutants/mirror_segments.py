"""Mutants of mirrors in a store: what makes a segment one, and where bytes may be added to it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from sarit.store.container import state
from sarit.store.container.container import require_writable
from sarit.store.server import append_handler
from simulation.mutants.patching import patched
from simulation.mutants.registry import mutant
from simulation.mutants.segments import recorded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sarit.store.container.segment import Segment

_READ_ONLY: Final = "clients may only read a mirror"


@mutant(_READ_ONLY, found_by="tests/unit/store/tiering/test_mirrors.py")
@contextmanager
def mirror_not_saved() -> Iterator[None]:
    """A checkpoint does not save that a segment is a mirror."""
    with recorded("mirror", False):
        yield


@mutant(_READ_ONLY, found_by="tests/unit/store/server/test_mirrors.py")
@contextmanager
def mirror_open_to_writers() -> Iterator[None]:
    """A writer of a client can be set up on a mirror."""

    def wrong(segment: Segment) -> None:
        """Refuse nothing."""

    with patched(append_handler, require_writable, wrong):
        yield


@mutant("a mirror has equal bytes at equal offsets", found_by="tests/contract/test_controller_ports.py")
@contextmanager
def bytes_added_at_any_offset() -> Iterator[None]:
    """Bytes of a mirror are added wherever it ends."""

    def wrong(segment: Segment, offset: int) -> None:
        """Refuse nothing."""

    with patched(state, state.require_end, wrong):
        yield
