"""Which segment may be read when."""

from sarit.client.core.values import Successor
from sarit.client.reader.progress import Progress
from sarit.core.names import SegmentId


def seg(number: int, epoch: int = 0) -> SegmentId:
    return SegmentId(epoch, number)


def after(segment: SegmentId, *predecessors: SegmentId) -> Successor:
    return Successor(segment, 0.0, 1.0, frozenset(predecessors))


A, B, C = seg(0), seg(1), seg(2)
D, E = seg(3, 1), seg(4, 1)


def test_split_begins_both_successors() -> None:
    progress = Progress({A: 10}, None)
    progress.positions[A] = 99
    assert set(progress.followed(A, [after(D, A), after(E, A)])) == {D, E}
    assert progress.positions == {D: 0, E: 0}
    assert not progress.done


def test_merge_waits_for_all_predecessors_and_the_position_stays_a_cut() -> None:
    progress = Progress({A: 0, B: 0}, None)
    assert progress.followed(A, [after(D, A, B)]) == []
    assert set(progress.positions) == {A, B}
    assert progress.followed(B, [after(D, A, B)]) == [D]
    assert progress.positions == {D: 0}


def test_successors_of_overlapping_predecessors_begin_together() -> None:
    progress = Progress({A: 0, B: 0, C: 0}, None)
    first, second = after(D, A, B), after(E, B, C)
    assert progress.followed(A, [first]) == []
    assert progress.followed(B, [first, second]) == []
    assert set(progress.followed(C, [second])) == {D, E}


def test_second_generation_waits_for_the_first() -> None:
    progress = Progress({A: 0, B: 0}, None)
    merged = after(E, D, B)  # A -> D, then D and B -> E
    assert progress.followed(B, [merged]) == []
    assert progress.followed(A, [after(D, A)]) == [D]
    assert progress.positions.keys() == {D, B}
    assert progress.followed(D, [merged]) == [E]


def test_sealed_stream_ends_with_its_last_segments() -> None:
    progress = Progress({A: 0, B: 0}, None)
    assert progress.followed(A, []) == []
    assert not progress.done
    progress.followed(B, [])
    assert progress.done
    assert progress.positions.keys() == {A, B}


def test_end_cut_limits_its_segments_and_excludes_later_ones() -> None:
    progress = Progress({A: 0, B: 0}, {D: 50, B: 7})
    assert progress.limit(A) is None
    assert progress.limit(B) == 7
    assert progress.limit(seg(9, 2)) == 0
    assert progress.stops_at_limit(B)
    progress.finished(B)
    assert progress.followed(A, [after(D, A)]) == [D]
    assert progress.limit(D) == 50
    progress.finished(D)
    assert progress.done
