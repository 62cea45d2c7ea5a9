"""A reader group's shared state: the synchronizer of stream `_RG<group>`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from sarit.client.groups import codec
from sarit.client.groups.state import AddReader, Compact, GroupState, Update, apply
from sarit.client.sync.revisioned_stream import Revision, RevisionedStream
from sarit.client.sync.synchronizer import StateSynchronizer
from sarit.core.errors import NotFound
from sarit.core.names import READER_GROUP_PREFIX, StreamName

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sarit.client.session.session import Session


class GroupName(NamedTuple):
    """`scope/group`."""

    scope: str
    group: str

    def __str__(self) -> str:
        return f"{self.scope}/{self.group}"


class SharedState:
    """One process's copy of a group's state."""

    def __init__(self, name: GroupName, stream: RevisionedStream) -> None:
        self.name = name
        self.synchronizer: StateSynchronizer[GroupState] = StateSynchronizer(
            stream, _initial, _apply, snapshot=_snapshot
        )

    @staticmethod
    async def open(session: Session, name: GroupName) -> SharedState:
        """Open and fetch the state of a group; there may be none yet.  Raises NotFound."""
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
        """The state as last fetched.  Raises NotFound: its creator has not written it yet."""
        return self.synchronizer.state

    @property
    def revision(self) -> Revision:
        """The revision that `state` includes."""
        return self.synchronizer.revision

    async def fetch(self) -> GroupState:
        """Fetch and return the newest state."""
        await self.synchronizer.fetch()
        return self.synchronizer.state

    async def update(self, decide: Callable[[GroupState], Sequence[Update]]) -> bool:
        """Write atomically the updates that `decide` returns for the newest state.  Returns whether it returned any."""
        return await self.synchronizer.update(lambda state: list(map(codec.encode, decide(state))))

    async def write(self, update: Update) -> None:
        """Write an update without a condition.

        Only for reports that hold in any state: many readers can write them without conflicts."""
        await self.synchronizer.update_unconditionally([codec.encode(update)])


def _initial(data: bytes) -> GroupState:
    return apply(None, codec.decode(data))


def _apply(state: GroupState, data: bytes, revision: Revision) -> GroupState:
    update = codec.decode(data)
    after = apply(state, update)
    # Set `joined` here, not in `apply`: only the synchronizer knows the revision of an update.
    if isinstance(update, AddReader):  # identifies this reader among later ones of the same name
        after = replace(after, joined={**after.joined, update.reader: (revision.offset, revision.index)})
    return after


def _snapshot(state: GroupState) -> bytes:
    return codec.encode(Compact(state))
