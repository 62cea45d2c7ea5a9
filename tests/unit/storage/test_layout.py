"""Which extents are joined, and the records of extents."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sarit.core.errors import Corrupt
from sarit.storage.checksums import ChunkChecksums
from sarit.storage.layout import Extent, load_chunk_extent, load_inlined_extent, plan_compaction
from sarit.storage.names import is_pack
from sarit.storage.starts import pack
from tests.limits import examples

SMALL, TARGET, JOIN = 16, 40, 4


def tiling(*lengths: int) -> list[Extent]:
    extents, at = [], 0
    for length in lengths:
        extents.append(Extent(at, length, f"c{at}"))
        at += length
    return extents


def planned(*lengths: int) -> list[list[int]]:
    runs = plan_compaction(tiling(*lengths), small_bytes=SMALL, target_bytes=TARGET, join_extents=JOIN)
    return [[extent.length for extent in run] for run in runs]


def test_plan_compaction_selects_runs():
    assert planned() == []
    assert planned(100, 20, 16) == [], "large extents stay"
    assert planned(5, 5, 5) == [], "too few to bother"
    assert planned(5, 5, 5, 1) == [[5, 5, 5, 1]], "they make a large one"
    assert planned(1, 1, 1, 1) == [[1, 1, 1, 1]], "many of them"
    assert planned(9, 1, 1, 1) == [], "the joined one would grow by less than its length"
    assert planned(3, 1, 1, 1) == [[3, 1, 1, 1]]
    assert planned(9, 1, 1, 1, 1) == [[1, 1, 1, 1]], "the long one at the front stays out"
    assert planned(15, 15, 15, 15) == [[15, 15], [15, 15]], "never beyond the target"
    assert planned(8, 8, 100, 15, 1, 100, 3) == [[8, 8], [15, 1]]


@settings(max_examples=examples(50))
@given(st.lists(st.integers(1, 12), min_size=1, max_size=400))
def test_compaction_rewrites_each_byte_bounded_times(arriving):
    extents: list[Extent] = []
    rewrites: dict[int, int] = {}
    at = 0
    for length in arriving:
        extents.append(Extent(at, length, "c"))
        at += length
        for run in plan_compaction(extents, small_bytes=1024, target_bytes=4096, join_extents=4):
            first = extents.index(run[0])
            extents[first : first + len(run)] = [Extent(run[0].start, run[-1].end - run[0].start, "c")]
            for start in range(run[0].start, run[-1].end):
                rewrites[start] = rewrites.get(start, 0) + 1
    assert max(rewrites.values(), default=0) <= 1 + 10
    assert len(extents) <= 4 * 11 + at // 1024 + 1, "small extents are few"


def test_golden_records():
    """The vectors of docs/formats/sqlite-index.md."""
    checksums = ChunkChecksums(1_000_512, 1 << 18, bytes.fromhex("00112233 44556677 8899aabb ccddeeff"))
    extent = Extent(4096, 1_000_000, "c0/1/a", 512, checksums=checksums, starts=pack([0, 262_000, 999_999]))
    golden = bytes.fromhex(
        "03 00000000000f4240 0000000000000200 00000000000f4440 12 0006 00000003 63302f312f61"
        "00112233445566778899aabbccddeeff"
        "00000000 0003ff70 000f423f"
    )
    assert extent.record() == golden
    assert load_chunk_extent(4096, golden) == extent
    piece = ChunkChecksums(3, 1 << 18, bytes.fromhex("00112233"), 4096, 8192)
    packed = Extent(8192, 3, "a/1-p", checksums=piece, starts=pack([0]))
    golden = bytes.fromhex(
        "04 0000000000000003 0000000000000000 0000000000000003 12 0005 00000001 0000000000001000 0000000000002000"
        "612f312d70 00112233 00000000"
    )
    assert packed.record() == golden
    assert load_chunk_extent(8192, golden) == packed
    assert packed.reference == "a/1-p@000000004096"
    assert Extent(7, 3, inline=b"abc").record() == b"abc"
    assert load_inlined_extent(7, b"abc") == Extent(7, 3, inline=b"abc")


@given(
    start=st.integers(0, 1 << 62),
    length=st.integers(1, 1 << 22),
    chunk_offset=st.integers(0, 1 << 22),
    rest=st.integers(0, 1 << 20),
    power=st.integers(12, 21),
    name=st.from_regex("[a-z0-9/-]+", fullmatch=True).filter(lambda name: not is_pack(name)),
    begin=st.one_of(st.none(), st.integers(0, 1 << 40)),
    places=st.sets(st.integers(0, 1 << 22), max_size=9),
)
def test_extent_record_round_trip(start, length, chunk_offset, rest, power, name, begin, places):
    size = chunk_offset + length + rest
    checksums = ChunkChecksums(size, 1 << power, bytes(-(-size >> power) * 4))
    if begin is not None:
        name, checksums = f"{name}-p", replace(checksums, begin=begin, object_length=begin + size)
    starts = pack(sorted(place for place in places if place < length))
    extent = Extent(start, length, name, chunk_offset, checksums=checksums, starts=starts)
    extent.check()
    assert load_chunk_extent(start, extent.record()) == extent


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("04 0000000000000003", "03 0000000000000003"),
        (" 0000000000002000 61", " 0000000000001002 61"),
        (" 612f312d70 ", " 612f312d71 "),
        (" 00112233 00000000", ""),
        (" 0000000000001000 0000000000002000", " 0000000000001000"),
    ],
)
def test_unknown_records_of_pieces_are_corrupt(right, wrong):
    good = (
        "04 0000000000000003 0000000000000000 0000000000000003 12 0005 00000001 0000000000001000 0000000000002000 "
        "612f312d70 00112233 00000000"
    )
    assert load_chunk_extent(0, bytes.fromhex(good)).chunk == "a/1-p"
    assert good.count(right) == 1
    with pytest.raises(Corrupt):
        load_chunk_extent(0, bytes.fromhex(good.replace(right, wrong)))


GOOD = "03 0000000000000003 0000000000000001 0000000000000004 0c 0001 00000001 61 00112233 00000002"


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (GOOD, ""),
        (GOOD, "03"),
        ("03 0000000000000003", "02 0000000000000003"),
        ("03 0000000000000003", "04 0000000000000003"),
        (" 0000000000000003 ", " 0000000000000000 "),
        (" 0000000000000003 ", " 0000000000000004 "),
        (" 0000000000000004 ", " 0000000000001001 "),
        (" 0c ", " 16 "),
        (" 0c ", " ff "),
        ("0001 00000001 61", "0000 00000001"),
        (" 0001 ", " 0002 "),
        (" 00000001 ", " 00000002 "),
        (" 00000001 ", " 00000000 "),
        (" 61 ", " ff "),
        (" 00112233 00000002", ""),
        (" 00112233 00000002", " 001122"),
        (" 00000002", " 000002"),
        (" 00000002", " 00000003"),
        (" 00000002", " 00000000 00000002"),
    ],
)
def test_unknown_records_are_corrupt(right, wrong):
    assert load_chunk_extent(0, bytes.fromhex(GOOD)).chunk == "a"
    assert GOOD.count(right) == 1
    record = GOOD.replace(right, wrong)
    with pytest.raises(Corrupt):
        load_chunk_extent(0, bytes.fromhex(record))
    with pytest.raises(Corrupt):
        load_inlined_extent(0, b"")
