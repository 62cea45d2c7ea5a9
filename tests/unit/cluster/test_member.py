"""A store as a member: what the map makes it do, what it reports, when it trusts its lease."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from sarit.cluster import member as member_module
from sarit.cluster.map_watch import MapWatch
from sarit.cluster.member import ConfirmedLogs, Member
from sarit.coordination.container_map import ContainerMap, StoreAddress, decode_store
from sarit.coordination.map_register import STORES, change_map, read_map, write_map
from sarit.coordination.memory import MemoryCoordination
from sarit.coordination.port import MemberState
from sarit.core.errors import Exists, Fenced, Unavailable
from sarit.env.real import real_env

HANG_SECONDS = 60
LEASE_SECONDS = 3.0
CONTAINERS = 3


class Hosting:
    """Records the commands to a store."""

    def __init__(self) -> None:
        self.member: Member | None = None
        self.commands: list[tuple] = []
        self.opening: frozenset[int] = frozenset()
        self.releases = True  # whether it reports a release at once
        self.away: list[asyncio.Event] = []  # what it got for the reports that the map has to follow
        self._changed = asyncio.Event()

    def own(self, number: int, map_version: int) -> None:
        self._note("own", number, map_version)

    def release(self, number: int, *, graceful: bool) -> None:
        self._note("release", number, graceful)
        if self.releases:
            away = self.member.released(number)
            if away is not None:
                assert not away.is_set()
                self.away.append(away)

    def lost(self) -> None:
        self._note("lost")

    def count_opening(self, more: frozenset[int]) -> int:
        return len(self.opening | more)

    async def until(self, *command) -> None:
        """Wait for a command."""
        while command not in self.commands:
            self._changed.clear()
            await self._changed.wait()

    def _note(self, *command) -> None:
        self.commands.append(command)
        self._changed.set()


class Cluster:
    """The service, a member `a` of it, and another client."""

    def __init__(self) -> None:
        self.service = MemoryCoordination(lease_seconds=LEASE_SECONDS)
        self.registers = self.service.client("test", real_env().clock)
        self.hosting = Hosting()
        client = self.service.client("a", real_env().clock)
        address = StoreAddress("10.0.0.1", 1, "m", 0)
        self.ended = lambda: None
        self.member = Member(
            "a", address, client, client.members(STORES), real_env(), LEASE_SECONDS, lambda: self.ended()
        )
        self.hosting.member = self.member

    def hold_the_answer_to_the_join(self) -> None:
        """Until `answer` is set."""
        self.answer = asyncio.Event()
        members = self.member._members
        join = members.join

        async def held(*given):
            membership = await join(*given)
            await self.answer.wait()
            return membership

        members.join = held

    async def joined(self, *but: StoreAddress) -> StoreAddress:
        """The address of `a` as a member, in an incarnation that is not one of `but`."""
        changed = asyncio.Event()
        watch = self.registers.members(STORES).watch(changed.set)
        while True:
            found = (await self.registers.members(STORES).list()).get("a")
            if found is not None and decode_store(found) not in but:
                watch.close()
                return decode_store(found)
            changed.clear()
            await changed.wait()

    async def write(self, owners, moving=None, **stores) -> ContainerMap:
        """Write a map in which `a` has its incarnation."""
        found = await read_map(self.registers)
        current, version = found or (ContainerMap.empty(CONTAINERS), None)
        address = stores.get("a") or await self.joined()
        others = {
            name: replace(address, incarnation=5, leaving=False) for name in (*owners, *(moving or {}).values()) if name
        }
        record = ContainerMap(current.version + 1, {**others, "a": address}, tuple(owners), moving or {})
        await write_map(self.registers, record, version)
        return record

    async def own_all_validly(self) -> None:
        """Give all containers to `a`, whose lease runs."""
        await self.write(["a"] * CONTAINERS)
        await self.hosting.until("own", 0, 1)
        assert self.member.valid()

    async def map_where(self, holds) -> ContainerMap:
        """The first map for which `holds(map)`."""
        changed = asyncio.Event()
        watch = self.registers.watch("map", changed.set)
        while True:
            changed.clear()
            found = await read_map(self.registers)
            if found is not None and holds(found[0]):
                watch.close()
                return found[0]
            await changed.wait()


def run(main, *, held: bool = False) -> None:
    @asynccontextmanager
    async def started():
        cluster = Cluster()
        if held:
            cluster.hold_the_answer_to_the_join()
        cluster.member.start(cluster.hosting)
        try:
            yield cluster
        finally:
            await cluster.member.stop()

    async def bounded():
        async with asyncio.timeout(HANG_SECONDS), started() as cluster:
            await main(cluster)

    asyncio.run(bounded())


def test_member_opens_what_the_map_gives_it():
    async def main(cluster):
        await cluster.write(["a", "b", None])
        await cluster.hosting.until("own", 0, 1)
        assert ("own", 1, 1) not in cluster.hosting.commands
        assert [cluster.member.is_mine(number) for number in range(3)] == [True, False, False]

    run(main)


def test_member_ignores_a_map_of_its_earlier_start():
    async def main(cluster):
        now = await cluster.joined()
        await cluster.write(["a", "a", "a"], a=replace(now, incarnation=now.incarnation ^ 1))
        await cluster.hosting.until("release", 0, False)
        assert not [command for command in cluster.hosting.commands if command[0] == "own"]

    run(main)


def test_moving_container_is_released_and_the_move_ends_in_the_map():
    async def main(cluster):
        await cluster.write(["b", "a", "a"], {0: "a"})
        await cluster.hosting.until("release", 0, True)
        record = await cluster.map_where(lambda record: not record.moving)
        assert (record.version, record.owners) == (2, ("b", "a", "a"))
        await cluster.hosting.away[0].wait()  # clients may be sent away: the map names the next owner
        await cluster.hosting.until("own", 1, 1)

    run(main)


def test_container_that_moves_here_is_opened_only_after_its_release():
    async def main(cluster):
        await cluster.write(["a", "b", "b"], {0: "b"})
        await cluster.hosting.until("release", 2, False)  # it has seen the map
        assert not [command for command in cluster.hosting.commands if command[0] == "own"]
        assert cluster.member.is_mine(0)  # requests may wait here
        await change_map(cluster.registers, lambda record: record.released(0, "b"))
        await cluster.hosting.until("own", 0, 2)

    run(main)


def test_revoked_container_is_dropped_at_once_and_reported():
    async def main(cluster):
        await cluster.write([None, "a", "a"], {0: "a"})
        await cluster.hosting.until("release", 0, False)
        await cluster.map_where(lambda record: not record.moving)

    run(main)


def test_fenced_container_is_opened_again_under_a_newer_map():
    async def main(cluster):
        await cluster.write(["a", "b", "b"])
        await cluster.hosting.until("own", 0, 1)
        cluster.member.fenced(0, 1)
        await cluster.hosting.until("own", 0, 2)

    run(main)


def test_fenced_container_that_has_another_owner_is_not_asked_for():
    async def main(cluster):
        await cluster.write(["a", "b", "b"])
        await cluster.hosting.until("own", 0, 1)
        await cluster.write(["b", "a", "b"])
        cluster.member.fenced(0, 1)
        await cluster.hosting.until("own", 1, 2)
        await cluster.member._report()
        assert (await read_map(cluster.registers))[0].version == 2

    run(main)


def test_reports_are_repeated_until_their_outcome_is_known():
    async def main(cluster):
        await cluster.write(["a", "b", "b"])
        await cluster.hosting.until("own", 0, 1)
        outcomes = iter(["refused", "applied"] * 6)
        cluster.service.faults.fault = lambda: next(outcomes, "")
        cluster.member.fenced(0, 1)
        await cluster.hosting.until("own", 0, 2)

    run(main)


def test_lost_lease_closes_everything_and_the_member_joins_again():
    async def main(cluster):
        first = await cluster.joined()
        await cluster.own_all_validly()
        cluster.service.expire(STORES, "a")
        await cluster.hosting.until("lost")
        again = await cluster.joined(first)
        assert again.incarnation != first.incarnation
        await cluster.write(["a", "a", "a"], a=again)
        await cluster.hosting.until("own", 0, 2)

    run(main)


def test_lease_that_ends_closes_everything_at_once():
    async def main(cluster):
        await cluster.joined()
        cluster.member._on_state(MemberState.LOST)
        assert cluster.hosting.commands == [("lost",)]

    run(main)


def test_map_that_comes_before_the_answer_to_the_join_is_followed():
    async def main(cluster):
        await cluster.joined()  # as others see it; the member has no answer yet
        await cluster.write(["a", "b", "b"])
        await cluster.member.watch.read()
        assert cluster.member._membership is None
        assert cluster.hosting.commands == []
        cluster.answer.set()
        await cluster.hosting.until("own", 0, 1)

    run(main, held=True)


def test_store_ends_when_another_process_has_its_name():
    async def main(cluster):
        ended = asyncio.Event()
        cluster.ended = ended.set
        await cluster.own_all_validly()
        other = cluster.service.client("other", real_env().clock)
        rival = Member("a", StoreAddress("10.0.0.2", 1, "m", 0), other, other.members(STORES), real_env())
        hosting = Hosting()
        hosting.member = rival
        rival.start(hosting)
        await ended.wait()
        assert isinstance(cluster.member.failure, Exists)
        assert "another process, at 10.0.0.2:1, has joined as store a" in str(cluster.member.failure)
        assert cluster.hosting.commands[-1] == ("lost",)
        assert not cluster.member.valid()
        # It does not join again, and does not wait until what the map gives to this name has moved.
        await cluster.member.leave()
        assert rival.failure is None
        await rival.stop()

    run(main)


def test_store_announces_how_many_containers_it_opens_or_is_about_to():
    async def main(cluster):
        async def announces(count):
            while (await cluster.joined()).opening != count:
                await asyncio.sleep(0.001)

        await cluster.own_all_validly()
        await announces(0)
        cluster.hosting.opening = frozenset({0, 1})
        cluster.member.opening_changed()
        await announces(2)
        # One more moves to it.
        await cluster.write(["a"] * CONTAINERS, {2: "b"})
        await announces(3)
        cluster.hosting.opening = frozenset()
        await cluster.write(["a"] * CONTAINERS)
        await announces(0)

    run(main)


def test_announcement_whose_outcome_is_unknown_is_made_again():
    """The count that came before was taken for the one that is there: moves waited for ever."""

    async def main(cluster):
        await cluster.own_all_validly()
        while cluster.member._announced is None:
            await asyncio.sleep(0.001)
        membership = cluster.member._membership
        update, answers = membership.update, [Unavailable("the answer was lost")]

        async def lose_an_answer(value):
            await update(value)
            if answers:
                cluster.hosting.opening = frozenset()
                raise answers.pop()

        membership.update = lose_an_answer
        cluster.hosting.opening = frozenset({0})
        cluster.member.opening_changed()
        while answers or (await cluster.joined()).opening:
            await asyncio.sleep(0.001)

    run(main)


def test_store_ends_when_its_membership_fails_by_a_bug():
    async def main(cluster):
        ended = asyncio.Event()
        cluster.ended = ended.set
        await cluster.own_all_validly()

        async def broken() -> None:
            raise ZeroDivisionError

        cluster.member._members.list = broken
        cluster.service.expire(STORES, "a")
        await ended.wait()
        assert "internal error" in str(cluster.member.failure)
        assert cluster.hosting.commands[-1] == ("lost",)

    run(main)


def test_lease_is_not_trusted_while_coordination_is_away():
    async def main(cluster):
        await cluster.own_all_validly()
        cluster.service.faults.cut_off.add("a")
        while cluster.member.valid():
            await asyncio.sleep(0.01)
        # The others have not lost it yet.
        assert "a" in await cluster.registers.members(STORES).list()

    run(main)


def test_lease_is_not_trusted_without_a_connection():
    async def main(cluster):
        await cluster.own_all_validly()
        cluster.service.faults.cut_off.add("a")
        while cluster.member._membership.state is MemberState.CONNECTED:
            await asyncio.sleep(0.01)
        # An operator may have ended the session, and its containers may be another store's.
        assert not cluster.member.valid()
        assert cluster.member.lease_left() > 0

    run(main)


def test_lease_is_not_trusted_without_a_recent_map():
    async def main(cluster):
        await cluster.own_all_validly()
        cluster.member.watch.read_at -= LEASE_SECONDS
        assert not cluster.member.valid()

    run(main)


def test_lease_is_not_trusted_after_a_pause_that_only_the_wall_clock_has_seen():
    async def main(cluster):
        await cluster.own_all_validly()
        clock = cluster.member._env.clock
        wall_ms = clock.wall_ms
        clock.wall_ms = lambda: wall_ms() + int(LEASE_SECONDS * 1000)
        assert not cluster.member.valid()
        while not cluster.member.valid():  # until a heartbeat is answered, and the map is read
            await asyncio.sleep(0.01)

    run(main)


def test_opener_that_the_newest_map_does_not_name_gives_up():
    class Logs:
        claims = 0

        async def claim(self, container, confirm):
            await confirm()
            self.claims += 1

    async def main(cluster):
        await cluster.joined()
        cluster.service.faults.watch_delay = lambda: None
        logs = Logs()
        confirmed = ConfirmedLogs(logs, cluster.member)
        await cluster.write(["a", "b", "b"])
        await cluster.hosting.until("own", 0, 1)
        await confirmed.claim(0)
        await cluster.write(["b", "b", "b"])
        with pytest.raises(Fenced):
            await confirmed.claim(0)
        cluster.service.faults.cut_off.add("a")
        with pytest.raises(Unavailable):
            await confirmed.claim(0)
        assert logs.claims == 1

    run(main)


def test_leaving_store_waits_until_its_containers_have_moved_and_controllers_know(monkeypatch):
    monkeypatch.setattr(member_module, "LEFT_STORE_SECONDS", 0.1)

    async def main(cluster):
        await cluster.write(["a", "b", "b"])
        await cluster.hosting.until("own", 0, 1)
        leaving = asyncio.ensure_future(cluster.member.leave())
        await cluster.joined(await cluster.joined())  # its address says that it leaves
        assert not leaving.done()
        await cluster.write(["b", "b", "b"], {0: "a"})
        while cluster.member._has_containers_to_move():
            await asyncio.sleep(0.001)
        began = asyncio.get_running_loop().time()
        assert "a" in await cluster.registers.members(STORES).list()
        await leaving
        assert asyncio.get_running_loop().time() - began > 0.05
        assert (await read_map(cluster.registers))[0].moving == {}
        assert "a" not in await cluster.registers.members(STORES).list()

    run(main)


def test_last_store_does_not_wait_when_it_leaves():
    async def main(cluster):
        await cluster.write(["a", "a", "a"])
        await cluster.hosting.until("own", 0, 1)
        await cluster.member.leave()
        assert "a" not in await cluster.registers.members(STORES).list()

    run(main)


def test_lost_watches_are_made_up_for_by_polls():
    async def main(cluster):
        await cluster.joined()
        cluster.service.faults.watch_delay = lambda: None
        await cluster.write(["a", "b", "b"])
        await cluster.hosting.until("own", 0, 1)
        await cluster.write(["a", "a", "b"])
        await cluster.hosting.until("own", 1, 2)

    run(main)


def test_router_names_the_store_that_serves_a_moving_container():
    watch = MapWatch(MemoryCoordination().client("x", real_env().clock), real_env().clock)
    for ask in (lambda: watch.address(0), lambda: watch.containers):
        with pytest.raises(Unavailable):
            ask()
    stores = {name: StoreAddress(f"10.0.0.{at}", at, name, 1) for at, name in enumerate("ab", 1)}
    watch.learn(ContainerMap(2, stores, ("a", "b", None), {1: "a"}))
    assert watch.containers == 3
    assert watch.address(0) == ("10.0.0.1", 1)
    assert watch.address(1) == ("10.0.0.1", 1)
    with pytest.raises(Unavailable, match="container 2"):
        watch.address(2)
    watch.learn(ContainerMap(1, stores, ("b", "b", "b")))  # an older map
    assert watch.address(0) == ("10.0.0.1", 1)
