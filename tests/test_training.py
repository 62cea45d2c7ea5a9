"""Loaders of streams for training, on a real node: positions, scaling, transactions, truncation, byte streams."""

from __future__ import annotations

import json
import multiprocessing
import pickle
from collections import Counter

import numpy as np
import pytest

import sarit
from sarit.serializers.payload_columns import json_columns
from sarit.training import FixedFrames, PrefixedFrames, StreamLoader, merge
from tests.nodes import RunningNode

LOADER = {"batch_rows": 7, "shuffle_rows": 50, "piece_bytes": 2048, "seed": 3}


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with (
        RunningNode(tmp_path_factory.mktemp("training") / "node") as running,
        sarit.connect(running.controller) as client,
    ):
        client.create_scope("s")
        yield running.controller, client


@pytest.fixture(autouse=True)
def loaders_are_closed(monkeypatch):
    """Loaders whose batches nobody has read to the end have a connection and a thread."""
    begun: list[StreamLoader] = []
    shard = StreamLoader.shard
    monkeypatch.setattr(StreamLoader, "shard", lambda self, *which: begun.append(self) or shard(self, *which))
    yield
    for loader in begun:
        loader.close()


def write(client, stream: str, first: int, count: int) -> list[bytes]:
    events = [f"{number:06d} {'x' * (number % 90)}".encode() for number in range(first, first + count)]
    with client.writer(stream) as writer:
        writer.write_many(events, keys=[str(number % 50) for number in range(count)])
    return events


def values(batches) -> list[bytes]:
    return [value for batch in batches for value in batch["value"]]


def saved(loader: StreamLoader) -> dict:
    return json.loads(json.dumps(loader.state_dict()))


def test_stream_that_scales_and_has_transactions_is_read_once(node) -> None:
    address, client = node
    client.create_stream("s/scaled", segments=2)
    events = write(client, "s/scaled", 0, 3000)
    client.stream("s/scaled").scale(5)
    with client.transactional_writer("s/scaled") as writer:
        with writer.begin() as transaction:
            committed = [f"{number:06d} committed".encode() for number in range(7000, 7300)]
            for number, event in enumerate(committed):
                transaction.write(event, key=str(number))
        writer.begin().write(b"open", key="1")
        end = client.cut("s/scaled", "tail")
        with writer.begin() as transaction:
            transaction.write(b"later", key="2")
    client.stream("s/scaled").scale(3)
    write(client, "s/scaled", 9000, 500)
    events += committed
    found = []
    for rank in range(3):
        head = client.cut("s/scaled", "head")
        loader = StreamLoader("s/scaled", head, end, address=address, rank=rank, world_size=3, **LOADER)
        found += values(loader)
    assert Counter(found) == Counter(events)


def test_position_survives_scaling_and_commits_and_any_number_of_ranks(node) -> None:
    address, client = node
    client.create_stream("s/resumed", segments=3)
    events = write(client, "s/resumed", 0, 4000)
    start, end = client.cut("s/resumed", "head"), str(client.cut("s/resumed", "tail"))
    found, state = [], None
    for world in (2, 3, 1):
        states = []
        for rank in range(world):
            loader = StreamLoader("s/resumed", start, end, address=address, rank=rank, world_size=world, **LOADER)
            if state is not None:
                loader.load_state_dict(state)
            for _, batch in zip(range(40 + rank), loader, strict=False):
                found += batch["value"]
            states.append(saved(loader))
            loader.close()
        state = merge(states)
        client.stream("s/resumed").scale(2 + world)
        with client.transactional_writer("s/resumed") as writer, writer.begin() as transaction:
            for number in range(100):
                transaction.write(f"world {world}, {number}", key=str(number))
    loader = StreamLoader("s/resumed", start, end, address=address, **LOADER)
    loader.load_state_dict(state)
    found += values(loader)
    assert Counter(found) == Counter(events)


def test_epochs_repeat_and_differ(node) -> None:
    address, client = node
    client.create_stream("s/epochs", segments=2)
    events = write(client, "s/epochs", 0, 1000)
    loader = StreamLoader("s/epochs", address=address, **LOADER)
    first = values(loader)
    write(client, "s/epochs", 5000, 10)  # not of this epoch, whose tail is fixed
    assert values(loader) == first
    loader.set_epoch(1)
    second = values(loader)
    assert Counter(first) == Counter(second) == Counter(events)
    assert first != second
    other = pickle.loads(pickle.dumps(loader))
    assert values(other) == second
    assert loader.total_bytes == sum(len(event) + 8 for event in events)


