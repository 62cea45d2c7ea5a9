"""Reader groups: each kind of wrong delivery is found."""

from __future__ import annotations

from checkers.delivery import Delivered, DeliveryHistory, check


def history(*delivered: tuple[str, int, int, int, int]) -> DeliveryHistory:
    """Of (reader, segment, offset, sequence, number); segment 1 follows segment 0."""
    made = DeliveryHistory([Delivered(*one) for one in delivered])
    made.graph.follows(1, [0])
    return made


def kinds(made: DeliveryHistory) -> list[str]:
    return [violation.kind for violation in check(made)]


RIGHT = (("a", 0, 0, 1, 1), ("a", 0, 10, 2, 1), ("b", 1, 0, 1, 2), ("a", 1, 10, 2, 2))


def test_events_delivered_once_and_in_order_pass() -> None:
    assert not kinds(history(*RIGHT))
    assert not kinds(DeliveryHistory())


def test_event_delivered_twice_is_found() -> None:
    assert kinds(history(*RIGHT[:3], ("a", 1, 0, 1, 2))) == ["delivered-twice"]
    assert kinds(history(RIGHT[0], RIGHT[0])) == ["delivered-twice"]


def test_events_out_of_order_are_found() -> None:
    assert kinds(history(("a", 0, 0, 1, 2))) == ["delivered-out-of-order"]
    assert "delivered-out-of-order" in kinds(history(("a", 0, 0, 1, 1), ("b", 1, 0, 1, 3), ("a", 0, 10, 1, 2)))


def test_undelivered_event_is_found() -> None:
    made = history(*RIGHT)
    made.acked = {1: 3, 2: 2}
    assert not kinds(made), "not yet"
    made.drained = True
    assert kinds(made) == ["not-delivered"]
    made.acked = {1: 2, 2: 2}
    assert not kinds(made)


def checkpoint(cut: dict[int, int], a: int, b: int) -> list[str]:
    """Readers a and b reached it after this number of deliveries in total."""
    made = DeliveryHistory()
    made.graph.follows(1, [0])
    for at in range(len(RIGHT) + 1):
        for reader, met in (("a", a), ("b", b)):
            if met == at:
                made.met(reader, "c")
        made.delivered += [Delivered(*one) for one in RIGHT[at : at + 1]]
    made.cuts["c"] = cut
    return kinds(made)


def test_checkpoint_cut_between_events_of_each_reader_passes() -> None:
    assert not checkpoint({1: 10}, a=3, b=3)
    assert not checkpoint({1: 10}, a=2, b=4), "when it is met by each does not matter"
    assert not checkpoint({1: 20}, a=4, b=4)
    assert not checkpoint({0: 20}, a=2, b=0)


def test_checkpoint_cut_beside_reader_position_is_found() -> None:
    assert checkpoint({1: 10}, a=4, b=3) == ["torn-checkpoint"], "a had read one more"
    assert checkpoint({1: 0}, a=3, b=3) == ["torn-checkpoint"], "b's event is lost"
    assert checkpoint({0: 10}, a=2, b=0) == ["torn-checkpoint"]
    assert checkpoint({1: 20}, a=3, b=3) == ["torn-checkpoint"], "a would skip one"
