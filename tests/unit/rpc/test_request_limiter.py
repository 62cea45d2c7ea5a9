"""Requests in bounded memory and time, replies in bounded time."""

import asyncio
import struct
from types import SimpleNamespace

import pytest
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from sarit.core.limits import MAX_API_REQUEST_BYTES
from sarit.rpc.generated import controller_pb2 as pb
from sarit.rpc.request_limiter import RequestLimiter
from sarit.rpc.statistics import CallStatistics


class Stream:
    """A grpclib server's stream that gets `data` and then nothing, or its end."""

    def __init__(self, data: bytes, *, ended: bool = True) -> None:
        self._recv_type = pb.StreamCut
        self.data = data
        self.ended = ended
        self.aborted = 0
        self.taken = asyncio.Event()
        transport = SimpleNamespace(is_closing=lambda: self.aborted, get_extra_info=lambda _: None, abort=self._abort)
        self._stream = SimpleNamespace(recv_data=self._recv, _transport=transport)

    def _abort(self) -> None:
        self.aborted += 1

    async def _recv(self, size: int) -> bytes:
        if len(self.data) < size:
            if not self.ended:
                await asyncio.Event().wait()
            if self.data:
                raise AssertionError("Received less data than expected")
            return b""
        taken, self.data = self.data[:size], self.data[size:]
        return taken

    async def send_message(self, _: object) -> None:
        await self.taken.wait()


def framed(data: bytes, length: int | None = None) -> bytes:
    return struct.pack(">BI", 0, len(data) if length is None else length) + data


LARGE = pb.StreamCut(cut={segment << 40: segment << 40 for segment in range(1, 15_000)})


def test_pieces_of_large_requests_count_while_they_arrive():
    async def main():
        limiter = RequestLimiter(max_buffered_bytes=500_000, timeout_seconds=0.2)
        whole = framed(LARGE.SerializeToString())
        assert await limiter.receive(Stream(whole)) == LARGE
        waiting = asyncio.create_task(limiter.receive(Stream(whole[:-10], ended=False)))
        await asyncio.sleep(0)
        with pytest.raises(GRPCError) as error:
            await limiter.receive(Stream(whole))
        assert error.value.status is Status.RESOURCE_EXHAUSTED
        with pytest.raises(GRPCError) as error:
            await waiting
        assert error.value.status is Status.DEADLINE_EXCEEDED
        assert await limiter.receive(Stream(whole)) == LARGE  # cancelled requests are not counted any more
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
        with pytest.raises(GRPCError) as error:
            await RequestLimiter().receive(Stream(data))
        assert error.value.status is status

    asyncio.run(main())


def test_connection_that_does_not_take_replies_is_closed_with_one_log_line(caplog):
    async def main():
        limiter = RequestLimiter(timeout_seconds=0.01)
        stream = Stream(b"")
        results = await asyncio.gather(*(limiter.deliver(stream, None) for _ in range(3)), return_exceptions=True)
        assert {type(result) for result in results} == {GRPCError}
        assert stream.aborted == 1
        stream.taken.set()
        await limiter.deliver(stream, None)

    asyncio.run(main())
    assert [record.getMessage() for record in caplog.records] == [
        "API connection ? closed: it did not take replies for 0 s"
    ]


def test_calls_under_way_are_bounded():
    limiter = RequestLimiter(max_calls=2, statistics=CallStatistics(lambda: 0.0))
    with limiter.call():
        with limiter.call(), pytest.raises(GRPCError) as error, limiter.call():
            pass
        assert error.value.status is Status.RESOURCE_EXHAUSTED
        with limiter.call():
            pass