def test_resumed_at_every_batch(node) -> None:
    address, client = node
    client.create_stream("s/steps", segments=2)
    write(client, "s/steps", 0, 300)
    expected = values(StreamLoader("s/steps", address=address, **LOADER))
    loader = StreamLoader("s/steps", address=address, **LOADER)
    found = []
    while (batch := next(iter(loader), None)) is not None:
        found += batch["value"]
        state = saved(loader)
        loader.close()
        loader = StreamLoader("s/steps", address=address, **LOADER)
        loader.load_state_dict(state)
        assert saved(loader) == state
    assert found == expected


def test_set_epoch_of_the_state_continues_and_another_begins(node) -> None:
    address, client = node
    client.create_stream("s/set")
    write(client, "s/set", 0, 100)
    loader = StreamLoader("s/set", address=address, **LOADER)
    loader.set_epoch(2)
    whole = values(loader)
    first = next(iter(loader))["value"]
    state = saved(loader)
    loader.load_state_dict(state)
    assert loader.epoch == 2
    loader.set_epoch(2)
    assert values(loader) == whole[len(first) :]
    loader.load_state_dict(state)
    loader.set_epoch(3)
    assert len(values(loader)) == 100


def test_large_segment_is_divided_at_boundaries_that_the_store_does_not_know(node) -> None:
    """Of 3 MB in appends of 1 MB: pieces of 100 kB begin within them."""
    address, client = node
    client.create_stream("s/large")
    with client.writer("s/large") as writer:
        writer.write_many([b"%06d" % number * 17 for number in range(30_000)])
    loader = StreamLoader("s/large", address=address, piece_bytes=100_000, batch_rows=1000)
    assert len(loader.plan()) == 33
    assert values(loader) == [b"%06d" % number * 17 for number in range(30_000)]
    found = [values(StreamLoader("s/large", "head", "tail", address=address, piece_bytes=100_000)) for _ in range(1)]
    assert len(found[0]) == 30_000


def test_arrays_and_columns(node) -> None:
    address, client = node
    client.create_stream("s/arrays")
    client.create_stream("s/json")
    rows = np.arange(100 * 6, dtype="<f4").reshape(100, 2, 3)
    with client.writer("s/arrays") as writer:
        writer.write_many([row.tobytes() for row in rows])
    (batch,) = StreamLoader("s/arrays", address=address, dtype="<f4", shape=(2, 3), positions=True)
    assert batch["value"].dtype == np.float32
    assert (batch["value"] == rows).all()
    assert batch["offset"].tolist() == [32 * number for number in range(100)]
    batch["value"][0] = 5  # it is the caller's own
    with client.writer("s/arrays") as writer:
        writer.write(b"short")
    with pytest.raises(sarit.Corrupt, match="the event at 3200 of segment 0 has 5 bytes where 24 are needed"):
        list(StreamLoader("s/arrays", address=address, dtype="<f4", shape=(2, 3)))
    (batch,) = StreamLoader("s/arrays", address=address, dtype="<f4", shape=(2, 3), on_error="skip")
    assert len(batch["value"]) == 100

    import pyarrow as pa

    with client.writer("s/json") as writer:
        for number in range(50):
            writer.write(sarit.Envelope(json.dumps({"x": number, "y": number / 2, "name": str(number)}).encode()))
        writer.write(sarit.Envelope(b"{"))
    columns = json_columns(pa.schema([("x", pa.int64()), ("y", pa.float32()), ("name", pa.string())]))
    loader = StreamLoader("s/json", address=address, columns=columns, envelope=True, on_error="skip")
    (batch,) = pickle.loads(pickle.dumps(loader))
    assert batch["x"].tolist() == list(range(50))
    assert (batch["y"].dtype, batch["name"][:2]) == (np.float32, ["0", "1"])
    with pytest.raises(sarit.Corrupt, match="does not fit"):
        list(StreamLoader("s/json", address=address, columns=columns, envelope=True))


