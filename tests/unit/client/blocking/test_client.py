"""The blocking client on the fake store: writers, readers, byte streams, errors, the names of the package."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import sarit
from sarit.client import aio
from sarit.core.errors import Invalid, NotFound, Sealed, Unavailable
from tests.limits import HANG_SECONDS
from tests.unit.client.world import World
from tests.unit.client.writer.test_writer import by_key


def test_writer_shared_by_threads_keeps_each_threads_order(world: World) -> None:
    world.controller.create("s/t", 3)
    with world.blocking.writer("s/t", buffer_bytes=1 << 20) as writer:

        def work(name: int) -> None:
            for number in range(3000):
                writer.write(f"{name}:{number}", key=str(name))

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    expected = {b"%d" % name: [b"%d:%d" % (name, number) for number in range(3000)] for name in range(4)}
    assert by_key(world.everything()) == expected


def test_write_blocks_at_buffer_bytes(world: World) -> None:
    world.controller.create("s/t")
    world.store.ack_delay = 0.002
    bound = 1 << 20
    most = 0
    writer = world.blocking.writer("s/t", buffer_bytes=bound)
    for _ in range(2000):
        writer.write(b"x" * 10_000)
        most = max(most, writer._inner.pending_bytes())
    writer.flush()
    assert bound // 2 < most <= bound + (1 << 20)
    assert len(world.everything()) == 2000
    writer.close()


def test_single_event_is_sent_without_flush(world: World) -> None:
    world.controller.create("s/t")
    writer = world.blocking.writer("s/t")
    reader = world.blocking.reader("s/t")
    for number in range(50):
        writer.write(b"%d" % number)
        assert reader.read_events(timeout=HANG_SECONDS) == [b"%d" % number]
    writer.close()


def test_reader_gives_events_lists_and_record_batches(world: World) -> None:
    world.controller.create("s/t", 2)
    events = [b"%d" % number for number in range(1000)]
    with world.blocking.writer("s/t") as writer:
        writer.write_many(events, [str(number) for number in range(1000)])
    assert sorted(world.blocking.reader("s/t", end="tail")) == sorted(events)
    assert sorted(e for b in world.blocking.reader("s/t", end="tail").batches() for e in b) == sorted(events)
    tables = list(world.blocking.reader("s/t", end="tail").arrow_batches(100))
    assert sum(table.num_rows for table in tables) == 1000
    assert all(table.num_rows <= 100 for table in tables)
    seen = []
    with world.blocking.reader("s/t", end="tail") as reader:
        for event in reader:
            seen.append(event)
            if len(seen) == 333:
                break
        position = reader.position()
    with world.blocking.reader("s/t", position, "tail") as reader:
        seen += reader
        assert reader.position() == world.blocking.stream_cut_tail("s/t")
        assert reader.read_events() == []
    assert sorted(seen) == sorted(events)
    cut = world.blocking.stream_cut_tail("s/t").positions
    found = [b for s, end in cut.items() for b in world.blocking.segment_batches("s/t", s, 0, end)]
    assert sum(batch.num_rows for batch in found) == 1000


def test_failures_are_raised_to_the_caller(world: World) -> None:
    with pytest.raises(NotFound, match="s/none"):
        world.blocking.reader("s/none")
    stream = world.controller.create("s/t")
    writer = world.blocking.writer("s/t")
    writer.write(b"1")
    writer.flush()
    world.controller.seal(stream)

    def write_on() -> None:
        for _ in range(1_000_000):
            writer.write(b"2" * 100)

    with pytest.raises(Sealed):
        write_on()
    with pytest.raises(Sealed):
        writer.flush()


def test_byte_stream_is_written_and_read(world: World) -> None:
    world.controller.create("s/b")
    with world.blocking.byte_writer("s/b") as writer:
        for _ in range(100):
            writer.write(b"x" * 100_000)
        assert writer.tell() == 10_000_000
    with world.blocking.byte_reader("s/b") as reader:
        reader.seek(9_999_990)
        assert reader.read_exactly(10) == b"x" * 10
        assert reader.read(5, timeout=0.01) == b""
        assert reader.tell() == reader.tail_offset() == 10_000_000
    nowhere = world.blocking.byte_writer("s/none")
    nowhere.write(b"1")
    with pytest.raises(NotFound):
        nowhere.flush()


def test_read_exactly_does_not_join_bytes_across_a_truncation(world: World) -> None:
    world.controller.create("s/b")
    segment = world.store.segments["s/b/0.#epoch.0"]
    with world.blocking.byte_writer("s/b") as writer:
        writer.write(b"0123456789")

    async def append_and_truncate() -> None:
        world.store.drop_all()
        segment.append([b"ABCDEFGHIJKLMNOPQRST"])
        segment.start = 15

    with world.blocking.byte_reader("s/b", skip_truncated=True) as reader, ThreadPoolExecutor(1) as pool:
        reading = pool.submit(reader.read_exactly, 12)
        while reader.tell() < 10:
            threading.Event().wait(0.001)
        world.blocking._thread.run(append_and_truncate())
        assert (reading.result(30), reader.tell()) == (b"FGHIJKLMNOPQ", 27)


def test_closed_client_refuses_calls(world: World) -> None:
    world.controller.create("s/t")
    writer = world.blocking.writer("s/t")
    world.blocking.close()
    with pytest.raises(Invalid, match="closed"):
        world.blocking.stream_cut_tail("s/t")
    with pytest.raises(Invalid, match="closed"):
        writer.flush()
    world.blocking.close()


def test_connect_raises_when_no_controller_answers() -> None:
    with pytest.raises(Unavailable, match=r"no Sarit controller answers at 127\.0\.0\.1:1 .*sarit standalone"):
        sarit.connect("127.0.0.1:1")
    with pytest.raises(Invalid, match="HOST:PORT"):
        sarit.connect("nonsense:port")


def test_connect_names_the_new_argument_for_a_retired_one() -> None:
    for connect in (sarit.connect, lambda **given: asyncio.run(aio.connect(**given))):
        with pytest.raises(TypeError, match="'patience': it is 'retry_timeout' now"):
            connect(address="127.0.0.1:1", patience=1.0)
        with pytest.raises(TypeError, match=r"unexpected keyword argument 'nothing'$"):
            connect(address="127.0.0.1:1", nothing=1.0)


def test_package_exports_every_name_in_all() -> None:
    assert sorted(set(sarit.__all__)) == sarit.__all__
    for name in sarit.__all__:
        assert getattr(sarit, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        sarit.nothing  # noqa: B018
