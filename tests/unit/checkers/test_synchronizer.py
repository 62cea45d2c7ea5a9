"""Shared states: each way for copies to differ is found."""

from __future__ import annotations

from math import inf

from checkers.register import NOTHING, UNKNOWN, Call, check
from checkers.synchronizer import SharedState, after

A, B = after(NOTHING, [b"a"]), after(NOTHING, [b"b"])
AB = after(A, [b"b"])


def wrong(*calls: tuple[tuple, object, float, float]) -> bool:
    """Whether no order explains (action, answer, begun, ended)."""
    made = [Call(f"p{n}", "s", action, answer, begun, ended) for n, (action, answer, begun, ended) in enumerate(calls)]
    return bool(check(made, lambda on, calls: SharedState()))


def update(state: bytes, *updates: bytes) -> tuple:
    return ("update", state, updates)


def test_sequential_updates_pass() -> None:
    assert not wrong(
        (update(NOTHING, b"a"), True, 1, 2), (update(A, b"b"), True, 2, 3), (("get",), AB, 4, 5), (("get",), A, 1, 3)
    )
    assert not wrong((("push", (b"a", b"b")), True, 1, 2), (("get",), AB, 3, 4))


def test_two_winners_of_one_condition_are_found() -> None:
    assert wrong((update(NOTHING, b"a"), True, 1, 2), (update(NOTHING, b"b"), True, 1, 2))


def test_copies_with_different_order_are_found() -> None:
    pushes = (("push", (b"a",)), True, 1, 2), (("push", (b"b",)), True, 1, 2)
    ba = after(B, [b"a"])
    assert not wrong(*pushes, (("get",), ba, 3, 4))
    assert wrong(*pushes, (("get",), ba, 3, 4), (("get",), AB, 3, 4))


def test_stale_copy_and_lost_update_are_found() -> None:
    assert wrong((update(NOTHING, b"a"), True, 1, 2), (("get",), NOTHING, 3, 4))
    assert wrong((("push", (b"a",)), True, 1, 2), (("push", (b"b",)), True, 3, 4), (("get",), B, 5, 6))


def test_partly_applied_update_is_found() -> None:
    assert wrong((update(NOTHING, b"a", b"b"), True, 1, 2), (("get",), A, 1, 4))


def test_unknown_outcome_may_be_either() -> None:
    for seen in (NOTHING, A):
        assert not wrong((update(NOTHING, b"a"), UNKNOWN, 1, inf), (("get",), seen, 3, 4))
    assert not wrong((update(NOTHING, b"a"), UNKNOWN, 1, inf), (("get",), NOTHING, 3, 4), (("get",), A, 5, 6))
    assert wrong((update(NOTHING, b"a"), UNKNOWN, 1, inf), (("get",), A, 3, 4), (("get",), NOTHING, 5, 6))