def test_frames_of_byte_streams(node) -> None:
    address, client = node
    for name in ("s/fixed", "s/prefixed"):
        client.create_stream(name)
    with client.byte_writer("s/fixed") as writer:
        writer.write(b"".join(b"%09d," % number for number in range(5000)) + b"rest")
    found = []
    for rank in range(2):
        loader = StreamLoader(
            "s/fixed", 0, 50_000, address=address, frames=FixedFrames(10), rank=rank, world_size=2, piece_bytes=4096
        )
        for _, batch in zip(range(1), loader, strict=False):
            found += batch["value"]
        state = saved(loader)
        loader.load_state_dict(state)
        found += values(loader)
    assert sorted(found) == [b"%09d," % number for number in range(5000)]
    assert len(values(StreamLoader("s/fixed", address=address, frames=FixedFrames(10)))) == 5000
    with pytest.raises(sarit.Invalid, match="no whole frames"):
        list(StreamLoader("s/fixed", 0, 50_004, address=address, frames=FixedFrames(10)))

    frames = [bytes([number % 256]) * (number * 7 % 300) for number in range(2000)]
    with client.byte_writer("s/prefixed") as writer:
        writer.write(b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames) + b"\0\0\1")
    loader = StreamLoader("s/prefixed", address=address, frames=PrefixedFrames(), batch_rows=9)
    begun = values(batch for _, batch in zip(range(5), loader, strict=False))
    state = saved(loader)
    loader.load_state_dict(state)
    assert begun + values(loader) == frames
    with pytest.raises(sarit.Corrupt, match="in the middle of a frame"):
        list(StreamLoader("s/prefixed", 0, int(state["plan"]["parts"][0][2]), address=address, frames=PrefixedFrames()))
    with pytest.raises(sarit.Invalid, match="have one reader"):
        loader.shard(0, 2)
    with pytest.raises(sarit.Corrupt, match="is the length before each frame of 2 bytes"):
        list(StreamLoader("s/prefixed", address=address, frames=PrefixedFrames(2, max_frame_bytes=100)))


def test_stream_that_was_made_again_is_refused(node) -> None:
    address, client = node
    client.create_stream("s/again")
    write(client, "s/again", 0, 100)
    loader = StreamLoader("s/again", address=address, **LOADER)
    next(iter(loader))
    state = saved(loader)
    client.delete_stream("s/again", seal=True)
    client.create_stream("s/again")
    write(client, "s/again", 0, 100)
    loader.load_state_dict(state)
    with pytest.raises(sarit.Conflict, match="was deleted and made again"):
        next(iter(loader))


def test_truncated_data_is_named_or_skipped(node) -> None:
    address, client = node
    client.create_stream("s/truncated")
    write(client, "s/truncated", 0, 1000)
    middle = client.cut("s/truncated", "tail")
    write(client, "s/truncated", 1000, 1000)
    settings = {"address": address, "batch_rows": 10, "piece_bytes": 4096}
    loader = StreamLoader("s/truncated", **settings)
    skipping = StreamLoader("s/truncated", on_truncated="skip", **settings)
    cut = StreamLoader("s/truncated", client.cut("s/truncated", "head"), client.cut("s/truncated", "tail"), **settings)
    begun = values([next(iter(skipping))])
    loader.plan()
    client.truncate_stream("s/truncated", cut=middle)
    with pytest.raises(sarit.Truncated, match="truncated"):
        values(loader)
    with pytest.raises(sarit.Truncated, match="begin at a later cut"):
        cut.plan()
    skipping.load_state_dict(saved(skipping))
    found = begun + values(skipping)
    assert found[-1000:] == write_texts(1000, 1000)
    assert len(found) == len(set(found))
    assert skipping.skipped_bytes > 0


def write_texts(first: int, count: int) -> list[bytes]:
    return [f"{number:06d} {'x' * (number % 90)}".encode() for number in range(first, first + count)]


def _goes_on(batches, answers) -> None:
    try:
        next(batches)
        answers.put("went on")
    except sarit.Invalid as error:
        answers.put(str(error))


