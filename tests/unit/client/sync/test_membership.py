"""Groups and elections on a real node: joining, dying, leading, and never two leaders."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from sarit.client import aio
from sarit.core.errors import Invalid, NotFound, Unavailable
from tests.limits import HANG_SECONDS
from tests.unit.client.nodes import on_node

LEASE = 0.6


@asynccontextmanager
async def process(made):
    """A client of its own: closing it is the death of a process to others."""
    client = await aio.connect(made.address)
    try:
        yield client.coordination
    finally:
        await client.close()


def names(membership) -> list[str]:
    return [member.name for member in membership.members]


async def until_names(membership, wanted: list[str]) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while names(membership) != wanted:
            await membership.changed(membership.members)


@on_node
async def test_members_join_leave_and_are_removed_when_dead(made) -> None:
    coordination = made.client.coordination
    watcher = await coordination.membership("s/group", join=False, lease_seconds=LEASE)
    one = await coordination.membership("s/group", "one", data="host:1", lease_seconds=LEASE)
    async with process(made) as other:
        two = await other.membership("s/group", "two", lease_seconds=LEASE)
        await until_names(one, ["one", "two"])
        await two.describe("busy")
        await until_names(watcher, ["one", "two"])
        while watcher.members[1].data != "busy":
            await watcher.changed(watcher.members)
        assert (one.members[0].data, one.number, two.number) == ("host:1", 1, 2)
        await asyncio.sleep(2 * LEASE)
        assert (one.holds, two.holds, names(watcher)) == (True, True, ["one", "two"])
    began = asyncio.get_running_loop().time()
    await until_names(watcher, ["one"])
    assert asyncio.get_running_loop().time() - began < 3 * LEASE
    await one.close()
    await until_names(watcher, [])
    with pytest.raises(Invalid):
        await one.joined()
    await watcher.close()


@on_node
async def test_member_waits_for_a_taken_name(made) -> None:
    coordination = made.client.coordination
    async with process(made) as other:
        first = await other.membership("s/group", "same", lease_seconds=LEASE)
        second = await coordination.membership("s/group", "same", lease_seconds=LEASE)
        await asyncio.sleep(1.5 * LEASE)
        assert (first.number, second.number, second.holds) == (1, None, False)
    assert await asyncio.wait_for(second.joined(), HANG_SECONDS) == 2
    await second.close()


@on_node
async def test_removed_member_joins_again(made) -> None:
    one = await made.client.coordination.membership("s/group", "one", lease_seconds=LEASE)
    async with one:
        two = await made.client.coordination.membership("s/group", "two", lease_seconds=LEASE)
        turn, stuck = one._heartbeat_round, asyncio.Event()

        async def hang() -> None:
            await stuck.wait()
            await turn()

        one._heartbeat_round = hang
        await until_names(two, ["two"])
        assert not one.holds
        stuck.set()
        await until_names(two, ["two", "one"])
        assert (await one.joined(), one.holds) == (3, True)
        await two.close()


@on_node
async def test_invalid_arguments_and_a_deleted_group_raise(made) -> None:
    coordination = made.client.coordination
    one = await coordination.membership("s/group", lease_seconds=LEASE)
    assert len(one.name) == 16
    for wrong in ({"lease_seconds": 3.0}, {"lease_seconds": 0.01}, {"lease_seconds": LEASE, "data": "x" * 20_000}):
        with pytest.raises(Invalid):
            await coordination.membership("s/group", **wrong)
    watcher = await coordination.membership("s/group", join=False, lease_seconds=LEASE)
    for call in (watcher.joined(), watcher.describe("x"), watcher.rejoin()):
        with pytest.raises(Invalid):
            await call
    await made.client.delete_stream("s/group", seal=True)
    with pytest.raises(NotFound):
        async with asyncio.timeout(HANG_SECONDS):
            while True:
                await watcher.changed(watcher.members)
    await one.close()


@on_node
async def test_leaders_succeed_with_rising_tokens(made) -> None:
    coordination = made.client.coordination
    first = await coordination.leader_election("s/leader", "first", data="host:1", lease_seconds=LEASE)
    assert await first.lead() == 1
    tokens = [1]
    async with process(made) as other:
        second = await other.leader_election("s/leader", "second", lease_seconds=LEASE)
        third = await coordination.leader_election("s/leader", "third", lease_seconds=LEASE)
        assert (second.leading, second.leader.name, second.leader.data) == (False, "first", "host:1")
        await first.resign()
        await asyncio.wait_for(first.lost(1), HANG_SECONDS)
        tokens.append(await asyncio.wait_for(second.lead(), HANG_SECONDS))
        await asyncio.sleep(2 * LEASE)
        assert [candidate.leading for candidate in (first, second, third)] == [False, True, False]
    tokens.append(await asyncio.wait_for(third.lead(), HANG_SECONDS))
    await third.close()
    tokens.append(await asyncio.wait_for(first.lead(), HANG_SECONDS))
    assert tokens == [1, 2, 3, 4]
    await first.close()


@on_node
async def test_isolated_leader_stops_before_the_next_begins(made) -> None:
    """Observed by the same clock: the moments at which each finds itself leading do not overlap."""
    clock = asyncio.get_running_loop().time
    async with process(made) as other:
        one = await made.client.coordination.leader_election("s/leader", "one", lease_seconds=LEASE)
        two = await other.leader_election("s/leader", "two", lease_seconds=LEASE)
        token = await one.lead()

        async def cut_off(*_):
            raise Unavailable("cut off")

        one.membership._shared.fetch = one.membership._shared.update = cut_off
        lost = asyncio.ensure_future(one.lost(token))
        last_of_one = first_of_two = 0.0
        while not first_of_two:
            if one.leading:
                last_of_one = clock()
            if two.leading:
                first_of_two = clock()
            await asyncio.sleep(0.001)
        await asyncio.wait_for(lost, HANG_SECONDS)
        assert 0 < last_of_one < first_of_two
        assert two.token > token
        del one.membership._shared.fetch, one.membership._shared.update
        await one.close()
        await two.close()


@on_node
async def test_many_candidates_have_one_leader_through_lost_connections(made) -> None:
    elect = made.client.coordination.leader_election
    candidates = [await elect("s/leader", f"c{n}", lease_seconds=LEASE) for n in range(5)]
    leaders, reigns = list(candidates), []
    for _ in range(12):
        made.cut_connections()
        leading = [asyncio.ensure_future(candidate.lead()) for candidate in leaders]
        done, _ = await asyncio.wait(leading, return_when=asyncio.FIRST_COMPLETED, timeout=HANG_SECONDS)
        (chosen,) = [candidate for candidate, task in zip(leaders, leading, strict=True) if task in done]
        for task in leading:
            task.cancel()
        reigns.append(chosen.token)
        assert sum(candidate.leading for candidate in candidates) == 1
        await chosen.resign()
        assert not chosen.leading
    assert reigns == sorted(set(reigns))
    for candidate in candidates:
        await candidate.close()


@on_node
async def test_error_in_the_membership_task_is_raised_to_waiters(made) -> None:
    """It was logged alone, and they waited for ever; a member that leads went on to say so."""
    one = await made.client.coordination.membership("s/group", lease_seconds=LEASE)
    await one.joined()

    async def broken() -> None:
        raise RuntimeError("a bug")

    one._shared.fetch = broken
    async with asyncio.timeout(HANG_SECONDS):
        with pytest.raises(RuntimeError, match="a bug"):
            while True:
                await one.changed(one.members)
    assert not one.holds
