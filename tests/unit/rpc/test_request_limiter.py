"""Requests in bounded memory and time, replies in bounded time."""

import asyncio
import struct

import pytest

from sarit.rpc.generated import controller_pb2 as pb
from sarit.rpc.limits import MAX_API_REQUEST_BYTES
from sarit.rpc.request_limiter import RequestLimiter
from sarit.rpc.statistics import CallStatistics
from sarit.rpc.status import CallFailed, Status


class Call:
    """A call that gets `data` and then nothing, or its end."""

    metadata, peer = {}, "h:1"

    def __init__(self, data: bytes, *, ended: bool = True) -> None:
        self.data = data
        self.ended = ended
        self.aborted = 0
        self.known = False
        self.taken = asyncio.Event()

    def abort(self) -> bool:
        self.aborted += 1
        return self.aborted == 1

    def client_is_known(self) -> None:
        self.known = True

    async def read(self, size: int) -> bytes:
        if len(self.data) < size and not self.ended:
            await asyncio.Event().wait()
        taken, self.data = self.data[:size], self.data[size:]
        return taken

    def reply(self, _: bytes):
        return self.taken.wait()


def framed(data: bytes, length: int | None = None) -> bytes:
    return struct.pack(">BI", 0, len(data) if length is None else length) + data


LARGE = pb.StreamCut(cut={segment << 40: segment << 40 for segment in range(1, 15_000)})


def test_pieces_of_large_requests_count_while_they_arrive():
    async def main():
        limiter = RequestLimiter(max_buffered_bytes=500_000, timeout_seconds=0.2)
        whole = framed(LARGE.SerializeToString())
        assert await limiter.receive(Call(whole), pb.StreamCut) == LARGE
        waiting = asyncio.create_task(limiter.receive(Call(whole[:-10], ended=False), pb.StreamCut))
        await asyncio.sleep(0)
        with pytest.raises(CallFailed) as error:
            await limiter.receive(Call(whole), pb.StreamCut)
        assert error.value.status is Status.RESOURCE_EXHAUSTED
        with pytest.raises(CallFailed) as error:
            await waiting
        assert error.value.status is Status.DEADLINE_EXCEEDED
        assert await limiter.receive(Call(whole), pb.StreamCut) == LARGE  # cancelled requests are not counted any more
        assert repr(limiter) == "<RequestLimiter, 0 calls, 0 bytes of unfinished requests>"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"", Status.INVALID_ARGUMENT),
        (b"\0\0", Status.INVALID_ARGUMENT),
        (framed(b"", 10), Status.INVALID_ARGUMENT),
        (framed(bytes(70_000), 80_000), Status.INVALID_ARGUMENT),
        (framed(b"", MAX_API_REQUEST_BYTES + 1), Status.INVALID_ARGUMENT),
        (framed(b"\xff\xff"), Status.INVALID_ARGUMENT),
        (framed(pb.StreamCut(streamInfo={"scope": "x" * 80_000}).SerializeToString()), Status.INVALID_ARGUMENT),
        (b"\1" + framed(b"")[1:], Status.UNIMPLEMENTED),
    ],
)
def test_invalid_request_gets_a_status(data, status):
    async def main():
        with pytest.raises(CallFailed) as error:
            await RequestLimiter().receive(Call(data), pb.StreamCut)
        assert error.value.status is status

    asyncio.run(main())


def test_connection_that_does_not_take_replies_is_closed_with_one_log_line(caplog):
    async def main():
        limiter = RequestLimiter(timeout_seconds=0.01)
        call = Call(b"")
        results = await asyncio.gather(
            *(limiter.deliver(call, pb.StreamCut()) for _ in range(3)), return_exceptions=True
        )
        assert {type(result) for result in results} == {CallFailed}
        assert call.aborted == 3
        call.taken.set()
        await limiter.deliver(call, pb.StreamCut())

    asyncio.run(main())
    assert [record.getMessage() for record in caplog.records] == [
        "API connection h:1 closed: it did not take replies for 0 s"
    ]


def test_calls_under_way_are_bounded():
    limiter = RequestLimiter(max_calls=2, statistics=CallStatistics(lambda: 0.0))
    with limiter.call():
        with limiter.call(), pytest.raises(CallFailed) as error, limiter.call():
            pass
        assert error.value.status is Status.RESOURCE_EXHAUSTED
        with limiter.call():
            pass
