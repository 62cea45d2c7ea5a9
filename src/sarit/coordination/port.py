"""The port to a coordination service: registers with versions, and members with leases.

A register holds a few kilobytes under a name, and every change of it is a compare-and-set.  A member is a process that
sends heartbeats.  Neither is on the way of an append: they say who should own a container, and the logs decide who
does.  All calls raise Unavailable, and the outcome of a change is then unknown: read again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True)
class Versioned:
    """The value of a register, and the version that a change must expect."""

    value: bytes
    version: int


class Watch(Protocol):
    """A watch, until it is closed."""

    def close(self) -> None:
        """No more calls."""


class Registers(Protocol):
    """Values under names like `map` or `log/3`, each with a version that rises with every change."""

    async def get(self, name: str) -> Versioned | None:
        """Return the value now; None when there is no such register."""

    async def create(self, name: str, value: bytes) -> int:
        """Create a register; its version.  Raises Exists."""

    async def set(self, name: str, value: bytes, expected: int) -> int:
        """Replace the value of a register at the version `expected`; its new version.  Raises Conflict, NotFound."""

    async def delete(self, name: str, expected: int) -> None:
        """Delete a register at the version `expected`.  Raises Conflict, NotFound."""

    async def children(self, name: str) -> list[str]:
        """Return the last parts of the names of the registers directly below `name`, sorted."""

    def watch(self, name: str, changed: Callable[[], None]) -> Watch:
        """Have `changed` called on the event loop after the register was created, set or deleted.

        A call may be late, several changes may give one call, and a call may be lost with a connection: read after the
        call, and poll beside it."""


class MemberState(Enum):
    """The state of a member's lease, as the member knows it.

    SUSPENDED: the last heartbeat was not answered, so the lease may end.  LOST: it ended, or the member left."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


class Membership(Protocol):
    """One membership, from its join to its loss or leave."""

    @property
    def state(self) -> MemberState:
        """The state now."""

    @property
    def valid_until(self) -> float:
        """Until then, on this process's monotonic clock, the service names no member dead that is this one, in seconds.

        The time at which the last heartbeat that was answered had been sent, plus the lease, less a margin."""

    async def update(self, value: bytes) -> None:
        """Replace the value of this member.  Raises NotFound when the lease has ended."""

    async def leave(self) -> None:
        """End the membership.  It is LOST from here on, whether the service answers or not."""


class Members(Protocol):
    """The living members of one kind."""

    async def join(self, member: str, value: bytes, on_state: Callable[[MemberState], None]) -> Membership:
        """Become a member; `on_state` is called on the event loop with every new state.

        A member of the same id is replaced: its state becomes LOST.  A process that restarts takes its place so."""

    async def list(self) -> Mapping[str, bytes]:
        """Return the values of the members by id."""

    def watch(self, changed: Callable[[], None]) -> Watch:
        """Have `changed` called after a member has joined, changed or gone; as `Registers.watch`."""
