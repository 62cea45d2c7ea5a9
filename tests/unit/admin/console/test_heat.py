"""Samples of segments to columns of a heat map."""

from sarit.admin.console.heat import Cell, Part, Sample, changes, column, merged
from sarit.core.names import SegmentId

A, B, C, D = SegmentId(0, 0), SegmentId(1, 1), SegmentId(1, 2), SegmentId(2, 3)


def sample(time_ms, parts, active=None):
    return Sample(time_ms, parts, frozenset(parts if active is None else active))


def test_a_column_has_the_rate_of_each_segment() -> None:
    before = sample(1000, {B: Part(0.0, 0.5, 100), C: Part(0.5, 1.0, 0)})
    found = column(before, sample(3000, {B: Part(0.0, 0.5, 1100), C: Part(0.5, 1.0, 0)}), 10)
    assert found.cells == (Cell("1.1", 0.0, 0.5, 500.0), Cell("2.1", 0.5, 1.0, 0.0))
    assert (found.start_ms, found.end_ms, found.changes) == (1000, 3000, ())


def test_a_segment_that_is_new_began_at_zero_and_one_that_was_sealed_counts_its_last_bytes() -> None:
    before = sample(0, {A: Part(0.0, 1.0, 50)})
    parts = {A: Part(0.0, 1.0, 90), B: Part(0.0, 0.5, 10), C: Part(0.5, 1.0, 0)}
    found = column(before, sample(1000, parts, {B, C}), 10)
    assert [(cell.segment, cell.rate) for cell in found.cells] == [("0.0", 40.0), ("1.1", 10.0), ("2.1", 0.0)]
    # Sealed without a byte more: nothing is drawn over its successors.
    idle = column(before, sample(1000, {**parts, A: Part(0.0, 1.0, 50)}, {B, C}), 10)
    assert [cell.segment for cell in idle.cells] == ["1.1", "2.1"]


def test_no_column_without_time_between_samples() -> None:
    one = sample(5, {A: Part(0.0, 1.0, 0)})
    assert column(one, one, 10) is None


def test_changes_are_split_merge_and_scale_by_their_keys() -> None:
    whole, halves = {A: Part(0.0, 1.0, 0)}, {B: Part(0.0, 0.5, 0), C: Part(0.5, 1.0, 0)}
    (split,) = changes(sample(0, whole), sample(1, halves))
    assert (split.kind, split.before, split.after, split.low, split.high) == (
        "split",
        ("0.0",),
        ("1.1", "2.1"),
        0.0,
        1.0,
    )
    (merge,) = changes(sample(0, halves), sample(1, {D: Part(0.0, 1.0, 0)}))
    assert (merge.kind, merge.before, merge.after) == ("merge", ("1.1", "2.1"), ("3.2",))
    thirds = {SegmentId(2, n): Part(n / 3, (n + 1) / 3, 0) for n in range(3)}
    (scale,) = changes(sample(0, halves), sample(1, thirds))
    assert scale.kind == "scale"
    assert changes(sample(0, halves), sample(1, halves)) == []


def test_two_splits_at_the_same_time_are_two_changes() -> None:
    halves = {B: Part(0.0, 0.5, 0), C: Part(0.5, 1.0, 0)}
    quarters = {SegmentId(2, n): Part(n / 4, (n + 1) / 4, 0) for n in range(4)}
    found = changes(sample(0, halves), sample(1, quarters))
    assert [(one.kind, one.before, one.low, one.high) for one in found] == [
        ("split", ("1.1",), 0.0, 0.5), ("split", ("2.1",), 0.5, 1.0),
    ]  # fmt: skip


def test_many_cells_become_rows_with_the_highest_rate() -> None:
    cells = [Cell(str(n), n / 100, (n + 1) / 100, float(n)) for n in range(100)]
    found = merged(cells, 10)
    assert [cell.rate for cell in found] == [9.0, 19.0, 29.0, 39.0, 49.0, 59.0, 69.0, 79.0, 89.0, 99.0]
    assert (found[0].low, found[-1].high) == (0.0, 1.0)
    assert merged(cells, 100) == cells
