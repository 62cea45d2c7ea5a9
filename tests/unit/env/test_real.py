"""The real implementations of the ports: files, workers and sockets of this machine."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from typing import Any

import pytest

from sarit.env import real
from sarit.env.background import Background
from sarit.env.real import RealThreads, real_env
from tests.limits import HANG_SECONDS


async def _worker_runs_in_order() -> None:
    worker = RealThreads().worker("test")
    seen: list[Any] = []
    here = threading.get_ident()

    def fail() -> None:
        raise OSError("planned")

    worker.submit(threading.get_ident, lambda result, error: seen.append((result != here, error)))
    worker.submit(fail, lambda result, error: seen.append((result, str(error))))

    def bad_callback(result: object, error: object) -> None:
        seen.append("bad")
        raise ValueError("a caller's bug")

    bugs: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: bugs.append(context))
    worker.submit(lambda: 1, bad_callback)
    assert await worker.run(lambda: 42) == 42
    assert seen == [(True, None), (None, "planned"), "bad"]
    assert isinstance(bugs[0]["exception"], ValueError)
    with pytest.raises(OSError, match="planned"):
        await worker.run(fail)
    slow = worker.run(lambda: threading.Event().wait(0.05))
    await asyncio.gather(worker.close(), worker.close())
    assert slow.done(), "close returns after what was submitted"
    assert not worker._thread.is_alive()
    with pytest.raises(RuntimeError):
        worker.submit(int, bad_callback)


def test_a_worker_runs_calls_in_order_and_survives_bugs() -> None:
    asyncio.run(_worker_runs_in_order())


def test_a_thread_ends_though_the_task_that_waits_for_it_is_cancelled_before_it_begins() -> None:
    async def close() -> threading.Thread:
        worker = RealThreads().worker("test")
        await worker.run(int)
        background = Background.critical(logging.getLogger(), "a test")
        background.spawn(worker.close())
        await background.close()
        return worker._thread

    thread = asyncio.run(close())
    thread.join(HANG_SECONDS)
    assert not thread.is_alive()


class CancelledMeanwhile(asyncio.Future):
    """A future that Ctrl-C cancels right after it was seen pending."""

    def done(self) -> bool:
        found = super().done()
        self.cancel()
        return found


@pytest.mark.parametrize("call", [int, lambda: 1 / 0], ids=["result", "error"])
def test_a_result_for_a_caller_whom_an_interrupt_has_just_cancelled_is_dropped(call, caplog) -> None:
    async def cancelled() -> bool:
        loop = asyncio.get_running_loop()
        worker = RealThreads().worker("test")
        loop.create_future = lambda: CancelledMeanwhile(loop=loop)
        future = worker.run(call)
        del loop.create_future
        await asyncio.wait((future,))
        await worker.close()
        return future.cancelled()

    assert asyncio.run(cancelled())
    assert caplog.text == ""


def test_thread_that_does_not_begin_fails_its_jobs_and_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """`Thread.start` waited for ever for a thread that died of a lack of memory: the event loop stood still."""
    started: list[Any] = []
    monkeypatch.setattr(real._thread, "start_new_thread", lambda start, arguments: started.append(start))
    monkeypatch.setattr(real, "WORKER_START_SECONDS", 0.01)

    async def main() -> None:
        worker = RealThreads().worker("test")
        ran: list[int] = []
        with pytest.raises(RuntimeError, match="thread test does not run"):
            await worker.run(lambda: ran.append(1))
        with pytest.raises(RuntimeError, match="thread test does not run"):
            await worker.run(lambda: ran.append(2))
        await worker.close()
        started[0]()  # it begins after all
        worker._thread.join()
        assert not ran

    asyncio.run(main())


@pytest.mark.parametrize(("error", "survives"), [(MemoryError, True), (ValueError, False)])
def test_no_result_is_lost_with_the_memory_for_its_hand_over(error, survives) -> None:
    """The thread died without a word, and what waited for it waited for ever."""

    async def main() -> None:
        worker = RealThreads().worker("test")
        loop, failures = asyncio.get_running_loop(), [error]
        original = loop.call_soon_threadsafe

        def failing(*args: Any, **options: Any) -> Any:
            if failures:
                raise failures.pop()
            return original(*args, **options)

        loop.call_soon_threadsafe = failing  # type: ignore[method-assign]
        first = worker.run(lambda: 1)
        second = worker.run(lambda: 2)
        if survives:
            assert [await first, await second] == [1, 2]
        else:
            with pytest.raises(RuntimeError, match="thread test does not run"):
                await second
        await worker.close()

    asyncio.run(main())


def test_queued_results_share_one_wake_up() -> None:
    async def main() -> int:
        worker = RealThreads().worker("test")
        loop = asyncio.get_running_loop()
        wakes = 0
        original = loop.call_soon_threadsafe

        def counted(*args: Any, **options: Any) -> Any:
            nonlocal wakes
            wakes += 1
            return original(*args, **options)

        loop.call_soon_threadsafe = counted  # type: ignore[method-assign]
        finished = threading.Event()
        results: list[int] = []
        for n in range(100):
            worker.submit(lambda n=n: n, lambda result, error: results.append(result))
        worker.submit(finished.set, lambda result, error: None)
        finished.wait()  # the loop is blocked meanwhile: nothing can be delivered
        await worker.close()
        assert results == list(range(100))
        return wakes

    assert asyncio.run(main()) <= 3


class _Echo(asyncio.BufferedProtocol):
    def __init__(self, accepted: asyncio.Queue[_Echo] | None = None) -> None:
        self.accepted = accepted
        self.buffer = bytearray(1 << 16)
        self.received = bytearray()
        self.closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        if self.accepted is not None:
            self.accepted.put_nowait(self)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self.buffer[:nbytes]
        if self.received.endswith(b"\n") and self.transport.get_extra_info("peername"):
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set_result(None)


@pytest.mark.parametrize("loop_name", ["asyncio", "uvloop"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", ""])
def test_sockets_have_no_nagle_delay_on_either_side(loop_name, host) -> None:
    async def main() -> None:
        accepted: asyncio.Queue[_Echo] = asyncio.Queue()
        network = real_env().network
        server = await network.serve(lambda: _Echo(accepted), host, 0)
        port = server.sockets[0].getsockname()[1]
        transport, client = await network.connect(_Echo, "127.0.0.1", port)
        transport.write(b"hello\n")
        await client.closed
        assert (await accepted.get()).received == b"hello\n"
        _, held = await network.connect(_Echo, "127.0.0.1", port)
        other = await accepted.get()
        for side in (held, other):
            assert side.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        server.close()
        held.transport.close()
        await held.closed

    if loop_name == "uvloop":
        import uvloop

        uvloop.run(main())
    else:
        asyncio.run(main())


def test_a_taken_port_is_an_error() -> None:
    async def main() -> None:
        network = real_env().network
        server = await network.serve(_Echo, "127.0.0.1", 0)
        with pytest.raises(OSError):
            await network.serve(_Echo, "127.0.0.1", server.sockets[0].getsockname()[1])
        server.close()

    asyncio.run(main())


def test_results_of_a_thread_give_way_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of reads of the index that ended together held the loop for 150 ms."""
    monkeypatch.setattr(real, "DELIVERY_SECONDS", 0.0)

    async def main() -> None:
        worker = RealThreads().worker("test")
        order: list[Any] = []
        loop, held = asyncio.get_running_loop(), threading.Event()
        for number in range(10):
            worker.submit(lambda: None, lambda _, __, number=number: order.append(number))
        worker.submit(held.set, lambda _, __: order.append("last"))
        held.wait()  # the loop is blocked: all results wait for it
        while "last" not in order:
            loop.call_soon(order.append, "other")
            await asyncio.sleep(0)
        await worker.close()
        numbers = [one for one in order if one != "other"]
        assert numbers == [*range(10), "last"]
        assert order.index("other") < order.index(2)

    asyncio.run(main())
