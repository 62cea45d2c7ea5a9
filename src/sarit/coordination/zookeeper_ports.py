"""Implements `Registers` and `Members` on one session with ZooKeeper.

*Versions.*  ZooKeeper counts the versions of a recreated node from 0 again.  A register's old version must never
return, so its node stays: a deleted register is a node without a value.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sarit.coordination.port import MemberState, Versioned
from sarit.core.errors import Conflict, Exists, NotFound, SaritError, Unavailable
from sarit.env.background import gather

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sarit.coordination.zookeeper import ZooKeeper
    from sarit.coordination.zookeeper_client import ZooKeeperWatch

_DELETED: Final = b""
_LIVE: Final = b"\x01"


class ZooKeeperRegisters:
    """Registers as nodes below a root."""

    def __init__(self, zookeeper: ZooKeeper, root: str) -> None:
        self._zookeeper = zookeeper
        self._root = root.rstrip("/")

    def __repr__(self) -> str:
        return f"<ZooKeeperRegisters {self._root} of {self._zookeeper!r}>"

    async def get(self, name: str) -> Versioned | None:
        found = await self._zookeeper.newest(self._path(name))
        if found is None or not found.value.startswith(_LIVE):
            return None
        return Versioned(found.value[len(_LIVE) :], found.version)

    async def create(self, name: str, value: bytes) -> int:
        path = self._path(name)
        while True:
            found = await self._zookeeper.get(path)
            if found is not None and found.value.startswith(_LIVE):
                raise Exists(f"the register {name} exists")
            try:
                if found is not None:
                    return await self._zookeeper.set(path, _LIVE + value, found.version)
                await self._zookeeper.create(path, _LIVE + value, parents=True)
            except (Exists, Conflict):
                continue  # another client created the node, or a node below it
            return 0

    async def set(self, name: str, value: bytes, expected: int) -> int:
        return await self._replace(name, _LIVE + value, expected)

    async def delete(self, name: str, expected: int) -> None:
        await self._replace(name, _DELETED, expected)

    async def children(self, name: str) -> list[str]:
        found = []
        for child in await self._zookeeper.children(self._path(name)):
            below = f"{name}/{child}" if name else child
            if await self.get(below) is not None or await self.children(below):
                found.append(child)
        return found

    def watch(self, name: str, changed: Callable[[], None]) -> ZooKeeperWatch:
        return self._zookeeper.watch(self._path(name), changed)

    async def _replace(self, name: str, value: bytes, expected: int) -> int:
        # A deleted register's node has a higher version than the register ever had, so this never matches it.
        try:
            return await self._zookeeper.set(self._path(name), value, expected)
        except Conflict:
            if await self.get(name) is None:
                raise NotFound(f"there is no register {name}") from None
            raise

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root


class ZooKeeperMembers:
    """Members as ephemeral nodes below a root."""

    def __init__(self, zookeeper: ZooKeeper, root: str) -> None:
        self._zookeeper = zookeeper
        self._root = root.rstrip("/")

    def __repr__(self) -> str:
        return f"<ZooKeeperMembers {self._root} of {self._zookeeper!r}>"

    async def join(self, member: str, value: bytes, on_state: Callable[[MemberState], None]) -> ZooKeeperMembership:
        path = f"{self._root}/{member}"
        while True:
            try:
                creation = await self._zookeeper.create_ephemeral(path, value)
            except Exists:
                with suppress(NotFound):
                    await self._zookeeper.delete(path)
                continue
            return ZooKeeperMembership(self._zookeeper, path, creation, on_state)

    async def list(self) -> Mapping[str, bytes]:
        names = await self._zookeeper.children(self._root)
        values = await gather(*(self._zookeeper.get(f"{self._root}/{name}") for name in names))
        return {name: found.value for name, found in zip(names, values, strict=True) if found is not None}

    def watch(self, changed: Callable[[], None]) -> _TwoWatches:
        # Watch the root's value, too: a member that changes its own value also sets the root's.
        return _TwoWatches(
            self._zookeeper.watch_children(self._root, changed), self._zookeeper.watch(self._root, changed)
        )


class _TwoWatches:
    def __init__(self, *watches: ZooKeeperWatch) -> None:
        self._parts = watches

    def close(self) -> None:
        for watch in self._parts:
            watch.close()


class ZooKeeperMembership:
    """A membership as an ephemeral node.  The node's creation id tells it from a later member of the same id."""

    def __init__(self, zookeeper: ZooKeeper, path: str, creation: int, on_state: Callable[[MemberState], None]) -> None:
        self._zookeeper = zookeeper
        self._path = path
        self._creation = creation
        self._on_state = on_state
        self._state = MemberState.CONNECTED
        self._checking: asyncio.Task[None] | None = None
        self._changed = False  # whether the node changed since the last check began
        zookeeper.add_membership(self)
        self._watch = zookeeper.watch(path, self._on_change)

    def __repr__(self) -> str:
        return f"<ZooKeeperMembership {self._path} {self._state.value}>"

    @property
    def state(self) -> MemberState:
        return self._state

    @property
    def valid_until(self) -> float:
        return float("-inf") if self._state is MemberState.LOST else self._zookeeper.certain_until

    async def update(self, value: bytes) -> None:
        found = None if self._state is MemberState.LOST else await self._zookeeper.creation(self._path)
        if found is None or found[0] != self._creation:
            raise NotFound(f"the membership of {self._path} has ended")
        try:
            await self._zookeeper.set(self._path, value, found[1])
        except Conflict as error:
            raise Unavailable(f"two changes of the member at once: {error}") from None
        with suppress(NotFound):
            await self._zookeeper.set(self._path.rpartition("/")[0], b"", None)

    async def leave(self) -> None:
        lost = self._state is MemberState.LOST
        self.on_session_state(MemberState.LOST)
        found = None if lost else await self._zookeeper.creation(self._path)
        if found is not None and found[0] == self._creation:
            with suppress(NotFound, Conflict):
                await self._zookeeper.delete(self._path, found[1])

    def on_session_state(self, state: MemberState) -> None:
        """Receive a state of the session."""
        if state is self._state or self._state is MemberState.LOST:
            return
        self._state = state
        if state is MemberState.LOST:
            self._watch.close()
            if self._checking is not None:
                self._checking.cancel()
        self._on_state(state)

    def _on_change(self) -> None:
        self._changed = True
        if self._checking is None or self._checking.done():
            self._checking = asyncio.ensure_future(self._check())

    async def _check(self) -> None:
        """Become LOST if the node does not exist any more, or is another member's."""
        while self._changed:
            self._changed = False
            try:
                found = await self._zookeeper.creation(self._path)
            except SaritError:
                continue  # the next connection sets the watch, and checks again
            if found is None or found[0] != self._creation:
                self._checking = None
                self.on_session_state(MemberState.LOST)
                return
