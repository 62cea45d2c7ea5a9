"""The client against a real node: what the fakes cannot prove."""

import threading

import pyarrow as pa
import pytest

import sarit
from tests.nodes import RunningNode
from tests.unit.client.writer.test_writer import by_key


@pytest.fixture
def node(tmp_path):
    with RunningNode(tmp_path / "node") as running:
        yield running


def test_properties_are_kept_by_who_does_not_know_them(node) -> None:
    with sarit.connect(node.controller) as client:
        client.create_scope("s")
        client.create_stream("s/t", tags=["blue"])
        stream, config = client.stream("s/t"), client.stream_info("s/t").config
        wanted = {"example.com.team": "blue", "time-unit": "seconds"}
        assert stream.properties() == {}
        assert stream.set_properties(wanted) == wanted
        assert client.stream_info("s/t").config == config  # what Pravega's API answers
        client.update_stream("s/t", segments=3, tags=["green"])
        assert stream.properties() == wanted
        with pytest.raises(sarit.Invalid, match="time-unit is one of"):
            stream.set_properties({"time-unit": "weeks", "a.b": "c"})
        with pytest.raises(sarit.Invalid, match="texts by name"):
            stream.set_properties({"a.b": 5})  # type: ignore[dict-item]
        assert stream.set_properties({"time-unit": None}) == {"example.com.team": "blue"}
        client.seal_stream("s/t")
        client.delete_stream("s/t")
        with pytest.raises(sarit.NotFound):
            stream.properties()
        client.create_stream("s/t")
        assert stream.properties() == {}


def test_stream_lifecycle_on_a_real_node(node) -> None:
    with sarit.connect(node.controller) as client:
        assert client.create_scope("demo")
        assert not client.create_scope("demo")
        with pytest.raises(sarit.NotFound, match="scope none does not exist"):
            client.create_stream("none/t")
        with pytest.raises(sarit.Invalid):
            client.create_scope("no good")
        assert client.create_stream("demo", "t", segments=3, tags=["blue"])
        assert not client.create_stream("demo/t")
        assert client.create_stream("demo/u")
        assert [str(s) for s in client.list_streams("demo")] == ["demo/t", "demo/u"]
        assert [str(s) for s in client.list_streams("demo", tag="blue")] == ["demo/t"]
        assert "demo" in client.list_scopes()
        keys = [f"k{n % 50}" for n in range(2000)]
        with client.writer("demo/t") as writer:
            writer.write_many([f"{k}:{n}" for n, k in enumerate(keys)], keys)
            writer.write_many(pa.array(["arrow"] * 10))
            writer.write(b"L" * (9 << 20))
        events = list(client.reader("demo/t", end="tail"))
        assert len(events) == 2011
        assert max(map(len, events)) == 9 << 20
        info = client.stream_info("demo/t")
        assert (len(info.segments), info.sealed, info.config.tags) == (3, False, ("blue",))
        client.update_stream("demo/t", tags=["green"])
        assert client.stream_info("demo/t").config.tags == ("green",)
        tail = client.stream_cut_tail("demo/t")
        client.truncate_stream("demo/t", cut=tail)
        assert client.stream_cut_head("demo/t") == tail
        assert list(client.reader("demo/t", end="tail")) == []
        with pytest.raises(sarit.Conflict, match="seal it first"):
            client.delete_stream("demo/t")
        client.seal_stream("demo/t")
        assert client.stream_info("demo/t").sealed
        assert list(client.reader("demo/t")) == []
        writer = client.writer("demo/u")
        writer.write(b"in time")
        writer.flush()
        client.seal_stream("demo/u")
        writer.write(b"late")
        with pytest.raises(sarit.Sealed):
            writer.flush()
        client.delete_stream("demo/t")
        with pytest.raises(sarit.NotFound):
            client.stream_info("demo/t")
        client.delete_scope("demo", recursive=True)
        assert "demo" not in client.list_scopes()


