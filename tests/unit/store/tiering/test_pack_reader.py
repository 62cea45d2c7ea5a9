"""Which pieces of packs one request reads."""

from sarit.store.limits import PACK_GAP_BYTES
from sarit.store.tiering.pack_reader import _spans

DENSE = [(0, 100), (100, 100), (200, 100)]
SPARSE = [(0, 100), (1_000, 100), (3_000, 100), (8_000, 100)]


def test_neighbours_are_read_together_although_nothing_else_fits():
    assert _spans({"dense": DENSE}, 0) == {"dense": [(0, 300)]}


def test_the_smallest_gaps_of_all_packs_are_read_first():
    packs = {"sparse": SPARSE, "dense": DENSE}
    # The pieces have 700 bytes, and the gaps of the sparse one 900, 1,900, 4,900.
    assert _spans(packs, 700 + 899) == {"sparse": [(at, at + 100) for at, _ in SPARSE], "dense": [(0, 300)]}
    assert _spans(packs, 700 + 900)["sparse"] == [(0, 1_100), (3_000, 3_100), (8_000, 8_100)]
    assert _spans(packs, 700 + 2_799)["sparse"] == [(0, 1_100), (3_000, 3_100), (8_000, 8_100)]
    assert _spans(packs, 700 + 2_800)["sparse"] == [(0, 3_100), (8_000, 8_100)]
    assert _spans(packs, 700 + 7_700)["sparse"] == [(0, 8_100)]


def test_a_long_gap_is_never_read():
    at = 100 + PACK_GAP_BYTES
    assert _spans({"pack": [(0, 100), (at, 100)]}, 1 << 40) == {"pack": [(0, at + 100)]}
    assert _spans({"pack": [(0, 100), (at + 1, 100)]}, 1 << 40) == {"pack": [(0, 100), (at + 1, at + 101)]}
