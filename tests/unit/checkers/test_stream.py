"""Order by key through scaling: each way to lose it is found."""

from __future__ import annotations

from checkers.stream import StreamHistory


def kinds(*delivered: tuple[int, int, int], follows: dict[int, list[int]] | None = None) -> list[str]:
    """Of one reader's (segment, sequence, number)."""
    history = StreamHistory()
    for segment, predecessors in (follows or {}).items():
        history.follows(segment, predecessors)
    for segment, sequence, number in delivered:
        history.delivered(1, segment, sequence, number)
        history.delivered(2, 0, sequence, number)  # another reader's events in between
    return [violation.kind for violation in history.check() if "reader 1" in violation.message]


def test_sequences_may_interleave() -> None:
    assert not kinds((1, 1, 1), (1, 2, 1), (1, 1, 2), (2, 2, 2), (1, 1, 3))
    assert not StreamHistory().check()


def test_sequence_out_of_order_is_found() -> None:
    assert kinds((1, 1, 1), (1, 1, 2), (1, 1, 3), (1, 1, 2)) == ["key-order"]
    assert kinds((1, 1, 1), (1, 1, 1)) == ["key-order"], "twice"


def test_skipped_event_is_found() -> None:
    assert kinds((1, 1, 1), (1, 1, 3)) == ["key-gap"]
    assert kinds((1, 1, 2)) == ["key-gap"]


def test_successor_before_end_of_predecessor_is_found() -> None:
    follows = {3: [1, 2]}
    assert not kinds((1, 1, 1), (2, 2, 1), (3, 3, 1), follows=follows)
    assert kinds((1, 1, 1), (3, 3, 1), (2, 2, 1), follows=follows) == ["early"]
    assert not kinds((1, 1, 1), (3, 3, 1), follows=follows), "the other was empty"


def test_active_segments_that_do_not_tile_are_found() -> None:
    for ranges in ([(0.0, 0.5), (0.6, 1.0)], [(0.0, 0.6), (0.5, 1.0)], [(0.1, 1.0)], [(0.0, 0.9)]):
        history = StreamHistory()
        history.active(ranges)
        assert [violation.kind for violation in history.check()] == ["untiled"], ranges
    history = StreamHistory()
    history.active([(0.5, 1.0), (0.0, 0.5)])
    assert not history.check()
