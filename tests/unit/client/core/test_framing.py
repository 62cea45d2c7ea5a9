"""Framing against a simple reference implementation."""

import random
import sys

import pyarrow as pa
import pytest

from sarit.client.core import framing
from sarit.client.core.framing import (
    arrow_events,
    binary_array,
    chunks_of,
    chunks_of_arrow,
    missing_bytes,
    parse_events,
    run_of,
    split_events,
)
from sarit.core.errors import Corrupt, Invalid

SHAPES = ("mixed", "equal", "runs", "empty", "single", "one long")


@pytest.fixture(params=["numpy", "no numpy"])
def _installed(request, monkeypatch):
    """Parse runs of events with numpy, and as where it is not installed."""
    framing._numpy.cache_clear()
    if request.param == "no numpy":
        monkeypatch.setitem(sys.modules, "numpy", None)
    yield
    framing._numpy.cache_clear()


def plain(events: list[bytes]) -> bytes:
    return b"".join(b"\0\0\0\0" + len(event).to_bytes(4, "big") + event for event in events)


def some_events(rng: random.Random, shape: str) -> list[bytes]:
    count = rng.randrange(60)
    if shape == "empty":
        return [b""] * count
    if shape == "single":
        return [rng.randbytes(rng.randrange(200))]
    if shape == "one long":
        return [rng.randbytes(rng.randrange(20)) for _ in range(count)] + [rng.randbytes(20_000)] + [b"", b"1"] * count
    if shape == "equal":
        return [rng.randbytes(7) for _ in range(count)]
    if shape == "mixed":
        return [rng.randbytes(rng.randrange(30)) for _ in range(count)]
    return [rng.randbytes(length) for length in rng.choices((5, 40), k=6) for _ in range(rng.randrange(30))]


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("shape", SHAPES)
def test_framed_events_match_the_format_and_parse_back(shape: str) -> None:
    rng = random.Random(shape)
    for _ in range(60):
        events = some_events(rng, shape)
        chunks = [chunk for chunk in chunks_of(events, None, rng.choice((20, 300, 10_000)))] if events else []
        data = b"".join(bytes(chunk.data) for chunk in chunks)
        assert data == plain(events)
        assert sum(chunk.events for chunk in chunks) == len(events)
        assert all(len(chunk.data) == chunk.length for chunk in chunks)
        assert split_events(data) == events


@pytest.mark.parametrize("shape", SHAPES)
def test_arrow_arrays_and_slices_frame_as_lists_do(shape: str) -> None:
    rng = random.Random(shape)
    for _ in range(40):
        events = some_events(rng, shape)
        skip = rng.randrange(3)
        array = binary_array(pa.array(events, pa.binary()).slice(skip))
        chunks = list(chunks_of_arrow(array, None, rng.choice((20, 300, 10_000))))
        assert b"".join(bytes(chunk.data) for chunk in chunks) == plain(events[skip:])
        assert sum(chunk.events for chunk in chunks) == len(events[skip:])


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("shape", SHAPES)
def test_parse_resumes_at_any_offset(shape: str) -> None:
    rng = random.Random(shape)
    for _ in range(80):
        events = some_events(rng, shape)
        data = plain(events)
        cut = rng.randrange(len(data) + 1)
        first, used = parse_events(data[:cut], 0)
        assert used <= cut
        rest, end = parse_events(memoryview(rng.choice((bytes, bytearray))(data)), used)
        assert first + rest == events
        assert set(map(type, rest)) <= {bytes}
        assert end == len(data)
        if used < cut:
            assert 0 < missing_bytes(data[:cut], used) <= len(data) - cut


@pytest.mark.parametrize("shape", SHAPES)
def test_arrow_events_equal_list_events_and_give_offsets(shape: str) -> None:
    rng = random.Random(shape)
    for _ in range(40):
        events = some_events(rng, shape)
        data = plain(events)
        arrays, begins, used = arrow_events(data, 0)
        assert [event for array in arrays for event in array.to_pylist()] == events
        assert used == len(data)
        for array, offsets in zip(arrays, begins, strict=True):
            for event, offset in zip(array.to_pylist(), offsets.tolist(), strict=True):
                assert data[offset + 8 : offset + 8 + len(event)] == event


def test_one_long_event_does_not_multiply_memory() -> None:
    events = [b"y" * 2**20, *(b"x" * (number % 3) for number in range(5000))]
    arrays, _, _ = arrow_events(plain(events), 0)
    assert [event for array in arrays for event in array.to_pylist()] == events
    assert pa.total_allocated_bytes() < 2**27


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("place", range(8))
@pytest.mark.parametrize("count", [9, 64, 65, 200])
@pytest.mark.parametrize("kind", [bytes, memoryview])
def test_run_ends_at_the_first_header_that_differs_in_any_byte(place, count, kind) -> None:
    framed = bytearray(plain([b"ab"] * count))
    for odd in (count - 1, count // 2):
        framed[odd * 10 + place] ^= 1
        assert run_of(kind(framed), 0) == (odd, 2)


@pytest.mark.usefixtures("_installed")
def test_garbage_raises_corrupt_and_half_an_event_does_not() -> None:
    assert parse_events(b"\0\0\0\0\0\0\0\x05abc", 0) == ([], 0)
    with pytest.raises(Corrupt):
        run_of(b"\0\0\0\1\0\0\0\x05abcde", 0)
    with pytest.raises(Corrupt):
        parse_events(plain([b"x", b"yy"]) + b"\xff" * 20, 0)
    with pytest.raises(Corrupt):
        split_events(plain([b"x"])[:-1])


def test_chunks_carry_keys_and_flag_large_events() -> None:
    events = [b"x" * size for size in (10, 200, 10, 300)]
    keys = ["a", None, "b", "c"]
    chunks = list(chunks_of(events, keys, 100))
    assert [key for chunk in chunks for key in chunk.keys] == keys
    assert not any(chunk.large for chunk in chunks)
    (large,) = chunks_of([b"x" * (8 * 2**20)], None)
    assert large.large
    (largest_plain,) = chunks_of([b"x" * (8 * 2**20 - 8)], None)
    assert not largest_plain.large


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["a", "é", ""]),
        pa.array([b"a", "é".encode(), b""], pa.large_binary()),
        pa.array(["a", "é", ""], pa.large_string()),
    ],
)
def test_every_arrow_text_and_binary_type_is_accepted(array: pa.Array) -> None:
    assert binary_array(array).to_pylist() == [b"a", "é".encode(), b""]
    assert binary_array(pa.chunked_array([array, array])).to_pylist() == [b"a", "é".encode(), b""] * 2


def test_other_arrow_types_and_nulls_raise_invalid() -> None:
    with pytest.raises(Invalid, match="int64"):
        binary_array(pa.array([1, 2]))
    with pytest.raises(Invalid, match="1 of 2 events are null"):
        binary_array(pa.array([b"a", None]))
