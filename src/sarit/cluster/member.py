"""A store as a member of a cluster: joins, follows the container map, and reports the containers that it gave up.

The map says which containers this start of the store should open; each new version of the map becomes idempotent
commands to the store.  A container is released gracefully when the map moves it, and at once when the map names another
owner.  A container that the store has released or was fenced from changes the map.

| lease | the store |
|---|---|
| connected | serves and opens containers |
| suspended: no connection, or a heartbeat was not answered | serves with a proof for each answer, opens no container |
| lost | closes every container at once, without a checkpoint, and joins again as a new incarnation |
| lost, and another process has joined under its name | closes every container; its process ends |
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from sarit.cluster.limits import LEAVE_STORE_SECONDS, LEFT_STORE_SECONDS, STORE_INCARNATION_BYTES
from sarit.cluster.map_watch import MapWatch
from sarit.coordination.container_map import decode_store, encode_store
from sarit.coordination.limits import COORDINATION_RETRY_SECONDS, STORE_LEASE_MARGIN_SECONDS, STORE_LEASE_SECONDS
from sarit.coordination.map_register import change_map
from sarit.coordination.polls import leave, poll
from sarit.coordination.port import MemberState
from sarit.core.coverage_probes import coverage_probe
from sarit.core.errors import Exists, Fenced, NotFound, SaritError, Unavailable
from sarit.env.background import Background
from sarit.env.standstill import Standstill

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from sarit.coordination.container_map import ContainerMap, StoreAddress
    from sarit.coordination.port import Members, Membership, Registers
    from sarit.env.ports import Env
    from sarit.log.port import ClaimedLog, ConfirmableLogs

    class Hosting(Protocol):
        """The commands of a member to its segment store."""

        def own(self, number: int, map_version: int) -> None:
            """Open a container, or keep it open."""

        def release(self, number: int, *, graceful: bool) -> None:
            """Close a container; `graceful`: after a flush."""

        def lost(self) -> None:
            """Close all containers at once, without a flush."""

        def count_opening(self, moving: frozenset[int]) -> int:
            """Return how many containers are opening or are in `moving`, which are about to open."""


_log = logging.getLogger("sarit.cluster")
_LEASE_PROBES = {
    MemberState.CONNECTED: "lease_connected",
    MemberState.SUSPENDED: "lease_suspended",
    MemberState.LOST: "lease_lost",
}


class Member:
    """The membership of a store that follows the container map; the store's `Placement`.

    `lease_seconds`: the lease in the coordination service.  `on_failure`: called when the store cannot be a member any
    more."""

    def __init__(self, name: str, address: StoreAddress, registers: Registers, members: Members, env: Env,
        lease_seconds: float = STORE_LEASE_SECONDS, on_failure: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self.name = name
        # This event is set from the first join on.
        self.joined = asyncio.Event()
        # Why this store can never be a member again; None: it can.
        self.failure: SaritError | None = None
        self._on_failure = on_failure
        self.watch = MapWatch(registers, env.clock, self._follow)
        self._address = address
        self._registers = registers
        self._members = members
        self._env = env
        self._lease_seconds = lease_seconds
        self._standstill = Standstill(env.clock, STORE_LEASE_MARGIN_SECONDS)
        self._hosting: Hosting | None = None
        self._membership: Membership | None = None
        self._incarnations: set[int] = set()
        self.incarnation = 0  # the newest incarnation; 0: not joined yet
        self._released: set[int] = set()
        self._gone: dict[int, asyncio.Event] = {}  # by container: set when the map knows its release
        self._fenced: dict[int, int] = {}
        self.moved_away = self.fences = 0  # counts of containers since the start
        self._wake = asyncio.Event()
        self._map_changed = asyncio.Event()
        self._lease_changed = asyncio.Event()
        self._address_changed = asyncio.Event()
        self._announcing = asyncio.Lock()
        self._announced: StoreAddress | None = None
        self._background = Background(self._on_failed)

    def __repr__(self) -> str:
        return f"<Member {self.name} {self._membership}, {self.watch!r}>"

    def start(self, hosting: Hosting, port: int | None = None) -> None:
        """Join, and follow the map from then on, in the background.  `port`: the port that the store listens on."""
        self._hosting = hosting
        if port is not None:
            self._address = replace(self._address, port=port)
        for work in (self._keep_joined(), self.watch.run(), self._keep_reporting(), self._keep_announcing()):
            self._background.spawn(work)

    async def leave(self) -> None:
        """Wait up to LEAVE_STORE_SECONDS until all containers have moved away, then end the membership.

        Before the end, the store answers WrongHost for LEFT_STORE_SECONDS: a controller may not know the last map yet,
        and Pravega's client for Rust does not ask a controller again if no store listens at the address it was given.
        It tries that address again, from the fifth time on after 10 s."""
        if self.failure is not None:
            await self.stop()  # another process has this store's name in the map
            return
        self._address = replace(self._address, leaving=True)
        try:
            async with asyncio.timeout(LEAVE_STORE_SECONDS):
                await self._announce()
                moved = False
                while self._has_containers_to_move():
                    moved = True
                    self._map_changed.clear()
                    await self._map_changed.wait()
                if moved:
                    await asyncio.sleep(LEFT_STORE_SECONDS)
        except TimeoutError:
            _log.warning("store %s leaves although it still has containers", self.name)
        await self.stop()

    async def reweigh(self, weight: int) -> None:
        """Change this store's weight, its share of the containers; 0: none."""
        if weight != self._address.weight:
            self._address = replace(self._address, weight=weight)
            await self._announce()

    @property
    def leaves(self) -> bool:
        """Whether this store's containers are to move to other stores."""
        return self._address.leaving or not self._address.weight

    async def stop(self) -> None:
        """End the membership now.  Containers that the store still has are then assigned to others."""
        await self._background.close()
        await leave(self._membership, _log, f"store {self.name}")

    # -- the store's placement ------------------------------------------------------------------

    def is_mine(self, number: int) -> bool:
        """Return whether the map gives a container to this store, or moves it here, or moves it away before its
        release."""
        record = self.watch.map
        return record is not None and self.name in (record.owners[number], record.moving.get(number))

    def valid(self) -> bool:
        """Return whether no other store can own this store's containers.

        That is so while it is connected, its lease runs, and it has read the map within a lease, because a revoked
        container is given to another store only after a lease.  Both must have been renewed after the last suspension
        of the machine, in which its monotonic clock may have stood still."""
        membership = self._membership
        # Require a connection: an operator can end a session before its lease, and the connection is lost first.
        if membership is None or membership.state is not MemberState.CONNECTED:
            return False
        term, now = self._lease_seconds - STORE_LEASE_MARGIN_SECONDS, self._standstill.now()
        until = min(membership.valid_until, self.watch.read_at + term)
        return max(now, self._standstill.ended_at + term) < until

    def lease_left(self) -> float:
        """Return the seconds until the lease ends if no heartbeat is answered any more; 0 or less: it has ended."""
        membership = self._membership
        if membership is None or membership.state is MemberState.LOST:
            return 0.0
        return membership.valid_until - self._env.clock.monotonic()

    def fenced(self, number: int, map_version: int) -> None:
        """Record that another store has opened a container that this store had opened under `map_version`."""
        self.fences += 1
        self._fenced[number] = max(map_version, self._fenced.get(number, map_version))
        self._wake.set()

    def opening_changed(self) -> None:
        """Announce how many containers the store opens now."""
        self._address_changed.set()

    def released(self, number: int) -> asyncio.Event | None:
        """Record that a container is closed here, and report it to the map.

        Returns an event that is set when the map has changed, so that controllers send clients to the next owner; None:
        the map does not have the container here."""
        record = self.watch.map
        if record is None or record.moving.get(number) != self.name:
            return None
        self._released.add(number)
        self.moved_away += 1
        self._wake.set()
        return self._gone.setdefault(number, asyncio.Event())

    async def confirm(self, number: int) -> None:
        """Read the map once more before a container is opened.

        Raises Fenced (the map does not give the container to this start of the store), Unavailable."""
        if self._membership is None or self._membership.state is not MemberState.CONNECTED:
            raise Unavailable("the lease of this store is not certain")
        record = await self.watch.read()
        if record is None or not record.named(number, self.name, self._address.incarnation):
            coverage_probe("opener_not_named")
            raise Fenced(f"the map does not give container {number} to this store any more")

    # -- tasks ------------------------------------------------------------------------------------

    async def _keep_joined(self) -> None:
        await poll(self._join, self._lease_changed, self._env.clock, _log, f"store {self.name} cannot join")

    def _is_lost(self) -> bool:
        return self._membership is None or self._membership.state is MemberState.LOST

    async def _join(self) -> None:
        """Join as a new incarnation, unless the lease runs.  Raises Exists (another process has joined under this
        store's name), Unavailable, Invalid."""
        if not self._is_lost():
            return
        found = (await self._members.list()).get(self.name)
        if (
            self._membership is not None
            and found is not None
            and decode_store(found).incarnation not in self._incarnations
        ):
            other = decode_store(found)
            raise Exists(
                f"another process, at {other.host}:{other.port}, has joined as store {self.name} while the lease of "
                "this one was lost: this one has given up its containers and ends; give each store an --id of its own"
            )
        self.incarnation = incarnation = int.from_bytes(self._env.random.bytes(STORE_INCARNATION_BYTES), "big")
        self._incarnations.add(incarnation)
        self._address = replace(self._address, incarnation=incarnation)
        self._announced = address = self._address
        self._membership = await self._members.join(self.name, encode_store(address), self._on_state)
        self.joined.set()
        # Follow the known map: it may have named this start before the reply came.
        if self.watch.map is not None:
            self._follow(self.watch.map)

    def _on_state(self, state: MemberState) -> None:
        _log.info("the lease of store %s is %s", self.name, state.value)
        coverage_probe(_LEASE_PROBES[state])
        if state is MemberState.LOST and self._hosting is not None:
            self._hosting.lost()
        self._lease_changed.set()

    async def _announce(self) -> None:
        """Write this store's address and state, and retry until it is written."""
        while True:
            try:
                await self._write_address()
                return
            except Unavailable:
                await asyncio.sleep(COORDINATION_RETRY_SECONDS)

    async def _keep_announcing(self) -> None:
        await poll(
            self._write_address, self._address_changed, self._env.clock, _log, f"store {self.name} cannot be announced"
        )

    async def _write_address(self) -> None:
        """Write this store's address and state if they have changed.  Raises Unavailable."""
        async with self._announcing:
            address = self._address_now()
            if self._membership is None or address == self._announced:
                return
            self._announced = None  # until the outcome is known
            with suppress(NotFound):  # the lease ended: the next join writes this state
                await self._membership.update(encode_store(address))
                self._announced = address

    def _address_now(self) -> StoreAddress:
        record, hosting = self.watch.map, self._hosting
        if record is None or hosting is None:
            return self._address
        coming = frozenset(number for number in record.moving if record.owners[number] == self.name)
        return replace(self._address, opening=hosting.count_opening(coming))

    def _has_containers_to_move(self) -> bool:
        record = self.watch.map
        if record is None or not any(store.usable for name, store in record.stores.items() if name != self.name):
            return False
        return any(self.is_mine(number) for number in range(len(record.owners)))

    async def _keep_reporting(self) -> None:
        await poll(
            self._report, self._wake, self._env.clock, _log, f"store {self.name} cannot change the container map"
        )

    async def _report(self) -> None:
        """Change the map by the containers that the store gave up.  Raises Unavailable (repeat it), Invalid."""
        released, fenced = set(self._released), dict(self._fenced)
        # After a failure another process may have this store's name.
        if self.failure is not None or (not released and not fenced):
            return

        def change(record: ContainerMap) -> ContainerMap:
            changed = record
            for number in released & self._released:  # the map may have given one back meanwhile
                changed = changed.released(number, self.name)
            for number, opened_version in fenced.items():
                changed = changed.fenced(number, self.name, opened_version)
            # Raise the version once for all of these changes.
            return record if changed is record else replace(changed, version=record.version + 1)

        record = await change_map(self._registers, change)
        self._released -= released
        self._fenced = {number: version for number, version in self._fenced.items() if fenced.get(number) != version}
        if record is not None:
            self.watch.learn(record)

    def _on_failed(self, _: asyncio.Task[Any], error: BaseException) -> None:
        """Fail the member when one of its tasks ends with an error: the store would keep its name and serve nothing."""
        if self.failure is not None:
            return
        if isinstance(error, SaritError):
            self.failure = error
            _log.critical("%s", error)
        else:
            self.failure = Unavailable(f"store {self.name} is no member any more: internal error, see its log")
            _log.critical("the membership of this store failed: internal error", exc_info=error)
        if self._hosting is not None:
            self._hosting.lost()
        self._on_failure()

    # -- the map ----------------------------------------------------------------------------------

    def _follow(self, record: ContainerMap) -> None:
        """Command the store by a newer map."""
        self._map_changed.set()
        self._address_changed.set()
        for number in [number for number in self._gone if record.moving.get(number) != self.name]:
            self._gone.pop(number).set()
        hosting = self._hosting
        if hosting is None or self._is_lost():
            return
        for number in range(len(record.owners)):
            if record.named(number, self.name, self._address.incarnation):
                self._released.discard(number)
                hosting.own(number, record.version)
            else:
                hosting.release(number, graceful=record.leaves(number, self.name))


class ConfirmedLogs:
    """A `LogProvider` that reads the map once more before the earlier owner of a log is fenced."""

    def __init__(self, logs: ConfirmableLogs, member: Member) -> None:
        self._logs = logs
        self._member = member

    async def claim(self, container: int) -> ClaimedLog:
        """Claim the log of a container.  Raises Fenced when the map names another store."""
        return await self._logs.claim(container, partial(self._member.confirm, container))
