"""The reader groups a client can make, open, list and delete: `client.reader_groups`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.client.groups import calls, starting
from sarit.client.groups.group import ReaderGroup
from sarit.client.groups.shared import GroupName, SharedState
from sarit.client.groups.values import GroupConfig
from sarit.core.errors import Invalid, NotFound
from sarit.core.names import READER_GROUP_PREFIX, StreamName, is_user_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sarit.client.core.session import Session
    from sarit.client.groups.starting import Place


class ReaderGroups:
    """Belongs to one client.  Groups are named "scope/group"."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __repr__(self) -> str:
        return f"ReaderGroups({self._session.controller!r})"

    async def create(
        self,
        name: str,
        streams: str | StreamName | Iterable[str | StreamName],
        *,
        start: Place = "head",
        end: Place = None,
        automatic_checkpoint: float | None = 30.0,
        retention: str = "none",
        max_outstanding_checkpoints: int = 3,
    ) -> ReaderGroup:
        """A group that reads these streams; the one there is, as it was made, if it reads the same streams.

        `start`, `end`: "head", "tail" (as of now), a cut or its text, or several cuts; `end` None: follow the tail
        until the streams are sealed.  `automatic_checkpoint`: every so many seconds; None: only those asked for.
        `retention` ("none", "manual", "checkpoint"): of streams with a retention policy, what is kept for the group:
        nothing, what it has not released, or what lies behind its last checkpoint.
        Raises NotFound (scope, stream), Invalid, Exists (it reads other streams)."""
        group = group_name(name)
        names = [streams] if isinstance(streams, str | StreamName) else list(streams)
        parsed = [found if isinstance(found, StreamName) else StreamName.parse(found) for found in names]
        config = GroupConfig(
            await starting.places(self._session, parsed, start),
            await starting.places(self._session, parsed, end),
            checkpoint_ms=starting.checkpoint_ms(automatic_checkpoint),
            retention=starting.retention(retention),
            max_outstanding=max_outstanding_checkpoints,
        )
        return ReaderGroup(self._session, (await starting.begin(self._session, group, config))[0])

    async def open(self, name: str) -> ReaderGroup:
        """A group that exists.  Raises NotFound."""
        shared = await SharedState.open(self._session, group_name(name))
        if not shared.copy.known:
            raise NotFound(f"reader group {name} was not begun by its creator: create it again")
        return ReaderGroup(self._session, shared)

    async def list(self, scope: str) -> list[str]:
        """The names of the groups of a scope.  Raises NotFound."""
        found = [stream.stream async for stream in self._session.controller.streams(scope)]
        return [f"{scope}/{s.removeprefix(READER_GROUP_PREFIX)}" for s in found if s.startswith(READER_GROUP_PREFIX)]

    async def delete(self, name: str) -> None:
        """Delete a group; its readers fail.  Raises NotFound."""
        group = group_name(name)
        config = await calls.config_of(self._session, *group)
        await calls.delete(self._session, *group, config.group_id)


def group_name(text: str) -> GroupName:
    """Read "scope/group".  Raises Invalid."""
    scope, _, group = text.partition("/")
    if not is_user_name(group) or not scope:
        raise Invalid(f"{text!r} is not SCOPE/GROUP (letters, digits, '.' and '-', at most 250 characters each)")
    return GroupName(scope, group)
