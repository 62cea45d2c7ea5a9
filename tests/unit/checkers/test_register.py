"""The linearizability search rejects wrong histories, accepts right ones, and is fast enough."""

from __future__ import annotations

import random
import time
from itertools import permutations
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkers.register import (
    IMPOSSIBLE,
    NOTHING,
    UNKNOWN,
    Call,
    Cell,
    ConditionalLog,
    SealableLog,
    VersionedTable,
    chained,
    check,
    search,
)
from tests.limits import examples


def call(action: tuple[Any, ...], answer: Any, begun: float, ended: float = inf, on: str = "x") -> Call:
    return Call("p", on, action, answer, begun, ended)


def get(value: int, begun: float, ended: float) -> Call:
    return call(("get",), value, begun, ended)


def put(expected: int, value: int, answer: Any, begun: float, ended: float = inf) -> Call:
    return call(("set", expected, value), answer, begun, ended)


def holds(*calls: Call, model: Any = None) -> bool:
    return search(calls, model or Cell(0)) is None


def test_sequential_calls_are_checked() -> None:
    assert holds(put(0, 1, True, 0, 1), get(1, 2, 3), put(0, 2, False, 4, 5), get(1, 6, 7))
    assert not holds(put(0, 1, True, 0, 1), get(0, 2, 3)), "a stale read"
    assert not holds(put(0, 1, False, 0, 1)), "refused without reason"
    assert not holds(put(0, 1, True, 0, 1), put(0, 2, True, 2, 3)), "a lost update"
    assert not holds(get(1, 0, 1)), "a value from nowhere"


def test_concurrent_calls_may_take_either_order() -> None:
    assert holds(put(0, 1, True, 0, 10), get(0, 1, 2), get(1, 3, 4))
    assert not holds(put(0, 1, True, 0, 10), get(1, 1, 2), get(0, 3, 4)), "back again"
    assert not holds(put(0, 1, True, 0, 10), put(0, 2, True, 0, 10)), "two winners"
    assert holds(get(0, 0, 1), put(0, 1, True, 1, 2)), "touching is overlapping"


def test_unknown_call_may_happen_late_or_never() -> None:
    unknown = put(0, 1, UNKNOWN, 0)
    assert holds(unknown, get(0, 1, 2))
    assert holds(unknown, get(0, 1, 2), get(1, 3, 4))
    assert not holds(unknown, get(1, 1, 2), get(0, 3, 4))
    assert not holds(put(0, 1, UNKNOWN, 5), get(1, 1, 2)), "before it began"


def test_conditional_appends_are_checked() -> None:
    def append(expected: int, data: bytes, answer: Any, begun: float, ended: float = inf) -> Call:
        return call(("append", expected, data), answer, begun, ended)

    def read(*parts: bytes) -> tuple[int, bytes]:
        content = NOTHING
        for part in parts:
            content = chained(content, part)
        return sum(map(len, parts)), content

    model = ConditionalLog()
    fine = [append(0, b"ab", True, 0, 1), append(0, b"cd", False, 0, 1), append(2, b"ef", UNKNOWN, 2)]
    assert holds(*fine, call(("read",), read(b"ab"), 3, 4), call(("read",), read(b"ab", b"ef"), 5, 6), model=model)
    assert holds(*fine, call(("length",), 4, 5, 6), model=model)
    assert not holds(*fine, call(("length",), 0, 5, 6), model=model)
    assert not holds(*fine, call(("read",), read(b"ab", b"cd"), 5, 6), model=model), "of the refused append"
    assert not holds(*fine, call(("read",), read(b"ef", b"ab"), 5, 6), model=model), "out of order"
    twice = [append(0, b"a", True, 0, 1), append(0, b"a", True, 0, 1)]
    assert not holds(*twice, model=model), "two appends at one length"


def test_atomic_table_batches_are_checked() -> None:
    any_, absent = VersionedTable.ANY, VersionedTable.ABSENT

    def update(changes: tuple[Any, ...], answer: Any, begun: float, ended: float = inf) -> Call:
        return call(("update", changes), answer, begun, ended)

    def read_info(keys: tuple[str, ...], answer: Any, begun: float, ended: float) -> Call:
        return call(("get", keys), answer, begun, ended)

    def table(*calls: Call) -> bool:
        return not check(calls, lambda _, mine: VersionedTable(mine))

    first = update((("a", "1", absent), ("b", "2", any_)), (10, 11), 0, 1)
    assert table(first, read_info(("a", "b"), (("1", 10), ("2", 11)), 2, 3))
    assert not table(first, read_info(("a", "b"), (("1", 10), None), 2, 3)), "half a batch"
    assert not table(first, read_info(("a",), (("1", 12),), 2, 3)), "two versions of a value"
    assert table(first, update((("a", "3", 10),), (12,), 2, 3), update((("a", "4", 10),), None, 4, 5))
    assert not table(first, update((("a", "3", 10),), (12,), 2, 3), update((("a", "4", 10),), (13,), 4, 5))
    assert not table(first, update((("a", "3", absent),), (12,), 2, 3)), "it is there"
    removed = update((("a", None, 10),), (12,), 2, 3)
    assert table(first, removed, read_info(("a",), (None,), 4, 5), update((("a", "5", absent),), (13,), 6, 7))
    assert not table(first, removed, read_info(("a",), (("1", 10),), 4, 5)), "a removed key is back"
    unknown = update((("a", "3", 10), ("b", "4", 11)), UNKNOWN, 2)
    assert table(first, unknown, read_info(("a", "b"), (("3", 20), ("4", 21)), 3, 4))
    assert table(first, unknown, read_info(("a", "b"), (("1", 10), ("2", 11)), 3, 4))
    assert not table(first, unknown, read_info(("a", "b"), (("3", 20), ("2", 11)), 3, 4)), "half an unknown batch"


