"""What processes agree on, for the blocking face: `coordination.py` and `recipes/` behind a thread.

Functions given to an update (`decide`, `change`, `apply` ...) run on the client's own thread: they must neither block
nor call the client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sarit.client.sync.membership import DEFAULT_LEASE_SECONDS
from sarit.client.sync.synchronizer import COMPACT_AFTER_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sarit.client.blocking.loop_thread import LoopThread
    from sarit.client.sync import configuration, coordination, election, membership, revisioned, synchronizer
    from sarit.client.sync.revisioned import Revision
    from sarit.client.sync.roster import Member
    from sarit.core.names import StreamName

S = TypeVar("S")


class Coordination:
    """Belongs to one client.  All methods raise NotFound (the scope), Invalid (the name; several segments)."""

    def __init__(self, thread: LoopThread, made: coordination.Coordination) -> None:
        self._thread = thread
        self._made = made

    def __repr__(self) -> str:
        return f"blocking {self._made!r}"

    def revisioned(self, stream: str | StreamName) -> RevisionedStream:
        """A stream whose entries are appended on condition."""
        return RevisionedStream(self._thread, self._thread.run(self._made.revisioned(stream)))

    def synchronizer(
        self,
        stream: str | StreamName,
        initial: Callable[[bytes], S],
        apply: Callable[[S, bytes, Revision], S],
        *,
        snapshot: Callable[[S], bytes] | None = None,
        compact_after_bytes: int = COMPACT_AFTER_BYTES,
    ) -> StateSynchronizer[S]:
        """A shared state, fetched; `known` is False when nobody initialised it.  See `StateSynchronizer`."""
        made = self._made.synchronizer(
            stream, initial, apply, snapshot=snapshot, compact_after_bytes=compact_after_bytes
        )
        return StateSynchronizer(self._thread, self._thread.run(made))

    def membership(
        self,
        stream: str | StreamName,
        name: str | None = None,
        *,
        data: str = "",
        lease_seconds: float = DEFAULT_LEASE_SECONDS,
        join: bool = True,
    ) -> Membership:
        """A place in a group; `join` False: only see who is in it.

        `name`: of this member, in the group once; a random one when it is not given.  While it is taken, this member
        waits (`joined`).  `lease_seconds`: after how long a silent member is taken off; the same for all of a group.
        Raises Invalid also for these."""
        made = self._made.membership(stream, name, data=data, lease_seconds=lease_seconds, join=join)
        return Membership(self._thread, self._thread.run(made))

    def leader_election(
        self,
        stream: str | StreamName,
        name: str | None = None,
        *,
        data: str = "",
        lease_seconds: float = DEFAULT_LEASE_SECONDS,
    ) -> LeaderElection:
        """A candidate; arguments as of `membership`."""
        made = self._made.leader_election(stream, name, data=data, lease_seconds=lease_seconds)
        return LeaderElection(self._thread, self._thread.run(made))

    def shared_configuration(
        self, stream: str | StreamName, defaults: Mapping[str, Any] | None = None
    ) -> SharedConfiguration:
        """Settings that all who name the stream share; the very first one puts `defaults` there."""
        return SharedConfiguration(self._thread, self._thread.run(self._made.shared_configuration(stream, defaults)))


class RevisionedStream:
    """One stream of one segment.  Make one with `client.coordination.revisioned("scope/stream")`."""

    def __init__(self, thread: LoopThread, stream: revisioned.RevisionedStream) -> None:
        self._thread = thread
        self._stream = stream

    def __repr__(self) -> str:
        return f"blocking {self._stream!r}"

    def fetch_latest(self) -> Revision:
        """The revision behind the newest entry."""
        return self._thread.run(self._stream.fetch_latest())

    def oldest(self) -> Revision:
        """The revision the oldest entry begins at."""
        return self._thread.run(self._stream.oldest())

    def read_from(self, start: Revision) -> Iterator[tuple[Revision, bytes]]:
        """The entries behind `start` that there are as of now, each with the revision behind it.

        Raises Truncated (`start` lies below the oldest entry), Invalid (it lies beyond the newest), Corrupt."""
        return self._thread.iterate(self._stream.read_from(start))

    def write_conditionally(self, expected: Revision, value: bytes) -> Revision | None:
        """Append `value` if `expected` is the newest revision: the new newest one; None if it is not.

        Raises Invalid (too long), Sealed; Unavailable: it may have been written or not."""
        return self._thread.run(self._stream.write_conditionally(expected, value))

    def write_unconditionally(self, value: bytes) -> None:
        """Append `value`.  Raises Invalid (too long), Sealed; Unavailable: it may have been written or not."""
        self._thread.run(self._stream.write_unconditionally(value))

    def get_mark(self) -> Revision | None:
        """The revision that was marked, if one was."""
        return self._thread.run(self._stream.get_mark())

    def compare_and_set_mark(self, expected: Revision | None, new: Revision | None) -> bool:
        """Set the mark to `new` if it is `expected` (None: there is none); whether it was."""
        return self._thread.run(self._stream.compare_and_set_mark(expected, new))

    def truncate(self, revision: Revision) -> None:
        """Forget the entries before `revision`; nothing happens when they are forgotten.  Raises Invalid."""
        self._thread.run(self._stream.truncate(revision))


class StateSynchronizer(Generic[S]):
    """One process's copy of a shared state.  Make one with `client.coordination.synchronizer(...)`."""

    def __init__(self, thread: LoopThread, shared: synchronizer.StateSynchronizer[S]) -> None:
        self._thread = thread
        self._shared = shared

    def __repr__(self) -> str:
        return f"blocking {self._shared!r}"

    @property
    def known(self) -> bool:
        """Whether there is a state: somebody initialised it, and it was fetched."""
        return self._shared.known

    @property
    def state(self) -> S:
        """The state as last fetched or updated by this process.  Raises NotFound when nobody initialised it."""
        return self._shared.state

    @property
    def revision(self) -> Revision:
        """What `state` is the outcome of.  Raises NotFound."""
        return self._shared.revision

    def fetch(self) -> S:
        """Apply what was written since; the state.  Raises Corrupt, NotFound (nobody initialised it)."""
        self._thread.run(self._shared.fetch())
        return self._shared.state

    def initialize(self, state: bytes) -> bool:
        """Give the state its first value, if it has none yet; whether this call did."""
        return self._thread.run(self._shared.initialize(state))

    def update(self, decide: Callable[[S], Sequence[bytes]]) -> bool:
        """Write what `decide` makes of the newest state: updates that are applied all at once, or none to write none.

        `decide` is called again when somebody else wrote meanwhile; what it raises leaves here, with nothing written.
        Returns whether anything was written.  Raises NotFound (nobody initialised the state), Conflict (others were
        faster ten thousand times), Invalid (too long), Sealed, Unavailable (it may have been written or not)."""
        return self._thread.run(self._shared.update(decide))

    def update_unconditionally(self, updates: Sequence[bytes]) -> None:
        """Write updates whatever the state is; this copy has them with the next `fetch`."""
        self._thread.run(self._shared.update_unconditionally(updates))

    def compact(self, make: Callable[[S], bytes]) -> None:
        """Write the whole state anew, as `make` makes it, and forget what came before the compaction before this one.

        Raises as `update` does."""
        self._thread.run(self._shared.compact(make))


