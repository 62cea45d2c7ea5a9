"""Keep-alive: bytes either way show that a connection lives, not whole commands alone."""

import asyncio

import pytest

from sarit.client.core.connection import Connection
from sarit.client.limits import ASK_OWNER_AFTER_CHECKS, CHECKS_PER_KEEP_ALIVE, DEAD_AFTER_KEEP_ALIVES
from sarit.wire import commands as c

HELLO = c.encode(c.Hello(17, 5))
REPLY = c.encode(c.SegmentRead("s/t/0", 0, False, False, b"x" * 100_000, 1))


class Transport:
    """`full`: the socket takes nothing, all that is written waits."""

    def __init__(self) -> None:
        self.waiting = 0
        self.full = False
        self.aborted = False
        self.echoes = 0

    def write(self, data: bytes) -> None:
        self.echoes += data == c.encode(c.KeepAlive())
        if self.full:
            self.waiting += len(data)

    def writelines(self, parts) -> None:
        self.write(b"".join(parts))

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True


def on_connection(test):
    """Run a test with a connection that was greeted; its clock is the test's calls of `tick`."""

    async def go() -> None:
        transport, connection = Transport(), Connection("a store")
        connection.connection_made(transport)
        arrive(connection, HELLO)
        await connection.greeted
        tick(connection)
        assert not connection.closed
        test(transport, connection)
        connection.connection_lost(None)

    def run() -> None:
        asyncio.run(go())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def arrive(connection: Connection, data: bytes) -> None:
    while data:
        buffer = connection.get_buffer(-1)
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        connection.buffer_updated(count)
        data = data[count:]


def check(connection: Connection) -> None:
    connection._tick.cancel()
    connection._keep_alive()


def tick(connection: Connection, times: int = 1) -> None:
    """Let whole intervals pass."""
    for _ in range(times * CHECKS_PER_KEEP_ALIVE):
        if not connection.closed:
            check(connection)


@on_connection
def test_slow_reply_keeps_the_connection_alive(transport, connection) -> None:
    """A link too slow for one reply in 40 s was aborted each time, and the request sent again."""
    step = len(REPLY) // 50
    for at in range(0, len(REPLY) - step, step):
        arrive(connection, REPLY[at : at + step])
        tick(connection)
        assert not connection.closed
    tick(connection, DEAD_AFTER_KEEP_ALIVES)
    assert connection.closed
    assert transport.aborted


@on_connection
def test_slow_send_keeps_the_connection_alive(transport, connection) -> None:
    transport.full = True
    connection.send([bytes(1_000_000)])
    for _ in range(50):
        tick(connection)
        assert not connection.closed
        transport.waiting -= 10_000
    tick(connection, DEAD_AFTER_KEEP_ALIVES + 1)
    assert connection.closed


@pytest.mark.parametrize("written", [0, 1, 100_000])
def test_unsent_bytes_alone_do_not_keep_the_connection_alive(written) -> None:
    @on_connection
    def test(transport, connection) -> None:
        transport.full = True
        connection.send([bytes(1_000_000)])
        for _ in range(DEAD_AFTER_KEEP_ALIVES):
            assert not connection.closed
            connection.send([bytes(written)])
            tick(connection)
        assert connection.closed

    test()


@on_connection
def test_growing_queue_that_drains_keeps_the_connection_alive(transport, connection) -> None:
    transport.full = True
    for _ in range(3 * DEAD_AFTER_KEEP_ALIVES):
        connection.send([b"x" * 2_000_000])
        transport.waiting -= 1_000_000
        tick(connection)
        assert not connection.closed


@on_connection
def test_store_that_takes_nothing_aborts_the_connection(transport, connection) -> None:
    transport.full = True
    for _ in range(2 * DEAD_AFTER_KEEP_ALIVES):
        if not connection.closed:
            connection.send([b"x" * 1000])
            tick(connection)
    assert connection.closed


@on_connection
def test_store_that_does_not_answer_is_reported_less_and_less_often(transport, connection) -> None:
    """Who waited for a store that stood still learned of its containers' move after 30 to 40 s alone."""
    reports: list[int] = []
    echoes = transport.echoes
    for _ in range(2 * CHECKS_PER_KEEP_ALIVE):  # nobody waits
        check(connection)
    assert transport.echoes - echoes == 2
    connection._on_unanswered = lambda _: reports.append(number)
    request = connection.expect(Waiter())
    arrive(connection, HELLO)
    check(connection)
    echoes = transport.echoes
    for number in range(1, 3 * CHECKS_PER_KEEP_ALIVE):
        check(connection)
        if number == ASK_OWNER_AFTER_CHECKS - 1:
            assert transport.echoes - echoes == 1  # it was asked before, and not because an interval ended
    assert reports == [4, 6, 8, 10, 13, 17, 22]
    arrive(connection, HELLO)  # any byte ends the silence
    reports.clear()
    for _ in range(ASK_OWNER_AFTER_CHECKS):
        check(connection)
    assert not reports
    check(connection)
    assert len(reports) == 1
    connection.forget(request)


class Waiter:
    def lost(self, error: Exception) -> None:
        """Nobody waits for it."""
