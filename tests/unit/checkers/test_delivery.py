"""Reader groups: each way to hand out too much, too little, or in the wrong order is found."""

from __future__ import annotations

from checkers.delivery import Delivered, DeliveryHistory, check


def history(*delivered: tuple[str, int, int, int, int]) -> DeliveryHistory:
    """Of (reader, segment, offset, lane, number); segment 1 follows segment 0."""
    made = DeliveryHistory([Delivered(*one) for one in delivered])
    made.graph.follows(1, [0])
    return made


def kinds(made: DeliveryHistory) -> list[str]:
    return [violation.kind for violation in check(made)]


RIGHT = (("a", 0, 0, 1, 1), ("a", 0, 10, 2, 1), ("b", 1, 0, 1, 2), ("a", 1, 10, 2, 2))


def test_events_once_and_in_order() -> None:
    assert not kinds(history(*RIGHT))
    assert not kinds(DeliveryHistory())


def test_an_event_twice() -> None:
    assert kinds(history(*RIGHT[:3], ("a", 1, 0, 1, 2))) == ["delivered-twice"]
    assert kinds(history(RIGHT[0], RIGHT[0])) == ["delivered-twice"]


def test_events_out_of_order() -> None:
    assert kinds(history(("a", 0, 0, 1, 2))) == ["delivered-out-of-order"]
    assert "delivered-out-of-order" in kinds(history(("a", 0, 0, 1, 1), ("b", 1, 0, 1, 3), ("a", 0, 10, 1, 2)))


def test_an_event_to_nobody() -> None:
    made = history(*RIGHT)
    made.acked = {1: 3, 2: 2}
    assert not kinds(made), "not yet"
    made.drained = True
    assert kinds(made) == ["not-delivered"]
    made.acked = {1: 2, 2: 2}
    assert not kinds(made)


def checkpoint(cut: dict[int, int], a: int, b: int) -> list[str]:
    """Readers a and b met it when so many events had been handed out in all."""
    made = DeliveryHistory()
    made.graph.follows(1, [0])
    for at in range(len(RIGHT) + 1):
        for reader, met in (("a", a), ("b", b)):
            if met == at:
                made.met(reader, "c")
        made.delivered += [Delivered(*one) for one in RIGHT[at : at + 1]]
    made.cuts["c"] = cut
    return kinds(made)


def test_a_checkpoint_between_the_events_of_each_reader() -> None:
    assert not checkpoint({1: 10}, a=3, b=3)
    assert not checkpoint({1: 10}, a=2, b=4), "when it is met by each does not matter"
    assert not checkpoint({1: 20}, a=4, b=4)
    assert not checkpoint({0: 20}, a=2, b=0)


def test_a_cut_that_is_not_where_its_readers_were() -> None:
    assert checkpoint({1: 10}, a=4, b=3) == ["torn-checkpoint"], "a had read one more"
    assert checkpoint({1: 0}, a=3, b=3) == ["torn-checkpoint"], "b's event is lost"
    assert checkpoint({0: 10}, a=2, b=0) == ["torn-checkpoint"]
    assert checkpoint({1: 20}, a=3, b=3) == ["torn-checkpoint"], "a would skip one"
