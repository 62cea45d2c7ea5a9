"""A reader group's shared state: the synchronizer of stream `_RG<group>`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from sarit.client.groups import codec
from sarit.client.groups.state import AddReader, Compact, GroupState, Update, apply
from sarit.client.sync.revisioned import Revision, RevisionedStream
from sarit.client.sync.synchronizer import StateSynchronizer
from sarit.core.errors import NotFound
from sarit.core.names import READER_GROUP_PREFIX, StreamName

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sarit.client.core.session import Session


class GroupName(NamedTuple):
    """`scope/group`."""

    scope: str
    group: str

    def __str__(self) -> str:
        return f"{self.scope}/{self.group}"


class SharedState:
    """One process's copy of a group's state, fetched when it was opened."""

    def __init__(self, name: GroupName, stream: RevisionedStream) -> None:
        self.name = name
        self.synchronizer: StateSynchronizer[GroupState] = StateSynchronizer(
            stream, _initial, _apply, snapshot=_snapshot
        )

    @staticmethod
    async def open(session: Session, name: GroupName) -> SharedState:
        """The state of a group, fetched; it may have none yet.  Raises NotFound."""
        stream = StreamName(name.scope, READER_GROUP_PREFIX + name.group)
        try:
            made = SharedState(name, await RevisionedStream.open(session, stream))
        except NotFound:
            raise NotFound(f"reader group {name} does not exist") from None
        await made.synchronizer.fetch()
        return made

    def __repr__(self) -> str:
        return f"SharedState({self.name}, {self.synchronizer!r})"

    @property
    def state(self) -> GroupState:
        """As last seen.  Raises NotFound: its creator has not begun it (yet)."""
        return self.synchronizer.state

    @property
    def revision(self) -> Revision:
        """What `state` is the outcome of."""
        return self.synchronizer.revision

    async def fetch(self) -> GroupState:
        """The newest state."""
        await self.synchronizer.fetch()
        return self.synchronizer.state

    async def update(self, decide: Callable[[GroupState], Sequence[Update]]) -> bool:
        """Write what `decide` makes of the newest state, all at once; whether that was anything."""
        return await self.synchronizer.update(lambda state: list(map(codec.encode, decide(state))))

    async def write(self, update: Update) -> None:
        """Write an update whatever the state is."""
        await self.synchronizer.update_unconditionally([codec.encode(update)])


def _initial(data: bytes) -> GroupState:
    return apply(None, codec.decode(data))


def _apply(state: GroupState, data: bytes, revision: Revision) -> GroupState:
    update = codec.decode(data)
    after = apply(state, update)
    if isinstance(update, AddReader):  # so that a reader is told from a later one of the same name
        after = replace(after, joined={**after.joined, update.reader: (revision.offset, revision.index)})
    return after


def _snapshot(state: GroupState) -> bytes:
    return codec.encode(Compact(state))
