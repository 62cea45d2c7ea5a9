"""Calls that end because of another thread, the garbage collector, or Ctrl-C."""

import asyncio
import threading
from time import monotonic

import pytest

from sarit.client.blocking import loop_thread
from sarit.client.blocking.loop_thread import LoopThread
from sarit.core.errors import Invalid, Unavailable
from sarit.core.names import SegmentId
from tests.limits import HANG_SECONDS
from tests.unit.client.world import World

FIRST = SegmentId(0, 0)


def outcome(work):
    """Start `work` on a thread; the result is a function that waits for its result or error."""
    found = []

    def go() -> None:
        try:
            found.append(work())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=go, daemon=True)
    thread.start()

    def ended():
        thread.join(20)
        assert found, "it hangs"
        return found[0]

    return ended


def test_close_ends_calls_of_other_threads(world: World) -> None:
    world.controller.create("s/t")
    asked = threading.Event()

    async def away(stream):
        asked.set()
        raise Unavailable("nobody answers")

    world.controller.head_segments = away
    retrying = outcome(lambda: world.blocking.stream_cut_head("s/t"))
    waiting = outcome(lambda: list(world.blocking.segment_batches("s/t", FIRST)))
    assert asked.wait(10)
    world.blocking.close()
    assert isinstance(retrying(), Invalid)
    assert isinstance(waiting(), Invalid)


def test_call_that_begins_as_the_loop_ends_is_refused() -> None:
    thread = LoopThread()
    arrived = threading.Semaphore(0)

    def last_turn() -> None:
        thread.loop.stop()
        for _ in range(20):
            arrived.acquire()

    def begin() -> None:
        arrived.release()
        thread.run(asyncio.sleep(3600))

    thread.call(last_turn)
    refused = [outcome(begin) for _ in range(20)]
    assert all(isinstance(one(), Invalid) for one in refused)
    thread.close()


def test_second_close_does_not_stop_cancelled_tasks_of_the_first() -> None:
    """The first close stops the loop, then runs it until the cancelled tasks end; a second stop must not end that."""
    thread = LoopThread()
    ending, second_close = threading.Event(), threading.Event()

    async def slow_to_end() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ending.set()
            await asyncio.to_thread(second_close.wait, 10)

    call = outcome(lambda: thread.run(slow_to_end()))
    thread.run(asyncio.sleep(0))
    closers = [outcome(thread.close)]
    assert ending.wait(10)
    closers.append(outcome(thread.close))
    second_close.set()
    assert isinstance(call(), Invalid)
    assert [closer() for closer in closers] == [None, None]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_system_exit_on_the_loop_ends_all_calls() -> None:
    thread = LoopThread()

    def leave() -> None:
        raise SystemExit

    call = outcome(lambda: thread.run(asyncio.sleep(3600)))
    thread.run(asyncio.sleep(0))
    thread.call(leave)
    assert isinstance(call(), Invalid)
    thread.close()
    assert not thread.alive


def test_iterator_collected_on_the_loop_thread_does_not_block_the_loop(world: World) -> None:
    world.controller.create("s/t")
    with world.blocking.writer("s/t") as writer:
        writer.write(b"1")
    batches = world.blocking.segment_batches("s/t", FIRST)
    next(batches)
    world.thread.call(batches.close)  # as the garbage collector does
    assert outcome(lambda: world.blocking.stream_cut_head("s/t"))() is not None
    assert not isinstance(outcome(lambda: world.blocking.stream_cut_tail("s/t"))(), Exception)


def test_blocking_call_on_the_loop_thread_is_refused(world: World) -> None:
    refused = []

    def inside() -> None:
        try:
            world.blocking.stream_cut_tail("s/t")
        except Invalid as error:
            refused.append(error)

    world.thread.call(inside)
    world.thread.run(asyncio.sleep(0))
    assert "own thread" in str(refused[0])


