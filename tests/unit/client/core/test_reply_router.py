"""Replies find their sinks, without a socket."""

import pytest

from sarit.client.core.connection import ReplyRouter
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


def greeted() -> ReplyRouter:
    router = ReplyRouter()
    router.received(frames(c.Hello(17, 5)))
    return router


def test_hello_comes_first_on_either_side() -> None:
    router = ReplyRouter()
    assert [c.decode(*frame) for frame in FrameReader().feed(router.hello())] == [c.Hello(17, 5)]
    with pytest.raises(Unavailable, match="Hello first"):
        router.received(frames(c.SegmentSealed(1, "s")))
    router = greeted()
    assert router.greeted


def test_incompatible_wire_version_raises_unavailable() -> None:
    for hello in (c.Hello(4, 1), c.Hello(99, 18)):
        with pytest.raises(Unavailable, match="update the older"):
            ReplyRouter().received(frames(hello))
    ReplyRouter().received(frames(c.Hello(15, 5)))


def test_replies_out_of_order_reach_their_sinks() -> None:
    router = greeted()
    one, many, other = Waiter(), Waiter(last=False), Waiter()
    ids = [router.expect(waiter) for waiter in (one, many, other)]
    assert len(set(ids)) == 3
    router.received(
        frames(
            c.SegmentSealed(ids[2], "c"),
            c.SegmentSealed(ids[1], "b"),
            c.KeepAlive(),
            c.SegmentSealed(ids[1], "b"),
            c.SegmentSealed(ids[2], "late, nobody waits"),
        )
    )
    assert (len(one.got), len(many.got), len(other.got)) == (0, 2, 1)
    router.forget(ids[1])
    router.received(frames(c.SegmentSealed(ids[1], "b")))
    assert len(many.got) == 2


def test_lost_connection_fails_all_sinks() -> None:
    router = greeted()
    one, many = Waiter(), Waiter(last=False)
    router.expect(one)
    router.expect(many)
    error = Unavailable("gone")
    router.lost(error)
    assert one.got == many.got == [error]
    assert repr(router) == "ReplyRouter(greeted, 0 sinks)"


def test_sink_that_raises_does_not_keep_others_from_failing(caplog) -> None:
    class Broken(Waiter):
        def lost(self, error) -> None:
            raise RuntimeError("a bug")

    router, after = greeted(), Waiter()
    router.expect(Broken())
    router.expect(after)
    router.lost(Unavailable("gone"))
    assert len(after.got) == 1
    assert "a sink failed when it was notified" in caplog.text
