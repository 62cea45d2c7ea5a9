"""The controllers and the workers of a cluster: each joins as a member, and knows the addresses of all of its kind."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Final

from sarit.cluster.limits import STORE_INCARNATION_BYTES
from sarit.coordination.polls import leave, poll
from sarit.coordination.port import MemberState
from sarit.core.errors import Invalid
from sarit.env.background import Background

if TYPE_CHECKING:
    from sarit.coordination.port import Members, Membership
    from sarit.env.ports import Env

_log = logging.getLogger("sarit.cluster")

CONTROLLERS: Final = "controllers"
WORKERS: Final = "workers"

Address = tuple[str, int]


class ControllerMembers:
    """One controller's membership, and the addresses of all, for `Controller(members=...)`; or one worker's.

    A controller that is suspended loses its lease, and joins again.  Until then others do its background work."""

    def __init__(self, members: Members, env: Env, what: str = "controller") -> None:
        self._members = members
        self._what = what
        self._is_known = asyncio.Event()
        self._env = env
        self._address: Address = ("", 0)
        self._known: tuple[Address, ...] = ()
        self._membership: Membership | None = None
        self._lease_changed = asyncio.Event()
        self._members_changed = asyncio.Event()
        self._background = Background.critical(_log, f"the membership of this {what}")

    def __repr__(self) -> str:
        return f"<ControllerMembers {self._known}, this one at {self._address}>"

    def addresses(self) -> tuple[Address, ...]:
        """Return the known addresses of all controllers, without I/O; empty before the first reply of ZooKeeper."""
        return self._known

    def start(self, address: Address) -> None:
        """Join as the serving controller at `address`, and follow the others, in the background."""
        self._address = address
        self._background.spawn(self._keep_joined())
        self._background.spawn(self._follow())

    async def joined(self) -> None:
        """Wait until this one was first seen among the members."""
        await self._is_known.wait()

    async def stop(self) -> None:
        """End the membership now."""
        await self._background.close()
        await leave(self._membership, _log, f"the {self._what}")

    async def _keep_joined(self) -> None:
        await poll(self._join, self._lease_changed, self._env.clock, _log, f"the {self._what} cannot join")

    async def _join(self) -> None:
        if self._membership is not None and self._membership.state is not MemberState.LOST:
            return
        # Join under a new name at each start, so that no other member is replaced; the old name ends with its lease.
        number = self._env.random.bytes(STORE_INCARNATION_BYTES).hex()
        host, port = self._address
        self._membership = await self._members.join(f"{host}:{port}-{number}", encode(self._address), self._on_state)

    def _on_state(self, state: MemberState) -> None:
        _log.info("the lease of the %s is %s", self._what, state.value)
        self._lease_changed.set()

    async def _follow(self) -> None:
        watch = self._members.watch(self._members_changed.set)
        try:
            await poll(self._read, self._members_changed, self._env.clock, _log, f"the {self._what}s cannot be listed")
        finally:
            watch.close()

    async def _read(self) -> None:
        self._known = tuple(sorted({decode(value) for value in (await self._members.list()).values()}))
        if self._address in self._known:
            self._is_known.set()


def encode(address: Address) -> bytes:
    """Encode a controller's address as the value of its member."""
    return json.dumps({"host": address[0], "port": address[1]}).encode()


def decode(value: bytes) -> Address:
    """Decode a controller's address.  Raises Invalid."""
    try:
        found = json.loads(value)
        return str(found["host"]), int(found["port"])
    except (ValueError, KeyError, TypeError) as error:
        raise Invalid(f"a controller's address cannot be read: {error}") from None
