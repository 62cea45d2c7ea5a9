"""The models of shared structures, and the rules of a queue: each fault is seen, and right histories pass."""

from __future__ import annotations

from math import inf

import pytest

from checkers.register import UNKNOWN, Call, check
from checkers.structures import REFUSED, Put, QueueHistory, SharedEntries, SharedNumber, SharedSequence, Take


def linear(model, *calls) -> bool:
    """Whether calls one after another, or those with a third part at any time after, have an order."""
    made = [
        Call("p", "x", action, answer, float(at), inf if answer is UNKNOWN else at + 0.5)
        for at, (action, answer) in enumerate(calls)
    ]
    return not check(made, lambda *_: model())


def test_number_has_every_sum_once() -> None:
    assert linear(SharedNumber, (("add", 2), 2), (("add", -1), 1), (("get",), 1))
    assert linear(SharedNumber, (("add", 2), UNKNOWN), (("get",), 0), (("get",), 2))
    assert linear(SharedNumber, (("add", 2), UNKNOWN), (("get",), 0), (("add", 1), 1))
    assert not linear(SharedNumber, (("add", 1), 1), (("add", 1), 1))
    assert not linear(SharedNumber, (("add", 1), 1), (("get",), 0))
    assert not linear(SharedNumber, (("add", 1), UNKNOWN), (("get",), 2))


def test_entries_have_versions_in_the_order_of_changes() -> None:
    put = ("put", "a", b"1", None)
    assert linear(SharedEntries, (put, 1), (("get", "a"), (b"1", 1)), (("items",), (("a", b"1", 1),)))
    assert linear(SharedEntries, (put, 1), (("remove", "a"), True), (("put", "a", b"2", 0), 3))
    assert linear(SharedEntries, (("remove", "a"), False), (put, 1), (("put", "a", b"2", 0), REFUSED))
    assert linear(SharedEntries, (put, UNKNOWN), (("get", "a"), None), (("put", "a", b"2", 1), 2))
    assert not linear(SharedEntries, (put, 1), (("put", "a", b"2", 1), REFUSED))
    assert not linear(SharedEntries, (put, 1), (("put", "a", b"2", 5), 2))
    assert not linear(SharedEntries, (put, 2))
    assert not linear(SharedEntries, (put, 1), (("get", "a"), None))
    assert not linear(SharedEntries, (put, 1), (("remove", "a"), False))


def test_sequence_has_no_gap_and_no_double() -> None:
    assert linear(SharedSequence, (("append", (1, 2)), 0), (("append", (3,)), 2), (("items",), (1, 2, 3)))
    assert linear(SharedSequence, (("append", (1,)), UNKNOWN), (("items",), ()), (("append", (2,)), 1))
    assert not linear(SharedSequence, (("append", (1,)), 0), (("items",), (1, 1)))
    assert not linear(SharedSequence, (("append", (1,)), 0), (("append", (2,)), 2))
    assert not linear(SharedSequence, (("append", (1,)), 0), (("append", (2,)), 0))


A, B = (0, 0), (0, 1)


def history(*takes: Take, puts=(("a", 0), ("b", 0))) -> QueueHistory:
    made = QueueHistory(10.0)
    made.puts = [Put(value, priority, float(at), at + 0.5) for at, (value, priority) in enumerate(puts)]
    made.takes = list(takes)
    return made


def done(begun: float, value: str, place: tuple[int, int], takes: int = 1) -> Take:
    return Take(begun, begun + 1, value, place, takes, finish_begun=begun + 2, finished=begun + 3)


def test_right_histories_of_a_queue_pass() -> None:
    assert not history(done(10, "a", A), done(20, "b", B)).check({})
    assert not history(done(10, "a", A)).check({B: "b"})
    given = Take(10, 11, "a", A, 1, given_back=12)
    assert not history(given, done(11.5, "a", A, 2), done(20, "b", B)).check({})
    dead = Take(10, 11, "a", A, 1, renewed=[15.0])
    assert not history(dead, done(24.5, "a", A, 2), done(30, "b", B)).check({}), "its lease ended at 25"
    # A take whose answer was lost may have the first item; its lease ends unseen.
    assert not history(Take(10), done(20, "b", B), done(40, "a", A, 2)).check({})
    # One that overlaps the put of an earlier place need not see it.
    late = history(done(2, "b", B))
    late.puts[0].begun, late.puts[0].ended = 2.5, 2.7
    assert not late.check({A: "a"})
    lost = history(done(10, "a", A))
    lost.puts[1].ended = inf
    assert not lost.check({})
    assert not lost.check({B: "b"})


WRONG = {
    "held by two": (history(Take(10, 11, "a", A, 1), Take(18, 19, "a", A, 2)), None, "while another had it until 20"),
    "held by two though renewed": (
        history(Take(10, 11, "a", A, 1, renewed=[15.0]), Take(20, 21, "a", A, 2)),
        None,
        "until 25",
    ),
    "taken twice at once": (history(Take(10, 11, "a", A, 1), Take(10, 11, "a", A, 1)), None, "taken twice as number 1"),
    "again after done": (history(done(10, "a", A), Take(30, 31, "a", A, 2)), None, "after it was done"),
    "of another priority": (history(Take(10, 11, "a", (3, 0), 1)), None, "was put with priority 0"),
    "never put": (history(Take(10, 11, "c", A, 1)), None, "was put with priority None"),
    "put twice": (history(done(10, "a", A), Take(30, 31, "a", B, 1)), None, "is there twice"),
    "out of order": (history(Take(10, 11, "b", B, 1), done(20, "a", A)), None, "answered b, and a was free"),
    "nothing though there was": (history(Take(10, 11), done(20, "a", A)), None, "answered None, and a was free"),
    "lost": (history(done(10, "a", A)), {}, "b is left 0 times"),
    "left though done": (history(done(10, "a", A)), {A: "a", B: "b"}, "a is left 1 times"),
    "left twice": (history(), {A: "a", B: "b", (0, 2): "b"}, "b is left 2 times"),
    "left from nowhere": (history(), {A: "a", B: "b", (0, 2): "x"}, "x is left, and was never put"),
}


@pytest.mark.parametrize("name", WRONG)
def test_each_fault_of_a_queue_is_seen(name) -> None:
    found, left, says = WRONG[name]
    texts = [str(violation) for violation in found.check(left)]
    assert any(says in text for text in texts), texts