def test_iterable_arguments_are_read_on_the_callers_thread(world: World) -> None:
    """The iterator of a caller may itself call the client."""
    world.controller.create("s/t")
    segments = world.blocking.stream_cut_tail("s/t").positions
    active = (segment for segment in segments if not world.blocking.successors("s/t", segment))
    assert world.blocking.segment_infos("s/t", active).keys() == {FIRST}


def test_write_at_its_bound_raises_when_the_loop_thread_is_gone(world: World) -> None:
    """As in a forked process: it has the writer, but not its thread."""
    world.controller.create("s/t")
    writer = world.blocking.writer("s/t", buffer_bytes=1000)
    writer.flush()
    world.thread.run(world.store.stop())
    world.thread.close()
    writer._inner.failure = None  # a forked process would not see it

    def write_on() -> None:
        for _ in range(10):
            writer.write(b"x" * 200_000)

    assert "forked" in str(outcome(write_on)())


def test_write_at_its_bound_raises_when_the_writer_is_abandoned(world: World) -> None:
    world.controller.create("s/t")
    world.store.ack_delay = 1000.0
    writer = world.blocking.writer("s/t", buffer_bytes=1000)
    waits, wait = threading.Event(), writer._overrides._space.wait
    writer._overrides._space.wait = lambda timeout: (waits.set(), wait(timeout))

    def write_on() -> None:
        for _ in range(10):
            writer.write(b"x" * 200_000)

    writing = outcome(write_on)
    assert waits.wait(10)
    writer.__exit__(ValueError, ValueError(), None)
    assert "closed before everything was durable" in str(writing())


class Interrupted(loop_thread.Future):
    """Ctrl-C interrupts the caller that waits for the result, at the moment the test chooses."""

    moment = threading.Event()

    def result(self, timeout=None):
        assert self.moment.wait(10)
        raise KeyboardInterrupt


def test_ctrl_c_waits_for_the_end_of_the_interrupted_task(world: World, monkeypatch) -> None:
    ended = []

    async def work() -> None:
        Interrupted.moment.set()
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            ended.append(True)

    Interrupted.moment.clear()
    monkeypatch.setattr(loop_thread, "CANCEL_GRACE_SECONDS", 60.0)
    began = monotonic()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(loop_thread, "Future", Interrupted)
        world.thread.run(work())
    assert ended
    assert monotonic() - began < 30  # at the end of the task, not after the grace period


def test_ctrl_c_during_a_read_consumes_no_bytes(world: World, monkeypatch) -> None:
    world.controller.create("s/b")
    with world.blocking.byte_writer("s/b") as writer:
        writer.write(b"0123456789")
    reader = world.blocking.byte_reader("s/b")
    assert reader.read(2) == b"01"
    original = reader._inner.fill

    async def filled() -> None:
        try:
            await original()
        finally:
            Interrupted.moment.set()

    monkeypatch.setattr(reader._inner, "fill", filled)
    for read in (reader.read, reader.read_exactly):
        Interrupted.moment.clear()
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(loop_thread, "Future", Interrupted)
            read(3)
        assert reader.tell() == 2
    assert reader.read_exactly(3) == b"234"


@pytest.mark.parametrize("read", ["read_events", "read_arrow"])
def test_ctrl_c_during_a_read_consumes_no_events(world: World, monkeypatch, read: str) -> None:
    """It comes when the events have arrived and the caller does not have them yet."""
    world.controller.create("s/t")
    with world.blocking.writer("s/t") as writer:
        writer.write(b"1")
    reader = world.blocking.reader("s/t")
    method = {"read_events": "_next_events", "read_arrow": "next_table"}[read]
    original = getattr(reader._inner, method)

    async def found():
        try:
            return await original()
        finally:
            Interrupted.moment.set()

    Interrupted.moment.clear()
    monkeypatch.setattr(reader._inner, method, found)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(loop_thread, "Future", Interrupted)
        getattr(reader, read)()
    assert len(getattr(reader, read)(timeout=HANG_SECONDS)) == 1