def test_child_process_does_not_go_on_with_its_parents_batches(node) -> None:
    address, client = node
    client.create_stream("s/forked")
    write(client, "s/forked", 0, 100)
    loader = StreamLoader("s/forked", address=address, **LOADER)
    batches = iter(loader)
    next(batches)
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=_goes_on, args=(batches, answers))
    child.start()
    assert "from which this one was forked" in answers.get()
    child.join()
    with pytest.raises(sarit.Invalid, match="cannot be pickled"):
        pickle.dumps(batches)
    next(batches)


@pytest.mark.parametrize(
    ("named", "text"),
    [
        ({"end": None}, "an epoch has an end"),
        ({"rank": 0, "world_size": 2}, "each would see another head and tail"),
        ({"rank": 2, "world_size": 2}, "no rank 2 in a world of 2"),
        ({"batch_rows": 0}, "batches of 0"),
        ({"shuffle_rows": -1}, "cannot be shuffled"),
        ({"interleave": 0}, "cannot be mixed"),
        ({"start": 5}, "offsets are for byte streams"),
        ({"on_truncated": "no"}, "give raise or skip"),
        ({"on_error": "no"}, "give raise or skip"),
        ({"dtype": "nothing"}, "no type of numpy"),
        ({"shape": (3,)}, "needs a dtype"),
        ({"dtype": "O", "shape": (3,)}, "cannot be arrays"),
        ({"dtype": "u1", "shape": (0,)}, "have no bytes"),
        ({"stream": "none"}, "not SCOPE/STREAM"),
    ],
)
def test_wrong_choices_are_refused_at_once(named, text) -> None:
    with pytest.raises(sarit.Invalid, match=text):
        StreamLoader(**{"stream": "s/t", **named})


def test_states_of_other_readers_are_refused(node) -> None:
    address, client = node
    for name in ("s/one", "s/other"):
        client.create_stream(name)
        write(client, name, 0, 100)
    loader = StreamLoader("s/one", address=address, **LOADER)
    next(iter(loader))
    state = saved(loader)
    for other, text in (
        (StreamLoader("s/other", address=address, **LOADER), "of stream s/one"),
        (StreamLoader("s/one", address=address, **{**LOADER, "seed": 4}), "seed=3, shuffle_rows=50, interleave=4"),
        (StreamLoader("s/one", address=address, **{**LOADER, "piece_bytes": 4096}), "other cuts or pieces"),
    ):
        with pytest.raises(sarit.Invalid, match=text):
            other.load_state_dict(state)
    cut = str(client.cut("s/one", "tail"))
    moved = StreamLoader("s/one", client.cut("s/one", "head"), cut, address=address, rank=1, world_size=2, **LOADER)
    with pytest.raises(sarit.Invalid, match="other cuts"):
        moved.load_state_dict(state)
    loader.load_state_dict(state)
    with pytest.raises(sarit.Invalid, match=r"shard 0 of 1, and this is shard 1 of 2: .* load sarit.training.merge"):
        loader.shard(1, 2)


def test_tail_is_followed_through_scaling_and_by_several(node) -> None:
    address, client = node
    client.create_stream("s/tail", segments=2)
    events = write(client, "s/tail", 0, 200)
    readers = [
        StreamLoader("s/tail", follow=True, address=address, rank=rank, world_size=2, batch_rows=30)
        for rank in range(2)
    ]
    found, states = [], []
    for reader in readers:
        found += values(batch for _, batch in zip(range(2), reader, strict=False))
        states.append(saved(reader))
        reader.close()
    client.stream("s/tail").scale(3)
    events += write(client, "s/tail", 200, 200)
    client.seal_stream("s/tail")
    assert Counter(found) < Counter(events)
    for reader, state in zip(readers, states, strict=True):
        reader.load_state_dict(state)
        found += values(reader)
    assert Counter(found) == Counter(events)
    readers[0].load_state_dict(states[1])
    with pytest.raises(sarit.Invalid, match="cannot change the number of ranks or workers"):
        next(iter(readers[0]))
    with pytest.raises(sarit.Invalid, match="has no epochs"):
        readers[0].plan()
    with pytest.raises(sarit.Invalid, match="that follows a stream"):
        readers[0].load_state_dict({**states[0], "of": "shard"})
    with pytest.raises(sarit.Invalid, match="of stream s/tail"):
        StreamLoader("s/other", follow=True, address=address).load_state_dict(states[0])
    for named in ({"end": "0:abc"}, {"shuffle_rows": 5}):
        with pytest.raises(sarit.Invalid, match="leave out"):
            StreamLoader("s/tail", follow=True, **named)


