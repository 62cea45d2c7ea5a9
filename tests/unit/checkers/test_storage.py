"""Long-term storage: each way index and chunks can disagree is found."""

from __future__ import annotations

from checkers.storage import check

GOOD = {"s": [(0, 10, "a", 0), (10, 5, "", 0), (15, 20, "b", 7)]}
CHUNKS = {"a": 10, "b": 27}


def kinds(extents=GOOD, chunks=CHUNKS, awaiting=()) -> list[str]:
    return [violation.kind for violation in check(extents, chunks, awaiting)]


def test_matching_index_and_chunks_pass() -> None:
    assert kinds() == []
    assert kinds(chunks=CHUNKS | {"c": 1}, awaiting={"c", "gone already"}) == []


def test_missing_chunk_is_found() -> None:
    assert kinds(chunks={"a": 10}) == ["missing-chunk"]


def test_short_chunk_is_found() -> None:
    assert kinds(chunks=CHUNKS | {"b": 26}) == ["missing-chunk"]


def test_leaked_chunk_is_found() -> None:
    assert kinds(chunks=CHUNKS | {"c": 1}) == ["leaked-chunk"]


def test_many_small_extents_that_adjoin_are_found() -> None:
    small = [(at, 1, "", 0) for at in range(25)]
    large = [(25, 10, "a", 0)]
    assert [one.kind for one in check({"s": [*small, *large]}, {"a": 10}, (), 5)] == ["scattered"]
    apart = [*small[:20], (20, 9, "a", 0), *((at + 29, 1, "", 0) for at in range(20))]
    assert not check({"s": apart}, {"a": 10}, (), 5)


def test_gap_and_overlap_of_extents_are_found() -> None:
    assert kinds({"s": [(0, 9, "a", 0), (10, 5, "b", 0)]}) == ["untiled"]
    assert kinds({"s": [(0, 10, "a", 0), (9, 5, "b", 0)]}) == ["untiled"]