def test_objects_are_searched_separately_and_named() -> None:
    calls = [call(("get",), 0, 0, 1, on="good"), call(("get",), 7, 0, 1, on="bad")]
    violations = check(calls, lambda *_: Cell(0))
    assert [violation.kind for violation in violations] == ["not-linearizable"]
    assert "bad" in violations[0].message


def by_brute_force(calls: list[Call]) -> bool:
    """Every subset of the unknown ones, in every order."""
    definite = [one for one in calls if one.ended != inf]
    unknown = [one for one in calls if one.ended == inf]
    for chosen in range(1 << len(unknown)):
        some = definite + [one for at, one in enumerate(unknown) if chosen >> at & 1]
        for order in permutations(some):
            if any(a.begun > b.ended for at, a in enumerate(order) for b in order[at + 1 :]):
                continue
            state: Any = 0
            for one in order:
                state = Cell(0).step(state, one.action, one.answer)
                if state is IMPOSSIBLE:
                    break
            else:
                return True
    return False


@st.composite
def histories(draw: st.DrawFn) -> list[Call]:
    calls = []
    for _ in range(draw(st.integers(1, 6))):
        begun = draw(st.integers(0, 8))
        ended = begun + draw(st.integers(0, 4))
        if draw(st.booleans()):
            calls.append(get(draw(st.integers(0, 2)), begun, ended))
        else:
            answer = draw(st.sampled_from((True, False, UNKNOWN)))
            expected, value = draw(st.integers(0, 2)), draw(st.integers(0, 2))
            calls.append(put(expected, value, answer, begun, inf if answer is UNKNOWN else ended))
    return calls


@settings(max_examples=examples(300))
@given(histories())
def test_search_agrees_with_brute_force(calls: list[Call]) -> None:
    assert holds(*calls) == by_brute_force(calls)


def drawn_history(rng: random.Random, count: int, processes: int) -> list[Call]:
    """The replies of a correct cell to concurrent processes."""
    value, moment, calls = 0, 0.0, []
    free = [0.0] * processes
    for number in range(count):
        process = rng.randrange(processes)
        at = max(free[process], moment - rng.random() * processes)
        moment = max(at, moment + rng.random())
        end = moment + rng.random() * processes
        free[process] = end + 0.001
        if rng.random() < 0.4:
            calls.append(Call(str(process), "x", ("get",), value, at, end))
        else:
            expected = value if rng.random() < 0.7 else rng.randrange(count)
            passed = expected == value
            unknown = rng.random() < 0.1
            calls.append(
                Call(
                    str(process), "x", ("set", expected, number + 1),
                    UNKNOWN if unknown else passed, at, inf if unknown else end,
                )
            )  # fmt: skip
            if passed:
                value = number + 1
    return calls


@pytest.mark.parametrize("seed", range(5))
def test_two_hundred_calls_take_less_than_a_second(seed: int) -> None:
    calls = drawn_history(random.Random(seed), 200, 8)
    # Not the time by the clock: other work of the machine is in it.
    began = time.process_time()
    assert search(calls, Cell(0)) is None
    assert time.process_time() - began < 1.0


def _sealed_kinds(*calls) -> list[str]:
    """Of (begun, ended, process, action, answer)."""
    history = [Call(process, "log", action, answer, begun, ended) for begun, ended, process, action, answer in calls]
    return [violation.kind for violation in check(history, lambda on, mine: SealableLog())]


def test_append_after_seal_is_found() -> None:
    append, refused = ("append", 0, b"x"), ("append", 1, b"y")
    seal = (2.0, 3.0, "s", ("seal",), True)
    good = [(0.0, 1.0, "a", append, True), seal, (4.0, 5.0, "a", refused, SealableLog.SEALED)]
    assert not _sealed_kinds(*good, (6.0, 7.0, "a", ("info",), (1, True)))
    assert _sealed_kinds(*good, (6.0, 7.0, "a", ("info",), (2, True))) == ["not-linearizable"]
    assert _sealed_kinds(*good, (6.0, 7.0, "a", ("info",), (1, False))) == ["not-linearizable"]
    assert _sealed_kinds(seal, (4.0, 5.0, "a", append, True)) == ["not-linearizable"]
    assert _sealed_kinds(seal, (4.0, 5.0, "a", append, False)) == ["not-linearizable"]
    assert _sealed_kinds((0.0, 1.0, "a", append, SealableLog.SEALED)) == ["not-linearizable"]
    assert not _sealed_kinds((0.0, inf, "s", ("seal",), UNKNOWN), (4.0, 5.0, "a", append, SealableLog.SEALED))
