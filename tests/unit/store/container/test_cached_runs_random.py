"""The cache of flushed bytes against plain bytes: it returns the same bytes or none, and never exceeds its bound."""

from __future__ import annotations

from bisect import bisect_right

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sarit.store.container.operations import Create
from sarit.store.container.segment import Block, Segment, slice_blocks
from sarit.store.flow_control.memory_budget import MemoryBudget
from sarit.store.limits import BLOCK_OVERHEAD_BYTES
from tests.limits import examples

CACHE_BYTES = 40 + 5 * BLOCK_OVERHEAD_BYTES
which = st.integers(0, 1)


class Cache(RuleBasedStateMachine):
    """Two segments flushed in pieces; some pieces are in chunks alone, some were released."""

    def __init__(self):
        super().__init__()
        self.budget = MemoryBudget(1 << 20, CACHE_BYTES)
        self.made = 0
        self.segments = [Segment(Create(number, f"s{number}"), 0) for number in range(2)]
        self.data = [b"", b""]
        self.ids = 2

    @rule(
        at=which,
        pieces=st.lists(st.tuples(st.integers(1, 15), st.sampled_from(["kept", "chunk", "released"])), max_size=4),
    )
    def flush(self, at, pieces):
        blocks = []
        for length, kind in pieces:
            self.made += 1
            data = bytes((self.made * 31 + n) % 256 for n in range(length))
            parts = None if kind == "chunk" else [data[: length // 2], data[length // 2 :]]
            block = Block(len(self.data[at]), length, parts, "c" if kind == "chunk" else None)
            block.released = kind == "released"
            self.data[at] += data
            blocks.append(block)
        self.budget.cache(self.segments[at].cache_flushed(blocks))

    @rule(at=which)
    def evict(self, at):
        """The segment is evicted, and loaded again as another object."""
        self.budget.forget_cached({id(self.segments[at])})
        self.ids += 1
        self.segments[at] = Segment(Create(self.ids, f"s{self.ids}"), 0)

    @rule(at=which, offset=st.integers(0, 200), limit=st.integers(1, 30))
    def read(self, at, offset, limit):
        runs = self.segments[at].cached
        run = bisect_right(runs, offset, key=lambda blocks: blocks[0].offset) - 1
        found = b"".join(bytes(part) for part in slice_blocks(runs[run], offset, limit)) if run >= 0 else b""
        assert found == self.data[at][offset : offset + len(found)]
        assert len(found) <= limit

    @invariant()
    def cached_bytes_are_bounded(self):
        held = sum(block.length + BLOCK_OVERHEAD_BYTES for s in self.segments for run in s.cached for block in run)
        assert held == self.budget.cached_bytes <= CACHE_BYTES

    @invariant()
    def runs_have_no_holes_and_are_in_order(self):
        for segment in self.segments:
            end = 0
            for run in segment.cached:
                assert run[0].offset >= end
                for block in run:
                    assert block is run[0] or block.offset == end
                    end = block.end


Cache.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=40)
TestCache = Cache.TestCase
