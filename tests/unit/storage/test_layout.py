"""Chunk layout: a state machine against the plain bytes of a segment, and the records."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sarit.core.errors import Corrupt
from sarit.storage.layout import ChunkList, Extent, load_chunk_extent, load_inlined_extent, plan_compaction

SMALL, TARGET, JOIN = 16, 40, 4

lengths = st.integers(1, 24)


def unreferenced(chunks: ChunkList, dropped: list[Extent]) -> list[str]:
    """The chunks of `dropped` that no extent of the list names."""
    live = {extent.chunk for extent in chunks}
    return sorted({extent.chunk for extent in dropped if extent.chunk} - live)


class Layout(RuleBasedStateMachine):
    """The chunk list of a segment against the plain bytes of the segment."""

    def __init__(self):
        super().__init__()
        self.chunks: dict[str, bytes] = {}
        self.garbage: list[str] = []
        self.list = ChunkList()
        self.start, self.data = 0, b""
        self.made = 0

    def extent(self, start: int, data: bytes, inline: bool, skip: int = 0) -> Extent:
        if inline:
            return Extent(start, len(data), inline=data)
        self.made += 1
        name = f"c{self.made}"
        self.chunks[name] = b"?" * skip + data
        return Extent(start, len(data), name, skip)

    def fresh(self, length: int) -> bytes:
        self.made += 1
        return bytes((self.made * 7 + at) % 256 for at in range(length))

    def read(self, extent: Extent) -> bytes:
        if not extent.chunk:
            return extent.inline
        return self.chunks[extent.chunk][extent.chunk_offset : extent.chunk_offset + extent.length]

    @rule(length=lengths, inline=st.booleans(), skip=st.integers(0, 3))
    def append(self, length, inline, skip):
        data = self.fresh(length)
        self.list.append(self.extent(len(self.data), data, inline, skip))
        self.data += data

    @rule(fraction=st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.9, 1.0]))
    def truncate(self, fraction):
        self.cut(fraction)
        self.collect()

    def collect(self):
        """The compaction deletes its old chunks at its end: until then a planned read succeeds."""
        for name in self.garbage:
            del self.chunks[name]
        self.garbage.clear()

    def cut(self, fraction):
        self.start += int((len(self.data) - self.start) * fraction)
        before = list(self.list)
        dropped = self.list.truncate(self.start)
        assert dropped + list(self.list) == before
        assert all(extent.end <= self.start for extent in dropped)
        self.garbage += unreferenced(self.list, dropped)

    @precondition(lambda self: len(self.list) > 0)
    @rule(truncated=st.booleans())
    def compact(self, truncated):
        for run in plan_compaction(self.list, small_bytes=SMALL, target_bytes=TARGET, join_extents=JOIN):
            size = sum(extent.length for extent in run)
            assert len(run) > 1
            assert size <= TARGET
            assert all(extent.length < SMALL for extent in run)
            assert size >= SMALL or len(run) >= JOIN
            joined = self.extent(run[0].start, b"".join(self.read(extent) for extent in run), inline=False)
            if truncated:
                self.cut(0.5)
            replaced = self.list.replace(run[0].start, [joined])
            assert replaced == (run if self.start < run[0].end else [])
            self.garbage += unreferenced(self.list, replaced or [joined])
        self.collect()

    @invariant()
    def holds_the_bytes(self):
        self.list.check(self.start, len(self.data))
        at = self.list.start if len(self.list) else len(self.data)
        whole = b"".join(self.read(extent) for extent in self.list)
        assert whole == self.data[at:]
        assert list(ChunkList(reversed(list(self.list)))) == list(self.list), "loading takes any order"

    @invariant()
    def finds_every_byte(self):
        first = self.list.start if len(self.list) else len(self.data)
        for offset in {self.start, (self.start + len(self.data)) // 2, len(self.data) - 1, len(self.data)}:
            extent = self.list.locate(offset)
            assert (extent is not None) == (first <= offset < len(self.data))
            if extent is not None:
                assert self.read(extent)[offset - extent.start] == self.data[offset]
        assert self.list.locate(first - 1) is None

    @invariant()
    def keeps_no_chunk_too_many_and_drops_none_too_early(self):
        assert {extent.chunk for extent in self.list if extent.chunk} == set(self.chunks)


TestLayout = Layout.TestCase
TestLayout.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


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


@settings(max_examples=50, deadline=None)
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


def test_gap_or_overlap_of_extents_is_corrupt():
    for second in (Extent(6, 5, "b"), Extent(4, 5, "b")):
        with pytest.raises(Corrupt):
            ChunkList([Extent(0, 5, "a"), second])


@pytest.mark.parametrize("wrong", [(0, 11), (0, 9), (10, 10), (3, 10)])
def test_check_rejects_wrong_bounds(wrong):
    chunks = ChunkList(tiling(3, 7))
    chunks.truncate(3)
    chunks.check(4, 10)
    if wrong != (3, 10):
        with pytest.raises(AssertionError):
            chunks.check(*wrong)
    with pytest.raises(AssertionError):
        chunks.append(Extent(11, 1, "gap"))


def test_replace_of_truncated_run_changes_nothing():
    chunks = ChunkList(tiling(3, 3, 3))
    chunks.truncate(3)
    assert chunks.replace(0, [Extent(0, 6, "joined")]) == []
    assert chunks.replace(3, [Extent(3, 5, "joined")]) == []
    assert chunks.replace(4, [Extent(4, 5, "joined")]) == []
    assert [extent.chunk for extent in chunks] == ["c3", "c6"]
    assert [extent.chunk for extent in chunks.replace(3, [Extent(3, 6, "joined")])] == ["c3", "c6"]
    assert [extent.chunk for extent in chunks] == ["joined"]


@pytest.mark.parametrize(("offset", "left"), [(0, 3), (2, 3), (3, 2), (4, 2), (9, 1), (10, 0), (11, 0)])
def test_truncate_drops_extents_wholly_below(offset, left):
    chunks = ChunkList(tiling(3, 6, 1))
    assert chunks.truncate(offset) == tiling(3, 6, 1)[: 3 - left]
    assert len(chunks) == left


def test_golden_records():
    """The vectors of docs/formats/sqlite-index.md."""
    extent = Extent(4096, 1_000_000, "c0/1/a", 512)
    golden = bytes.fromhex("01" + "00000000000f4240" + "0000000000000200" + "63302f312f61")
    assert extent.record() == golden
    assert load_chunk_extent(4096, golden) == extent
    assert Extent(7, 3, inline=b"abc").record() == b"abc"
    assert load_inlined_extent(7, b"abc") == Extent(7, 3, inline=b"abc")


@given(
    st.integers(0, 1 << 62),
    st.integers(1, 1 << 62),
    st.integers(0, 1 << 62),
    st.from_regex("[a-z0-9/-]+", fullmatch=True),
)
def test_extent_record_round_trip(start, length, chunk_offset, name):
    extent = Extent(start, length, name, chunk_offset)
    assert load_chunk_extent(start, extent.record()) == extent


@pytest.mark.parametrize(
    "record",
    ["", "01", "02" + "00" * 7 + "01" + "00" * 8 + "61", "01" + "00" * 16 + "61", "01" + "01" * 16, "01" * 17 + "ff"],
)
def test_unknown_records_are_corrupt(record):
    with pytest.raises(Corrupt):
        load_chunk_extent(0, bytes.fromhex(record))
    with pytest.raises(Corrupt):
        load_inlined_extent(0, b"")