def test_scaling_up_and_down_under_a_writer_keeps_order(node) -> None:
    with sarit.connect(node.controller) as client:
        client.create_scope("s")
        client.create_stream("s/t")
        with client.writer("s/t") as writer:
            numbers = iter(range(8000))
            for segments in (4, 2, 5, None):
                for number in (next(numbers) for _ in range(2000)):
                    writer.write(f"{number % 17}:{number}", key=str(number % 17))
                if segments:
                    client.update_stream("s/t", segments=segments)
        assert len(client.stream_info("s/t").segments) == 5
        found = by_key(list(client.reader("s/t", end="tail")))
        assert found == {b"%d" % k: [b"%d:%d" % (k, n) for n in range(k, 8000, 17)] for k in range(17)}


def test_killed_node_loses_and_doubles_no_event(tmp_path) -> None:
    node = RunningNode(tmp_path / "node", "--controller-port", "0", "--store-port", "0").start()
    with sarit.connect(node.controller) as client:
        client.create_scope("s")
        client.create_stream("s/t", segments=2)
    node.stop()
    ports = ["--controller-port", node.controller.rpartition(":")[2], "--store-port", node.store.rpartition(":")[2]]
    node = RunningNode(tmp_path / "node", *ports).start()
    try:
        with sarit.connect(node.controller) as client, client.writer("s/t", buffer_bytes=200_000) as writer:
            going = threading.Event()

            def write() -> None:
                for number in range(60_000):
                    writer.write(f"{number % 5}:{number}", key=str(number % 5))
                    if number == 5000:
                        writer.flush()
                        going.set()

            thread = threading.Thread(target=write)
            thread.start()
            assert going.wait(30)
            node.kill()
            node.start()
            thread.join(60)
            writer.flush()
            found = by_key(list(client.reader("s/t", end="tail")))
        assert found == {b"%d" % k: [b"%d:%d" % (k, n) for n in range(k, 60_000, 5)] for k in range(5)}
    finally:
        node.stop()


def test_positions_in_a_stream_that_was_made_again_are_refused(node) -> None:
    def make(client, word: str) -> None:
        client.create_scope("again")
        client.create_stream("again/s", segments=2)
        with client.writer("again/s") as writer:
            writer.write_many([f"{word}{n}" for n in range(100)], [str(n) for n in range(100)])

    with sarit.connect(node.controller) as client:
        make(client, "old")
        cut, stream = client.stream_cut_tail("again/s"), client.stream("again/s")
        group = client.reader_groups.create("again/g", ["again/s"])
        with group.reader("one") as reader:
            assert reader.read(timeout=30) is not None
        ids = [stream.creation_id(), group.creation_id()]
        client.delete_stream("again/s", seal=True)
        make(client, "new")
        assert stream.creation_id() != ids[0]
        assert group.creation_id() == ids[1]
        with pytest.raises(sarit.Truncated):
            list(client.reader("again/s", cut, end="tail"))
        with pytest.raises(sarit.Invalid, match="cover"):
            client.truncate_stream("again/s", cut=cut)
        with pytest.raises(sarit.NotFound, match="deleted and made again"):
            client.successors("again/s", next(iter(cut.positions)))
        with group.reader("two") as reader, pytest.raises(sarit.Truncated):
            reader.read(timeout=30)
        client.delete_scope("again", recursive=True)
        make(client, "newer")
        with pytest.raises(sarit.Truncated):
            list(client.reader("again/s", cut, end="tail"))
        assert client.reader_groups.create("again/g", ["again/s"]).creation_id() not in ids
        assert client.tables.create("again/t", primary_key_bytes=1)
        first = client.tables.creation_id("again/t")
        client.tables.delete("again/t")
        client.tables.create("again/t", primary_key_bytes=1)
        assert client.tables.creation_id("again/t") != first
        assert len({len(one) for one in (*ids, first)}) == 1