def _trains(address: str, state: dict | None, pipe) -> None:
    loader = StreamLoader("s/killed", address=address, **LOADER)
    if state is not None:
        loader.load_state_dict(state)
    for batch in loader:
        pipe.send((batch["value"], saved(loader)))
    pipe.send(None)


def test_killed_process_goes_on_where_its_last_checkpoint_is(node) -> None:
    """Of a process that is killed, some batches came behind its last checkpoint: they come again, in the same order."""
    address, client = node
    client.create_stream("s/killed", segments=2)
    events = write(client, "s/killed", 0, 2000)
    expected = values(StreamLoader("s/killed", address=address, **LOADER))
    context = multiprocessing.get_context("fork")
    found: list[bytes] = []
    state, ended = None, False
    for steps in (1, 40, 3, 97, 1000):
        receiving, sending = context.Pipe(duplex=False)
        child = context.Process(target=_trains, args=(address, state, sending))
        child.start()
        sending.close()
        for _ in range(steps):
            message = receiving.recv()
            ended = message is None
            if ended:
                break
            found += message[0]
            state = message[1]
        child.kill()
        child.join()
    assert ended
    assert found == expected
    assert Counter(found) == Counter(events)


@pytest.mark.parametrize(
    ("name", "frames", "encode"),
    [
        ("s/tailfixed", FixedFrames(7), lambda frame: frame),
        ("s/tailprefixed", PrefixedFrames(2), lambda frame: len(frame).to_bytes(2, "big") + frame),
    ],
)
def test_frames_at_the_tail_are_followed(node, name, frames, encode) -> None:
    address, client = node
    client.create_stream(name)
    expected = [b"%06d;" % number for number in range(1000)]
    data = b"".join(map(encode, expected))
    settings = {"follow": True, "address": address, "frames": frames, "world_size": 2, "batch_rows": 30}
    readers = [StreamLoader(name, rank=rank, **settings) for rank in range(2)]
    found, states = [], []
    with client.byte_writer(name) as writer:
        writer.write(data[:3000])
        writer.flush()
        for reader in readers:
            found += values(batch for _, batch in zip(range(5), reader, strict=False))
            states.append(saved(reader))
        writer.write(data[3000:])
    client.seal_stream(name)
    for reader, state in zip(readers, states, strict=True):
        reader.load_state_dict(state)
        found += values(reader)
    assert sorted(found) == expected


def test_start_of_followed_frames_is_an_offset(node) -> None:
    address, client = node
    client.create_stream("s/offsets")
    with client.byte_writer("s/offsets") as writer:
        writer.write(b"abcdefgh")
    loader = StreamLoader("s/offsets", "x", follow=True, address=address, frames=FixedFrames(3))
    with pytest.raises(sarit.Invalid, match="give an offset"):
        next(iter(loader))
    loader = StreamLoader("s/offsets", 3, follow=True, address=address, frames=FixedFrames(3))
    assert next(iter(loader))["value"] == [b"def"]
    loader = StreamLoader("s/offsets", "tail", follow=True, address=address, frames=FixedFrames(3))
    client.seal_stream("s/offsets")
    with pytest.raises(sarit.Corrupt, match="sealed in the middle of a frame, which begins at 6"):
        next(iter(loader))


def test_event_that_does_not_fit_stays_before_the_position_of_a_follower(node) -> None:
    address, client = node
    client.create_stream("s/odd")
    with client.writer("s/odd") as writer:
        writer.write_many([b"1234", b"5678", b"odd", b"9012"])
    loader = StreamLoader("s/odd", follow=True, address=address, dtype="u1", shape=(4,), batch_rows=2)
    batches = iter(loader)
    next(batches)
    state = saved(loader)
    for _ in range(2):
        with pytest.raises(sarit.Corrupt, match="the event at 24 of segment 0 has 3 bytes"):
            next(batches)
    assert saved(loader) == state
