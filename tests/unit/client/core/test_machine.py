"""The connection without a connection."""

import pytest

from sarit.client.core.machine import Machine
from sarit.core.errors import Unavailable
from sarit.wire import commands as c
from sarit.wire.frames import FrameReader


class Waiter:
    def __init__(self, last: bool = True) -> None:
        self.got: list = []
        self.last = last

    def reply(self, command) -> bool:
        self.got.append(command)
        return self.last

    def lost(self, error) -> None:
        self.got.append(error)


def frames(*commands):
    return FrameReader().feed(b"".join(map(c.encode, commands)))


def greeted() -> Machine:
    machine = Machine()
    machine.received(frames(c.Hello(17, 5)))
    return machine


def test_hello_comes_first_on_either_side() -> None:
    machine = Machine()
    assert [c.decode(*frame) for frame in FrameReader().feed(machine.hello())] == [c.Hello(17, 5)]
    with pytest.raises(Unavailable, match="Hello first"):
        machine.received(frames(c.SegmentSealed(1, "s")))
    machine = greeted()
    assert machine.greeted


def test_a_store_of_another_time_is_refused() -> None:
    for hello in (c.Hello(4, 1), c.Hello(99, 18)):
        with pytest.raises(Unavailable, match="update the older"):
            Machine().received(frames(hello))
    Machine().received(frames(c.Hello(15, 5)))


def test_replies_find_who_asked_also_out_of_order() -> None:
    machine = greeted()
    one, many, other = Waiter(), Waiter(last=False), Waiter()
    ids = [machine.expect(waiter) for waiter in (one, many, other)]
    assert len(set(ids)) == 3
    machine.received(
        frames(
            c.SegmentSealed(ids[2], "c"),
            c.SegmentSealed(ids[1], "b"),
            c.KeepAlive(),
            c.SegmentSealed(ids[1], "b"),
            c.SegmentSealed(ids[2], "late, nobody waits"),
        )
    )
    assert (len(one.got), len(many.got), len(other.got)) == (0, 2, 1)
    machine.forget(ids[1])
    machine.received(frames(c.SegmentSealed(ids[1], "b")))
    assert len(many.got) == 2


def test_all_who_wait_learn_that_the_connection_is_lost() -> None:
    machine = greeted()
    one, many = Waiter(), Waiter(last=False)
    machine.expect(one)
    machine.expect(many)
    error = Unavailable("gone")
    machine.lost(error)
    assert one.got == many.got == [error]
    assert not machine.waiting


def test_one_that_fails_when_told_of_the_end_does_not_keep_it_from_the_others(caplog) -> None:
    class Broken(Waiter):
        def lost(self, error) -> None:
            raise RuntimeError("a bug")

    machine, after = greeted(), Waiter()
    machine.expect(Broken())
    machine.expect(after)
    machine.lost(Unavailable("gone"))
    assert len(after.got) == 1
    assert "could not be told" in caplog.text
