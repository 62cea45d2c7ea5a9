"""Which controller does the background work of which stream, when several share the tables.

A name belongs to one of BUCKETS buckets by a hash, and a bucket to the member with the highest hash of both (rendezvous
hashing).  So controllers that know the same members agree without messages; when a member leaves, only its buckets
move, evenly to all others.  Controllers that know different members for a while do no harm: every change is a
compare-and-set, so work that two begin at once is done once.  Any controller answers the calls of clients.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Address = tuple[str, int]

BUCKETS: Final = 32


def bucket_of(name: str) -> int:
    """Return the bucket of a stream (as `scope/stream`) or of a scope."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big") % BUCKETS


def owner_of(bucket: int, members: Sequence[Address]) -> Address:
    """Return the member that a bucket belongs to; there is at least one."""
    return max(members, key=lambda member: (_weight(bucket, member), member))


def _weight(bucket: int, member: Address) -> bytes:
    return blake2b(f"{bucket}/{member[0]}:{member[1]}".encode(), digest_size=8).digest()


class Assignment:
    """The part of the background work that one controller does."""

    def __init__(self, me: Callable[[], Address], members: Callable[[], Sequence[Address]] | None = None) -> None:
        """`members`: returns the known controllers, without I/O; None: this one is alone."""
        self._me = me
        self._members = members
        self._known: tuple[Address, tuple[Address, ...]] | None = None
        self._mine: frozenset[int] = frozenset()

    def __repr__(self) -> str:
        return f"<Assignment of {self._me()} among {self.members()}>"

    @property
    def me(self) -> Address:
        """The address of this controller among the members."""
        return self._me()

    def members(self) -> tuple[Address, ...]:
        """Return the controllers, in order; at least this one."""
        known = tuple(sorted(self._members())) if self._members is not None else ()
        return known or (self._me(),)

    def is_mine(self, name: str) -> bool:
        """Return whether the background work of a stream or a scope is this controller's."""
        if self._members is None:
            return True
        state = self._me(), self.members()
        if state != self._known:
            self._known = state
            self._mine = frozenset(bucket for bucket in range(BUCKETS) if owner_of(bucket, state[1]) == state[0])
        return bucket_of(name) in self._mine
