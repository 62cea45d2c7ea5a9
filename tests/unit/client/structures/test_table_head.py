"""The head of a list or a queue: its bytes, and additions whose replies are lost, on a table that is a fake."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from types import SimpleNamespace

import pytest

from sarit.client.structures import table_head
from sarit.client.structures.formats import LIST, QUEUE
from sarit.client.structures.limits import HEAD_OPERATIONS
from sarit.client.structures.table_head import Head, TableHead
from sarit.client.tables.changes import Replace
from sarit.client.tables.layout import Entry
from sarit.core.errors import Conflict, Corrupt, Invalid, Unavailable


def test_bytes_of_a_head() -> None:
    head = Head(3, 1, 30_000, 2, ((b"12345678", 2),))
    wanted = "0000000000000003000000000000000100000000000075300000000000000002"
    assert table_head.encode(QUEUE, head) == b"q\x01" + bytes.fromhex(wanted) + b"12345678" + bytes(7) + b"\x02"
    assert table_head.decode(QUEUE, table_head.encode(QUEUE, head)) == head
    with pytest.raises(Invalid, match="this name is a shared queue, not a list"):
        table_head.decode(LIST, table_head.encode(QUEUE, head))


BROKEN = [b"", b"l\x01", b"l\x01" + bytes(31), b"l\x01" + bytes(33), b"l\x01" + bytes(32 + 16 * (HEAD_OPERATIONS + 1))]
BROKEN += [b"l\x01" + b"\xff" * 32, b"l\x01" + bytes(8) + b"\x01" + bytes(23)]  # negative; the first beyond the next


@pytest.mark.parametrize("broken", BROKEN)
def test_broken_bytes_are_refused(broken: bytes) -> None:
    with pytest.raises(Corrupt):
        table_head.decode(LIST, broken)


def test_head_remembers_the_last_operations() -> None:
    head = Head()
    for number in range(HEAD_OPERATIONS + 5):
        head = head.after(b"%08d" % number, 3)
    assert (head.next, head.operations, len(head.recent)) == (111, 37, HEAD_OPERATIONS)
    assert (head.number_of(b"00000004"), head.number_of(b"00000005"), head.number_of(b"00000036")) == (None, 15, 108)


def lost(text: str, failure: str) -> Unavailable:
    error = Unavailable(text)
    error.final = failure.startswith("final")
    return error


class FakeBackoff:
    """Does not pause, and gives up when an error is final."""

    def begin(self) -> FakeBackoff:
        return self

    async def wait(self, error: Unavailable) -> None:
        if error.final:
            raise error


class FakeTable:
    """A table whose replies and requests are lost as `fails` says, "final" ones for good; others write in between."""

    name = "s/t"

    def __init__(self) -> None:
        self.rows: dict[bytes, tuple[bytes, int]] = {}
        self.version = 0
        self.fails: list[str] = []  # of the next updates: "request" or "reply" is lost, or "" for none
        self.before = lambda: None
        self.lag = lambda: 0
        self.late: tuple[tuple[bytes, int], int] | None = None  # the head that some more reads show

    async def get(self, key: bytes) -> Entry | None:
        row = self.rows.get(key)
        if self.late is not None and self.late[1] > 0:
            row, self.late = self.late[0], (self.late[0], self.late[1] - 1)
        return None if row is None else Entry(key, b"", *row)

    async def update(self, changes) -> list[int]:
        self.before()
        failure = self.fails.pop(0) if self.fails else ""
        if failure.endswith("request"):
            raise lost("the request was lost", failure)
        for change in changes:
            actual = self.rows.get(change.key, (b"", -1))[1]
            if actual != (change.version if isinstance(change, Replace) else -1):
                raise Conflict("another version")
        durable = self.rows[World.KEY]
        for change in changes:
            self.put(change.key, change.value)
        self.late = durable, self.lag() if failure else 0
        if failure.endswith("reply"):
            raise lost("the reply was lost", failure)
        return [self.rows[change.key][1] for change in changes]

    def put(self, key: bytes, value: bytes) -> None:
        self.version += 1
        self.rows[key] = value, self.version


class World:
    """A list's head on a fake table."""

    KEY = b"h" + bytes(8)

    def __init__(self) -> None:
        rng = random.Random(1)
        env = SimpleNamespace(
            random=SimpleNamespace(bytes=rng.randbytes, random=lambda: 0.0),
            clock=SimpleNamespace(monotonic=lambda: 0.0),
        )
        self.table = FakeTable()
        self.table.put(self.KEY, table_head.encode(LIST, Head()))
        self.head = TableHead(SimpleNamespace(env=env, backoff=FakeBackoff), self.table, LIST, 9)
        self.others = 0

    async def add(self, count: int = 1, value: bytes = b"v") -> int:
        return await self.head.add(lambda first: [(b"i%d" % (first + n), value) for n in range(count)], count)

    def add_of_another(self) -> None:
        head = table_head.decode(LIST, self.table.rows[self.KEY][0])
        self.others += 1
        self.table.late = self.table.rows[self.KEY], self.table.lag()
        self.table.put(b"i%d" % head.next, b"other")
        self.table.put(self.KEY, table_head.encode(LIST, head.after(b"%08d" % self.others, 1)))

    def items(self) -> list[bytes]:
        return [value for key, (value, _) in sorted(self.table.rows.items()) if key != self.KEY]