class Membership:
    """A place in a group, or a view of it.  Make one with `client.coordination.membership(...)`."""

    def __init__(self, thread: LoopThread, made: membership.Membership) -> None:
        self._thread = thread
        self._made = made

    def __repr__(self) -> str:
        return f"blocking {self._made!r}"

    @property
    def name(self) -> str | None:
        """This member's name; None for one that only watches."""
        return self._made.name

    @property
    def members(self) -> tuple[Member, ...]:
        """Who is there, in the order of joining, as last seen."""
        return self._made.members

    @property
    def number(self) -> int | None:
        """This member's number; None while it is not in."""
        return self._made.number

    @property
    def holds(self) -> bool:
        """Whether this member is in, and certainly nobody has taken it off yet."""
        return self._made.holds

    def changed(self, since: tuple[Member, ...]) -> tuple[Member, ...]:
        """Who is there, once it is not `since`.  Raises the failure that ended the membership."""
        return self._thread.run(self._made.changed(since))

    def joined(self) -> int:
        """Wait until this member is in (its name may have been taken); its number."""
        return self._thread.run(self._made.joined())

    def describe(self, data: str) -> None:
        """Replace this member's data.  Raises Invalid (too long)."""
        self._thread.run(self._made.describe(data))

    def close(self) -> None:
        """Leave, so that others need not wait for the end of the lease."""
        self._thread.run(self._made.close())

    def __enter__(self) -> Membership:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LeaderElection:
    """One candidate.  Make one with `client.coordination.leader_election(...)`; see `recipes/election.py`."""

    def __init__(self, thread: LoopThread, made: election.LeaderElection) -> None:
        self._thread = thread
        self._made = made

    def __repr__(self) -> str:
        return f"blocking {self._made!r}"

    @property
    def leader(self) -> Member | None:
        """Who leads, as last seen."""
        return self._made.leader

    @property
    def token(self) -> int | None:
        """The fencing token of this candidate's leadership; None while it does not lead."""
        return self._made.token

    @property
    def leading(self) -> bool:
        """Whether this candidate leads, now.  Turns False in time even when nothing can be reached."""
        return self._made.leading

    def lead(self) -> int:
        """Wait until this candidate leads; its fencing token.  Raises the failure that ended the candidacy."""
        return self._thread.run(self._made.lead())

    def lost(self, token: int) -> None:
        """Wait until this candidate does not lead under `token` any more.  Raises as `lead` does."""
        self._thread.run(self._made.lost(token))

    def resign(self) -> None:
        """Let the next candidate lead; this one goes to the end of the order."""
        self._thread.run(self._made.resign())

    def close(self) -> None:
        """Give up the candidacy; the next leads at once."""
        self._thread.run(self._made.close())

    def __enter__(self) -> LeaderElection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SharedConfiguration:
    """A copy of shared settings that keeps itself fresh.  Make one with `client.coordination.shared_configuration`."""

    def __init__(self, thread: LoopThread, made: configuration.SharedConfiguration) -> None:
        self._thread = thread
        self._made = made

    def __repr__(self) -> str:
        return f"blocking {self._made!r}"

    @property
    def values(self) -> dict[str, Any]:
        """All settings, as last seen: a copy."""
        return self._made.values

    @property
    def version(self) -> int:
        """Rises with every change, and now and then without one; the same number means the same settings everywhere."""
        return self._made.version

    def get(self, name: str, default: Any = None) -> Any:
        """One setting, as last seen."""
        return self._made.get(name, default)

    def refresh(self) -> None:
        """See what was changed before this call."""
        self._thread.run(self._made.refresh())

    def edit(self, change: Callable[[dict[str, Any]], object]) -> bool:
        """Let `change` alter a copy of the newest settings; write the difference, if there is one; whether there was.

        `change` is called again when somebody else was faster; an error it raises changes nothing.
        Raises Invalid (not JSON, too long), Unavailable (it may have been written or not)."""
        return self._thread.run(self._made.edit(change))

    def set(self, name: str, value: Any) -> None:
        """Set one, whatever it was.  Raises as `edit` does."""
        self._thread.run(self._made.set(name, value))

    def remove(self, name: str) -> bool:
        """Remove one; False when it was not there.  Raises as `edit` does."""
        return self._thread.run(self._made.remove(name))

    def changed(self, since: int) -> int:
        """Wait until `version` is not `since`; the new one.  Raises the failure that ended the following."""
        return self._thread.run(self._made.changed(since))

    def watch(self) -> Iterator[dict[str, Any]]:
        """The settings now, and again after every change; changes in quick succession may be seen as one."""
        return self._thread.iterate(self._made.watch())

    def close(self) -> None:
        """Stop following."""
        self._thread.run(self._made.close())

    def __enter__(self) -> SharedConfiguration:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
