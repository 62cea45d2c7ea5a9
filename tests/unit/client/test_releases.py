"""What is read to its end, dropped or left at the exit of a process: released, sent, or said to be lost."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest

import sarit
from sarit.client import aio
from sarit.client.groups.member import Member
from tests.limits import HANG_SECONDS
from tests.nodes import RunningNode
from tests.unit.client.nodes import on_node
from tests.unit.client.world import until

ROOT = Path(__file__).parents[3]
ROUNDS = 8


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("releases") / "node") as running:
        with sarit.connect(running.controller) as client:
            client.create_scope("s")
            client.create_stream("s/t", segments=2)
            client.create_stream("s/bytes")
            with client.writer("s/t") as writer:
                writer.write_many([b"event"] * 100)
            with client.byte_writer("s/bytes") as bytes_writer:
                bytes_writer.write(b"bytes" * 100)
        yield running


def waited(condition, seconds: float = 20.0) -> bool:
    """Whether the condition becomes true: what is released on another thread takes a moment."""
    woken = threading.Event()
    for _ in range(int(seconds / 0.02)):
        gc.collect()
        if condition():
            return True
        woken.wait(0.02)
    return False


def test_readers_read_to_their_end_leave_nothing_in_the_session(node):
    """Each stayed until the client was closed: 3.5 to 137 KiB."""
    with sarit.connect(node.controller) as client, warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        session = client._inner.session
        before = len(session.parts)
        for _ in range(ROUNDS):
            assert len(list(client.reader("s/t", end="tail"))) == 100
            reader = client.reader("s/t", end="tail")
            assert sum(map(len, reader.batches())) == 100
            assert reader.read_events() == []
            assert len(session.parts) == before
            assert not session.background._tasks


@pytest.mark.parametrize("kind", ["reader", "byte reader", "group reader"])
def test_dropped_readers_are_released_with_a_warning(kind, node):
    with sarit.connect(node.controller) as client:
        session = client._inner.session
        group = client.reader_groups.create("s/g", "s/t")

        def drop(number: int) -> None:
            if kind == "reader":
                assert next(iter(client.reader("s/t"))) == b"event"
            elif kind == "byte reader":
                assert client.byte_reader("s/bytes").read(5) == b"bytes"
            else:
                # Those before it hold all segments until the group has noticed: it waits for nothing.
                group.reader(f"dropped-{os.getpid()}-{number}").read_batch(timeout=0.2)

        drop(0)
        assert waited(lambda: not len(session.parts))
        routers = session.connections._open.values()
        pending = sum(len(task.result().replies._sinks) for task in routers if task.done())

        def drop_all() -> None:
            for number in range(1, ROUNDS):
                drop(number)
            assert waited(lambda: not len(session.parts) and not session.background._tasks)

        with pytest.warns(ResourceWarning, match="dropped and not closed"):
            drop_all()
        assert waited(
            lambda: sum(len(t.result().replies._sinks) for t in session.connections._open.values()) <= pending
        )


def test_round_of_a_dropped_group_reader_ends_with_it(node, monkeypatch):
    """It went on on a busy machine, acquired segments, and fetched them for nobody until the client was closed."""

    async def never(member):
        await asyncio.Event().wait()

    with sarit.connect(node.controller) as client:
        session = client._inner.session
        group = client.reader_groups.create("s/rounds", "s/t")
        monkeypatch.setattr(Member, "manage", never)

        def drop() -> None:
            assert group.reader(f"dropped-{os.getpid()}").read_batch(timeout=0.01) is None
            assert any("round" in task.get_name() for task in session.background._tasks)
            assert waited(lambda: not len(session.parts) and not session.background._tasks), (
                session.parts,
                session.background._tasks,
            )

        with pytest.warns(ResourceWarning, match="dropped and not closed"):
            drop()


def test_reader_that_waits_is_not_collected(node):
    """Nothing else refers to a task that only its reader wakes."""
    with sarit.connect(node.controller) as client:
        found: list[list[bytes]] = []
        thread = threading.Thread(
            target=lambda: found.append(client.reader("s/t", start="tail").read_events(timeout=20))
        )
        thread.start()
        assert waited(lambda: client._inner.session.parts.waiting)
        gc.collect()
        with client.writer("s/t") as writer:
            writer.write("later", key="k")
        thread.join()
        assert found == [[b"later"]]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_dropped_blocking_clients_leave_no_thread_and_no_descriptor(node):
    """A hundred of them left two hundred threads and 1,400 descriptors."""

    def drop() -> None:
        client = sarit.connect(node.controller)
        client.writer("s/t").write("sent when dropped")
        assert client.byte_reader("s/bytes").read(5) == b"bytes"

    drop()
    threads, files = threading.active_count(), descriptors()

    def drop_all() -> None:
        for _ in range(ROUNDS):
            drop()
        assert waited(lambda: threading.active_count() <= threads and descriptors() <= files)

    with pytest.warns(ResourceWarning, match="blocking client was dropped"):
        drop_all()
    with sarit.connect(node.controller) as client:
        assert waited(lambda: list(client.reader("s/t", end="tail")).count(b"sent when dropped") == ROUNDS + 1)


def test_part_of_a_dropped_client_goes_on(node):
    reader = sarit.connect(node.controller).reader("s/t", end="tail")
    gc.collect()
    assert b"event" in list(reader)


@on_node
async def test_dropped_asyncio_clients_leave_no_descriptor(made):
    await made.client.create_stream("s/t")

    async def drop() -> None:
        client = await aio.connect(made.address)
        assert await anext(client.list_scopes())
        assert await client.stream_cut_tail("s/t")

    async def drop_all() -> None:
        for _ in range(ROUNDS):
            await drop()
            gc.collect()

    await drop()
    gc.collect()
    files = descriptors()
    with pytest.warns(ResourceWarning, match="dropped and not closed"):
        await drop_all()
    await until(lambda: descriptors() <= files)


# -- the exit of a process -----------------------------------------------------------------------


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )


EXITS = {
    "by its end": "",
    "by sys.exit": "sys.exit(0)",
    "by an error": "raise SystemExit(0)",
}


@pytest.mark.parametrize("how", EXITS)
def test_process_that_exits_without_flush_has_written_all(how, node):
    stream = f"s/exit-{list(EXITS).index(how)}"
    done = run(
        "import sys, sarit\n"
        "client = sarit.connect(sys.argv[1])\n"
        "client.create_stream(sys.argv[2])\n"
        "writer = client.writer(sys.argv[2])\n"
        "for number in range(5000): writer.write(str(number), key='k')\n"
        f"{EXITS[how]}\n",
        node.controller,
        stream,
    )
    assert (done.returncode, done.stderr) == (0, "")
    with sarit.connect(node.controller) as client:
        assert list(client.reader(stream, end="tail")) == [b"%d" % number for number in range(5000)]


def test_process_that_exits_without_a_node_says_how_much_is_lost(tmp_path):
    with RunningNode(tmp_path / "node") as away:
        done = run(
            "import os, signal, sys, sarit\n"
            "from sarit.client.blocking import loop_thread\n"
            "loop_thread.EXIT_FLUSH_SECONDS = 0.2\n"
            "client = sarit.connect(sys.argv[1])\n"
            "client.create_scope('s')\n"
            "client.create_stream('s/t')\n"
            "writer = client.writer('s/t')\n"
            "writer.write('one'); writer.flush()\n"
            "os.kill(int(sys.argv[2]), signal.SIGKILL)\n"
            "for number in range(20): writer.write(str(number), key='k')\n"
            "writer.write_many(['a', 'b'])\n",
            away.controller,
            str(away.pid),
        )
    assert done.returncode == 0
    assert "22 events of s/t not acknowledged" in done.stderr, done.stderr


def test_client_closed_before_its_writer_says_how_much_is_lost(node, caplog):
    with sarit.connect(node.controller) as client:
        client.create_scope("closing")
        client.create_stream("closing/t")
        client.writer("closing/t").write_many(["a"] * 7)
    assert "7 events of closing/t not acknowledged" in caplog.text


def test_asyncio_process_that_exits_without_flush_says_how_much_is_lost(node):
    done = run(
        "import asyncio, sys\n"
        "from sarit.client import aio\n"
        "async def main():\n"
        "    client = await aio.connect(sys.argv[1])\n"
        "    writer = client.writer('s/t')\n"
        "    for number in range(3): writer.write(str(number))\n"
        "asyncio.run(main())\n",
        node.controller,
    )
    assert done.returncode == 0
    assert "3 events of s/t not acknowledged" in done.stderr, done.stderr