def run(test) -> None:
    asyncio.run(test)


def test_additions_are_numbered_though_others_come_between() -> None:
    async def go() -> None:
        world = World()
        assert await world.add() == 0
        world.add_of_another()
        assert await world.add(2) == 2
        assert world.items() == [b"v", b"other", b"v", b"v"]

    run(go())


def test_lost_reply_is_found_in_the_head() -> None:
    async def go() -> None:
        world = World()
        world.table.fails = ["reply"]
        assert await world.add() == 0
        assert await world.add() == 1
        assert world.items() == [b"v", b"v"]

    run(go())


def test_lost_reply_is_found_after_as_many_others_as_the_head_remembers() -> None:
    async def go() -> None:
        for others in (HEAD_OPERATIONS - 1, HEAD_OPERATIONS):
            world = World()
            get = world.table.get

            async def after_others(key: bytes, world=world, get=get, others=others) -> Entry | None:
                while len(world.table.rows) > 1 and world.others < others:
                    world.add_of_another()
                return await get(key)

            world.table.get = after_others
            world.table.fails = ["reply"]
            if others < HEAD_OPERATIONS:
                assert await world.add() == 0
            else:
                with pytest.raises(Unavailable, match="the reply was lost"):
                    await world.add()
            assert world.items().count(b"v") == 1

    run(go())


def test_lost_request_is_made_again_unless_the_time_is_over_while_it_can_still_arrive() -> None:
    async def go() -> None:
        world = World()
        world.table.fails = ["final request"]
        with pytest.raises(Unavailable):
            await world.add()
        assert world.items() == []
        world.table.fails = ["final request"]
        # The other one's change is between the lost request and the look at the head: the request cannot be done now.
        lost = []
        world.table.before = lambda: lost or (lost.append(1), world.add_of_another())
        assert await world.add() == 1
        world.table.fails = ["request", "request", "reply"]
        assert await world.add() == 2
        assert world.items() == [b"other", b"v", b"v"]

    run(go())


def test_reads_that_lag_behind_a_change_on_its_way_repeat_it_harmlessly() -> None:
    async def go() -> None:
        world = World()
        world.table.lag = lambda: 3
        world.table.fails = ["reply"]
        assert await world.add() == 0
        assert world.table.late[1] == 0, "late reads were shown"
        assert world.items() == [b"v"]

    run(go())


def test_random_failures_and_others_leave_no_gap_and_no_double() -> None:
    async def go() -> None:
        rng = random.Random(3)
        for _ in range(60):
            world = World()
            world.table.before = lambda world=world: rng.random() < 0.4 and world.add_of_another()
            world.table.lag = lambda: rng.choice((0, 0, 1, 3))
            numbers = dict[bytes, int]()
            for value in (b"v%d" % n for n in range(30)):
                world.table.fails = rng.choices(["", "request", "reply", "final request"], [3, 1, 1, 1], k=3)
                with suppress(Unavailable):  # it may be added or not
                    numbers[value] = await world.add(1, value)
            head = table_head.decode(LIST, world.table.rows[World.KEY][0])
            assert head.next == len(world.items())
            assert all(world.table.rows[b"i%d" % number][0] == value for value, number in numbers.items())
            added = [value for value in world.items() if value != b"other"]
            assert len(added) == len(set(added)) >= len(numbers)

    run(go())
