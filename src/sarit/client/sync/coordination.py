"""Coordination of processes over streams: `client.coordination`.

Each shared object is a stream of one segment, created on first use; its scope must exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from sarit.client.limits import COMPACT_AFTER_BYTES, DEFAULT_LEASE_SECONDS
from sarit.client.session.guard import guarded
from sarit.client.sync import configuration, membership_list
from sarit.client.sync.configuration import SharedConfiguration
from sarit.client.sync.membership import LeaderElection, Membership, initialize_group
from sarit.client.sync.revisioned_stream import Revision, RevisionedStream, open_or_create
from sarit.client.sync.synchronizer import StateSynchronizer
from sarit.core.names import StreamName

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sarit.client.session.session import Session

S = TypeVar("S")


@guarded("_session")
class Coordination:
    """The coordination primitives of one client.  All methods raise NotFound (the scope), Invalid (the name; several
    segments)."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __repr__(self) -> str:
        return f"Coordination({self._session.controller.address}, {self._session.state()})"

    async def revisioned(self, stream: str | StreamName) -> RevisionedStream:
        """Return a stream whose entries are appended conditionally."""
        return await open_or_create(self._session, _name(stream))

    async def synchronizer(
        self,
        stream: str | StreamName,
        initial: Callable[[bytes], S],
        apply: Callable[[S, bytes, Revision], S],
        *,
        snapshot: Callable[[S], bytes] | None = None,
        compact_after_bytes: int = COMPACT_AFTER_BYTES,
    ) -> StateSynchronizer[S]:
        """Return a shared state, fetched; `known` is False when no process has initialized it.  See
        `StateSynchronizer`."""
        entries = await open_or_create(self._session, _name(stream))
        made = StateSynchronizer(entries, initial, apply, snapshot=snapshot, compact_after_bytes=compact_after_bytes)
        await made.fetch()
        return made

    async def membership(
        self,
        stream: str | StreamName,
        name: str | None = None,
        *,
        data: str = "",
        lease_seconds: float = DEFAULT_LEASE_SECONDS,
        join: bool = True,
    ) -> Membership:
        """Membership in a group; `join` False: watch the group only.

        `name`: of this member, unique in the group; by default a random one.  While it is taken, this member waits
        (`joined`).  `lease_seconds`: a member without a heartbeat for so long is removed; the same for the whole group.
        Raises Invalid also for these."""
        name = (name or self._session.env.random.bytes(8).hex()) if join else None
        membership_list.check_member(name or "-", data)
        shared = await self.synchronizer(
            stream, membership_list.decode, membership_list.apply, snapshot=membership_list.encode
        )
        await initialize_group(shared, lease_seconds)
        return await Membership(self._session, shared, name, data).open()

    async def leader_election(
        self,
        stream: str | StreamName,
        name: str | None = None,
        *,
        data: str = "",
        lease_seconds: float = DEFAULT_LEASE_SECONDS,
    ) -> LeaderElection:
        """Return a candidate; arguments as for `membership`."""
        return LeaderElection(await self.membership(stream, name, data=data, lease_seconds=lease_seconds))

    async def shared_configuration(
        self, stream: str | StreamName, defaults: Mapping[str, Any] | None = None
    ) -> SharedConfiguration:
        """Settings shared by all processes that name the stream; the first one of all writes `defaults`."""
        shared = await self.synchronizer(
            stream, configuration.decode, configuration.apply, snapshot=configuration.encode
        )
        return await SharedConfiguration(self._session, shared).open(defaults or {})


def _name(stream: str | StreamName) -> StreamName:
    return stream if isinstance(stream, StreamName) else StreamName.parse(stream)
